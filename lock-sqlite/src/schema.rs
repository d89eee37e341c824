//! The table: its name, its definition, and the statements about it.

use std::fmt;
use std::sync::Arc;

use distlock_api::{Error, ErrorKind, Finding, Result};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqlSafeStr, SqlStr};

/// The table that is used where no other name is given.
pub const DEFAULT_TABLE: &str = "distlock_locks";

/// The SQL that makes the table, for your own migrations. It changes nothing where the table is there.
///
/// # Errors
///
/// [`ErrorKind::Config`] where `table` is no plain name: 1 to 63 letters (a to z), digits and `_`, no digit first,
/// not `sqlite_…`.
pub fn schema_sql(table: &str) -> Result<String> {
    check_table(table)?;
    Ok(include_str!("statements/schema.sql").replace("{table}", &quoted(table)))
}

/// The statements about one table, each a file in `statements/`.
#[derive(Clone)]
pub(crate) struct Statements {
    pub(crate) table: String,
    pub(crate) schema: SqlStr,
    pub(crate) find: SqlStr,
    pub(crate) begin_find: SqlStr,
    pub(crate) save: SqlStr,
    pub(crate) save_commit: SqlStr,
    pub(crate) renew: SqlStr,
    pub(crate) list: SqlStr,
    pub(crate) purge: SqlStr,
    pub(crate) triggers: SqlStr,
}

impl Statements {
    pub(crate) fn new(table: &str) -> Result<Self> {
        check_table(table)?;
        let about = |statement: &str| about(statement, table);
        Ok(Self {
            table: table.to_owned(),
            schema: about(include_str!("statements/schema.sql")),
            find: about(include_str!("statements/find.sql")),
            begin_find: about(include_str!("statements/begin_find.sql")),
            save: about(include_str!("statements/save.sql")),
            save_commit: about(concat!(include_str!("statements/save.sql"), ";\nCOMMIT;")),
            renew: about(include_str!("statements/renew.sql")),
            list: about(include_str!("statements/list.sql")),
            purge: about(include_str!("statements/purge.sql")),
            triggers: about(include_str!("statements/triggers.sql")),
        })
    }
}

impl fmt::Debug for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Statements({})", self.table)
    }
}

/// What the table must look like: name, type, must not be null.
const COLUMNS: [(&str, &str, bool); 10] = [
    ("name", "TEXT", true),
    ("token", "BLOB", true),
    ("boot_id", "TEXT", true),
    ("boot_until", "INTEGER", true),
    ("resting", "INTEGER", true),
    ("fence", "INTEGER", true),
    ("last_tick", "INTEGER", false),
    ("locked_by", "TEXT", true),
    ("locked_at", "INTEGER", true),
    ("lock_until", "INTEGER", true),
];

/// One column as the file has it.
pub(crate) struct Column {
    name: String,
    data_type: String,
    required: bool,
    has_default: bool,
    key: bool,
    collation: Option<String>,
    is_of_view: bool,
}

impl Column {
    pub(crate) const SQL: &str = include_str!("statements/columns.sql");

    pub(crate) fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            name: row.try_get("name")?,
            data_type: row.try_get("type")?,
            required: row.try_get("required")?,
            has_default: row.try_get("has_default")?,
            key: row.try_get::<i64, _>("pk")? > 0,
            collation: row.try_get("collation")?,
            is_of_view: row.try_get("is_of_view")?,
        })
    }
}

/// A unique key that can refuse a lock.
pub(crate) struct Key {
    name: String,
    /// Part of the table's definition, and not an index that was made for it.
    is_of_table: bool,
    columns: String,
}

impl Key {
    pub(crate) const SQL: &str = include_str!("statements/keys.sql");

    pub(crate) fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            name: row.try_get("name")?,
            is_of_table: row.try_get("is_of_table")?,
            // None of an index on expressions.
            columns: row.try_get::<Option<_>, _>("columns")?.unwrap_or_default(),
        })
    }
}

/// What is wrong with the table, all of it that its definition shows.
pub(crate) fn faults(table: &str, columns: &[Column], keys: &[Key]) -> Vec<Finding> {
    let Some(first) = columns.first() else {
        return vec![Finding::fault(
            ErrorKind::SchemaMissing,
            format!("there is no table {table}"),
            "run `distlock migrate --store URL`, call migrate(), or run the SQL of `distlock schema --for sqlite`",
        )];
    };
    if first.is_of_view {
        return vec![Finding::fault(
            ErrorKind::Config,
            format!("{table} is a view"),
            "drop it and run `distlock migrate --store URL`, or choose another lock_table",
        )];
    }
    let (of_table, indexes): (Vec<_>, Vec<_>) = keys.iter().partition(|key| key.is_of_table);
    let mut differences = differences(columns);
    differences.extend(of_table.into_iter().map(|key| {
        let columns = &key.columns;
        format!("has a UNIQUE constraint on {columns} that can refuse a lock")
    }));
    let mut faults = Vec::new();
    if !differences.is_empty() {
        let what = format!("the table {table} {}", differences.join(", "));
        faults.push(Finding::fault(ErrorKind::Config, what, anew(table)));
    }
    faults.extend(indexes.into_iter().map(|key| {
        let index = format!("\"{}\"", key.name.replace('"', "\"\""));
        Finding::fault(
            ErrorKind::Config,
            format!("the table {table} has an index {index} that can refuse a lock"),
            format!("DROP INDEX {index}"),
        )
    }));
    faults
}

/// How the table is made anew: SQLite changes neither the types nor the keys nor the constraints of one that is there.
pub(crate) fn anew(table: &str) -> String {
    let other = quoted(&format!("{table}_old"));
    let table = quoted(table);
    format!(
        "ALTER TABLE {table} RENAME TO {other}\n\
         then run `distlock migrate --store URL`, or call migrate() (stop the jobs first: locks held in it are let go, and \
         the ticks that were run forgotten; any name that is free will do for the old one)"
    )
}

fn differences(columns: &[Column]) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, data_type, required) in COLUMNS {
        let null = if required { " NOT NULL" } else { "" };
        match columns.iter().find(|column| column.name == name) {
            None => differences.push(format!("has no column {name}")),
            Some(column) if column.data_type != data_type || column.required != required => {
                differences.push(format!("has a column {name} that is not {data_type}{null}"));
            }
            Some(_) => {}
        }
    }
    let is_key_right = |column: &Column| match column.name.as_str() {
        "name" => column.key && column.collation.as_deref() == Some("BINARY"),
        _ => !column.key,
    };
    if !columns.iter().all(is_key_right) {
        let key = "has another primary key than name with the collation BINARY";
        differences.push(key.to_owned());
    }
    let known = |column: &Column| COLUMNS.iter().any(|(name, ..)| *name == column.name);
    let wants = |column: &&Column| !known(column) && column.required && !column.has_default;
    let strange = columns.iter().filter(wants);
    differences
        .extend(strange.map(|column| format!("has a column {} that wants a value", column.name)));
    differences
}

pub(crate) fn check_table(table: &str) -> Result<()> {
    let plain = table
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let first = table.bytes().next();
    let reserved =
        table.len() >= 7 && table.is_char_boundary(7) && table[..7].eq_ignore_ascii_case("sqlite_");
    if !plain || table.len() > 63 || reserved || first.is_none_or(|b| b.is_ascii_digit()) {
        return Err(Error::new(
            ErrorKind::Config,
            format!(
                "the table name \"{}\" is no good: 1 to 63 letters (a to z), digits and _, no digit first, not sqlite_…",
                table.escape_debug()
            ),
        ));
    }
    Ok(())
}

/// The statement about this table, whose name was checked.
pub(crate) fn about(statement: &str, table: &str) -> SqlStr {
    let text = statement.replace("{table}", &quoted(table));
    AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
}

/// Quoted, for names that are words of SQL.
fn quoted(table: &str) -> String {
    format!("\"{table}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_are_plain_and_quoted() {
        for good in ["locks", "_L0cks", "order", &"x".repeat(63)] {
            let sql = schema_sql(good).unwrap();
            assert!(sql.starts_with(&format!("CREATE TABLE IF NOT EXISTS \"{good}\" (")));
            assert!(!sql.contains('{'), "{sql}");
        }
        for bad in [
            "",
            "1x",
            "a b",
            "a\"b",
            "a.b",
            "löck",
            "SQLite_x",
            &"x".repeat(64),
        ] {
            let error = schema_sql(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
        }
    }
}
