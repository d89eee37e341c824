//! The check: whether the store can be used as it is, and what weakens its promises. It touches no lock.

use distlock_api::{ErrorKind, Finding, Findings};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};

use crate::schema::{Table, quoted};
use crate::session::Session;
use crate::statements::Statements;
use crate::value::Value;

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

/// All that is to be seen, faults first. Three statements; an error tells that they failed.
pub(crate) async fn check(
    session: &mut Session,
    statements: &Statements,
    table: &Table,
) -> sqlx::Result<Findings> {
    let name = table.to_string();
    let values = [Value::from(&*name), Value::Text(table.bare_name())];
    let found: Vec<Found> = session.ask(&statements.check_table, &values).await?;
    let found = found.first().ok_or(sqlx::Error::RowNotFound)?;
    let mut findings: Findings = found.session_fault().into_iter().collect();
    if let Some(fault) = found.no_table(table) {
        findings.push(fault);
    } else {
        findings.extend(found.table_faults(table));
        let ours = COLUMNS.iter().map(|(name, ..)| *name).collect();
        let values = [Value::from(&*name), Value::Texts(ours)];
        let obstacles: Vec<Obstacle> = session.ask(&statements.check_obstacles, &values).await?;
        findings.extend(obstacles.iter().map(|obstacle| obstacle_fault(table, obstacle)));
        let columns: Vec<Column> = session.ask(&statements.check_columns, &values[..1]).await?;
        findings.extend(column_faults(table, &columns));
    }
    findings.extend(found.warnings(table));
    Ok(findings)
}

/// The row of `check_table.sql`.
#[derive(Clone)]
struct Found {
    in_recovery: bool,
    read_only: bool,
    user: String,
    fsync: bool,
    full_page_writes: bool,
    /// `None` where nothing has that name.
    is_table: Option<bool>,
    persistence: Option<String>,
    row_security: Option<bool>,
    closed_schema: Option<String>,
    missing_rights: Vec<String>,
    triggers: Vec<String>,
}

impl FromRow<'_, PgRow> for Found {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            in_recovery: row.try_get("in_recovery")?,
            read_only: row.try_get("read_only")?,
            user: row.try_get("user")?,
            fsync: row.try_get("fsync")?,
            full_page_writes: row.try_get("full_page_writes")?,
            is_table: row.try_get("is_table")?,
            persistence: row.try_get("persistence")?,
            row_security: row.try_get("row_security")?,
            closed_schema: row.try_get("closed_schema")?,
            missing_rights: row.try_get("missing_rights")?,
            triggers: row.try_get("triggers")?,
        })
    }
}

impl Found {
    fn session_fault(&self) -> Option<Finding> {
        let (what, fix) = if self.in_recovery {
            let what = "the server is a standby and takes no writes".to_owned();
            (what, "point the URL at the primary")
        } else if self.read_only {
            let what = format!("sessions of {} are read-only", quoted(&self.user));
            (what, "lift default_transaction_read_only")
        } else {
            return None;
        };
        Some(Finding::fault(ErrorKind::ReadOnly, what, fix))
    }

    /// Why there is nothing to look at.
    fn no_table(&self, table: &Table) -> Option<Finding> {
        let (kind, what, fix) = match (self.is_table, &self.closed_schema) {
            (Some(true), _) => return None,
            (Some(false), _) => {
                let fix = "drop it, or choose another lock_table".to_owned();
                (ErrorKind::Config, format!("{table} is no table"), fix)
            }
            (None, Some(schema)) => {
                let (schema, user) = (quoted(schema), quoted(&self.user));
                let what = format!("{user} has no right to look into the schema {schema}");
                let fix = format!("GRANT USAGE ON SCHEMA {schema} TO {user}");
                (ErrorKind::Denied, what, fix)
            }
            (None, None) => {
                let fix = "run `distlock migrate --store URL`, call migrate(), or apply what `distlock schema --for postgres` prints";
                let what = format!("the table {table} is missing");
                (ErrorKind::SchemaMissing, what, fix.to_owned())
            }
        };
        Some(Finding::fault(kind, what, fix))
    }

    fn table_faults(&self, table: &Table) -> Vec<Finding> {
        let user = quoted(&self.user);
        let mut faults = Vec::new();
        if self.persistence.as_deref() != Some("p") {
            let what = format!(
                "{table} is unlogged or temporary, so that a crash would forget who holds what"
            );
            let fix = format!("ALTER TABLE {table} SET LOGGED");
            faults.push(Finding::fault(ErrorKind::Config, what, fix));
        }
        if !self.missing_rights.is_empty() {
            let rights = self.missing_rights.join(", ");
            let what = format!("{user} has no right to {rights} on {table}");
            let fix = format!("GRANT {rights} ON {table} TO {user}");
            faults.push(Finding::fault(ErrorKind::Denied, what, fix));
        }
        if self.row_security == Some(true) {
            let what = format!("row security hides rows of {table} from {user}");
            let fix = format!("ALTER TABLE {table} DISABLE ROW LEVEL SECURITY");
            faults.push(Finding::fault(ErrorKind::Config, what, fix));
        }
        faults
    }

    /// What locks work with, and are the weaker for.
    fn warnings(&self, table: &Table) -> Vec<Finding> {
        let mut warnings = Vec::new();
        for (setting, is_on) in [
            ("fsync", self.fsync),
            ("full_page_writes", self.full_page_writes),
        ] {
            if !is_on {
                let what = format!("{setting} is off, so that a crash may forget who holds what");
                let fix = format!("ALTER SYSTEM SET {setting} = on, then SELECT pg_reload_conf()");
                warnings.push(Finding::warning(what, fix));
            }
        }
        for trigger in &self.triggers {
            let trigger = quoted(trigger);
            let what =
                format!("{table} has the trigger {trigger}, which may change what is written");
            let fix =
                format!("DROP TRIGGER {trigger} ON {table}, unless you know that it does not");
            warnings.push(Finding::warning(what, fix));
        }
        warnings
    }
}

/// A row of `check_obstacles.sql`: the name, and the schema if it is an index that is no constraint's.
type Obstacle = (String, Option<String>);

/// A value that one of these refuses would be a lock that is refused.
fn obstacle_fault(table: &Table, (name, schema): &Obstacle) -> Finding {
    let name = quoted(name);
    let (what, fix) = match schema {
        None => (
            format!("the constraint {name}"),
            format!("ALTER TABLE {table} DROP CONSTRAINT {name}"),
        ),
        Some(schema) => (
            format!("the unique index {name}"),
            format!("DROP INDEX {}.{name}", quoted(schema)),
        ),
    };
    let what = format!("{table} has {what} that can refuse a lock");
    Finding::fault(ErrorKind::Config, what, fix)
}

/// A row of `check_columns.sql`.
struct Column {
    name: String,
    r#type: String,
    not_null: bool,
    has_default: bool,
    is_generated: bool,
    deterministic: bool,
    is_key: bool,
}

impl FromRow<'_, PgRow> for Column {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.try_get("name")?,
            r#type: row.try_get("type")?,
            not_null: row.try_get("not_null")?,
            has_default: row.try_get("has_default")?,
            is_generated: row.try_get("is_generated")?,
            deterministic: row.try_get("deterministic")?,
            is_key: row.try_get("is_key")?,
        })
    }
}

impl Column {
    fn is_wanted(&self) -> bool {
        COLUMNS.iter().any(|(name, ..)| *name == self.name)
    }
}

/// All that is wrong with the columns, each with the statement that mends it.
fn column_faults(table: &Table, columns: &[Column]) -> Vec<Finding> {
    let mut faults = Vec::new();
    for (name, kind, not_null) in COLUMNS {
        match columns.iter().find(|column| column.name == name) {
            Some(column) => faults.extend(unfit(column, kind, not_null)),
            None => {
                let null = if not_null { " NOT NULL" } else { "" };
                let fix = format!("ADD COLUMN {name} {kind}{null}");
                faults.push((format!("has no column {name}"), fix));
            }
        }
    }
    let further = columns.iter().filter(|column| !column.is_wanted());
    faults.extend(further.filter_map(strange));
    let finding = |(what, fix)| {
        let (what, fix) = (
            format!("{table} {what}"),
            format!("ALTER TABLE {table} {fix}"),
        );
        Finding::fault(ErrorKind::Config, what, fix)
    };
    faults.into_iter().map(finding).collect()
}

/// What is wrong with a column that we do not know, and what mends it.
fn strange(column: &Column) -> Option<(String, String)> {
    let name = quoted(&column.name);
    if column.is_generated {
        let what = format!("has the generated column {name} that can refuse a lock");
        return Some((what, format!("DROP COLUMN {name}")));
    }
    let what = format!("has a further column {name} that refuses null");
    let fix = format!("ALTER COLUMN {name} DROP NOT NULL");
    (column.not_null && !column.has_default).then_some((what, fix))
}

/// What is wrong with a column of ours, and what mends it.
fn unfit(column: &Column, kind: &str, not_null: bool) -> Vec<(String, String)> {
    let name = &column.name;
    let mut faults = Vec::new();
    if column.is_generated {
        let null = if not_null { " NOT NULL" } else { "" };
        let what = format!("has the column {name} as a generated one");
        let fix = format!("DROP COLUMN {name}, ADD COLUMN {name} {kind}{null}");
        return vec![(what, fix)];
    }
    if column.r#type != kind {
        let what = format!("has the column {name} as {}", column.r#type);
        faults.push((what, format!("ALTER COLUMN {name} TYPE {kind}")));
    }
    if column.not_null != not_null {
        let (what, verb) = match not_null {
            true => ("takes", "SET"),
            false => ("refuses", "DROP"),
        };
        let what = format!("{what} null in the column {name}");
        faults.push((what, format!("ALTER COLUMN {name} {verb} NOT NULL")));
    }
    if name == "name" && !column.deterministic {
        let what = "takes different names for the same".to_owned();
        let fix = "ALTER COLUMN name TYPE text COLLATE \"C\"";
        faults.push((what, fix.to_owned()));
    }
    if name == "name" && !column.is_key {
        let what = "has no key on name alone".to_owned();
        faults.push((what, "ADD PRIMARY KEY (name)".to_owned()));
    }
    faults
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

    /// No test may switch these off for a whole server.
    #[test]
    fn settings_that_let_a_crash_forget_are_warned_of() {
        let found = Found {
            in_recovery: false,
            read_only: false,
            user: "app".to_owned(),
            fsync: false,
            full_page_writes: true,
            is_table: Some(true),
            persistence: Some("p".to_owned()),
            row_security: Some(false),
            closed_schema: None,
            missing_rights: Vec::new(),
            triggers: Vec::new(),
        };
        let warnings = found.warnings(&Table::default());
        let texts: Vec<_> = warnings.iter().map(Finding::to_string).collect();
        let text = "fsync is off, so that a crash may forget who holds what: \
                    ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf()";
        assert_eq!(texts, [text]);
        let found = Found {
            fsync: true,
            full_page_writes: false,
            ..found
        };
        let warnings = found.warnings(&Table::default());
        assert!(warnings[0].what.starts_with("full_page_writes is off"));
        assert_eq!(warnings.len(), 1);
    }
}
