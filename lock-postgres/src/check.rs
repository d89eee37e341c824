//! The start-up check: whether the store can be used as it is. It touches no lock.

use distlock_api::{Error, ErrorKind, Result};
use sqlx::{PgConnection, Row};

use crate::schema::{Table, quoted};

/// What the table needs: column, type, whether it refuses null.
const COLUMNS: [(&str, &str, bool); 8] = [
    ("name", "text", true),
    ("lock_until", "timestamp with time zone", true),
    ("locked_at", "timestamp with time zone", true),
    ("locked_by", "text", true),
    ("token", "bytea", true),
    ("fence", "bigint", true),
    ("last_tick", "bigint", false),
    ("resting", "boolean", true),
];

/// Two statements. The inner result is the complaint, the outer one tells that they failed.
pub(crate) async fn check(
    connection: &mut PgConnection,
    table: &Table,
) -> sqlx::Result<Result<()>> {
    let found = sqlx::query(include_str!("statements/check_table.sql"))
        .bind(table.to_string())
        .bind(table.bare_name())
        .fetch_one(&mut *connection)
        .await?;
    let found = Found {
        direct: found.try_get("direct")?,
        in_recovery: found.try_get("in_recovery")?,
        read_only: found.try_get("read_only")?,
        user: found.try_get("user")?,
        is_table: found.try_get("is_table")?,
        persistence: found.try_get("persistence")?,
        row_security: found.try_get("row_security")?,
        closed_schema: found.try_get("closed_schema")?,
        missing_rights: found.try_get("missing_rights")?,
    };
    if let Some(complaint) = found.complaint(table) {
        return Ok(Err(complaint));
    }
    let rows = sqlx::query(include_str!("statements/check_columns.sql"))
        .bind(table.to_string())
        .fetch_all(connection)
        .await?;
    let columns = rows.iter().map(Column::read);
    let columns: Vec<_> = columns.collect::<sqlx::Result<_>>()?;
    Ok(match columns_complaint(table, &columns) {
        Some(text) => Err(Error::new(ErrorKind::Config, text)),
        None => Ok(()),
    })
}

/// The row of `check_table.sql`.
struct Found {
    direct: bool,
    in_recovery: bool,
    read_only: bool,
    user: String,
    /// `None` where nothing has that name.
    is_table: Option<bool>,
    persistence: Option<String>,
    row_security: Option<bool>,
    closed_schema: Option<String>,
    missing_rights: Vec<String>,
}

impl Found {
    fn complaint(&self, table: &Table) -> Option<Error> {
        let (kind, text) = if !self.direct {
            let text = "a pooler between us and the server drops session settings: connect to the server directly";
            (ErrorKind::Config, text.to_owned())
        } else if self.in_recovery {
            let text = "the server is a standby and takes no writes: point the URL at the primary";
            (ErrorKind::ReadOnly, text.to_owned())
        } else if self.read_only {
            let text = format!(
                "sessions of {} are read-only: lift default_transaction_read_only",
                quoted(&self.user)
            );
            (ErrorKind::ReadOnly, text)
        } else if let (None, Some(schema)) = (self.is_table, &self.closed_schema) {
            let (schema, user) = (quoted(schema), quoted(&self.user));
            let text = format!(
                "{user} has no right to look into the schema {schema}: GRANT USAGE ON SCHEMA {schema} TO {user}"
            );
            (ErrorKind::Denied, text)
        } else if self.is_table.is_none() {
            let text = format!(
                "the table {table} is missing: run `distlock migrate --store URL`, call migrate(), or apply what `distlock schema --for postgres` prints"
            );
            (ErrorKind::SchemaMissing, text)
        } else if self.is_table == Some(false) {
            let text = format!("{table} is no table: drop it, or choose another lock_table");
            (ErrorKind::Config, text)
        } else if self.persistence.as_deref() != Some("p") {
            let text = format!(
                "{table} is unlogged or temporary, so that a crash would forget who holds what: ALTER TABLE {table} SET LOGGED"
            );
            (ErrorKind::Config, text)
        } else if !self.missing_rights.is_empty() {
            let (rights, user) = (self.missing_rights.join(", "), quoted(&self.user));
            let text = format!(
                "{user} has no right to {rights} on {table}: GRANT {rights} ON {table} TO {user}"
            );
            (ErrorKind::Denied, text)
        } else if self.row_security == Some(true) {
            let text = format!(
                "row security hides rows of {table} from {}: ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
                quoted(&self.user)
            );
            (ErrorKind::Config, text)
        } else {
            return None;
        };
        Some(Error::new(kind, text))
    }
}

/// A row of `check_columns.sql`.
struct Column {
    name: String,
    r#type: String,
    not_null: bool,
    has_default: bool,
    deterministic: bool,
    is_key: bool,
}

impl Column {
    fn read(row: &sqlx::postgres::PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.try_get("name")?,
            r#type: row.try_get("type")?,
            not_null: row.try_get("not_null")?,
            has_default: row.try_get("has_default")?,
            deterministic: row.try_get("deterministic")?,
            is_key: row.try_get("is_key")?,
        })
    }

    fn is_wanted(&self) -> bool {
        COLUMNS.iter().any(|(name, ..)| *name == self.name)
    }
}

/// The first thing that is wrong, with the statement that mends it.
fn columns_complaint(table: &Table, columns: &[Column]) -> Option<String> {
    let wrong = |what: &str, fix: &str| Some(format!("{table} {what}: ALTER TABLE {table} {fix}"));
    for (name, kind, not_null) in COLUMNS {
        let null = if not_null { " NOT NULL" } else { "" };
        let Some(column) = columns.iter().find(|column| column.name == name) else {
            let what = format!("has no column {name}");
            return wrong(&what, &format!("ADD COLUMN {name} {kind}{null}"));
        };
        if column.r#type != kind {
            let what = format!("has the column {name} as {}", column.r#type);
            return wrong(&what, &format!("ALTER COLUMN {name} TYPE {kind}"));
        }
        if column.not_null != not_null {
            let (what, verb) = match not_null {
                true => ("takes", "SET"),
                false => ("refuses", "DROP"),
            };
            let what = format!("{what} null in the column {name}");
            return wrong(&what, &format!("ALTER COLUMN {name} {verb} NOT NULL"));
        }
        if name == "name" && !column.deterministic {
            let fix = "ALTER COLUMN name TYPE text COLLATE \"C\"";
            return wrong("takes different names for the same", fix);
        }
        if name == "name" && !column.is_key {
            return wrong("has no key on name alone", "ADD PRIMARY KEY (name)");
        }
    }
    let strange = columns
        .iter()
        .find(|column| !column.is_wanted() && column.not_null && !column.has_default)?;
    let name = quoted(&strange.name);
    let what = format!("has a further column {name} that refuses null");
    wrong(&what, &format!("ALTER COLUMN {name} DROP NOT NULL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is made in one place and checked in another.
    #[test]
    fn the_printed_schema_has_every_column() {
        let sql = crate::schema_sql(&Table::default());
        for (name, kind, _) in COLUMNS {
            let kind = kind.replace("timestamp with time zone", "timestamptz");
            assert!(sql.contains(&format!("    {name} {kind}")), "{name} {kind}");
        }
    }
}
