//! The check: whether the store can be used as it is, and what weakens its promises. It touches no lock:
//! what it takes to see whether one can be had has a name that none can have, and is undone.

use distlock_api::{ErrorKind, Finding, Findings};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};

use crate::error;
use crate::schema::{Table, quoted};
use crate::session::Session;
use crate::statements::{Statements, rehearse};
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

/// All that is to be seen, faults first. Three statements, and a rehearsal where they find no fault; an error tells that
/// they failed.
pub(crate) async fn check(
    session: &mut Session,
    statements: &Statements,
    table: &Table,
) -> sqlx::Result<Findings> {
    let name = table.to_string();
    let schema = table.quoted_schema();
    let values = [
        Value::from(&*name),
        Value::Text(table.bare_name()),
        Value::Text(schema.as_deref()),
    ];
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
        findings.extend(
            obstacles
                .iter()
                .map(|obstacle| obstacle_fault(table, obstacle)),
        );
        let columns: Vec<Column> = session.ask(&statements.check_columns, &values[..1]).await?;
        findings.extend(column_faults(table, &columns));
    }
    if findings.is_empty() {
        findings.extend(rehearsal_fault(session, statements, table).await?);
    }
    findings.extend(found.warnings(table));
    Ok(findings)
}

/// The row of `check_table.sql`.
#[derive(Clone)]
struct Found {
    in_recovery: bool,
    read_only: bool,
    /// The statement that lets sessions write, if one does.
    lifted: Option<String>,
    user: String,
    fsync: bool,
    full_page_writes: bool,
    /// `None` where nothing has that name.
    is_table: Option<bool>,
    partitioned: Option<bool>,
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
            lifted: row.try_get("lifted")?,
            user: row.try_get("user")?,
            fsync: row.try_get("fsync")?,
            full_page_writes: row.try_get("full_page_writes")?,
            is_table: row.try_get("is_table")?,
            partitioned: row.try_get("partitioned")?,
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
            let lift = "lift default_transaction_read_only";
            (what, self.lifted.as_deref().unwrap_or(lift))
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
        if self.partitioned == Some(true) {
            let what = format!("{table} is partitioned, so that a lock may find no partition");
            faults.push(Finding::fault(ErrorKind::Config, what, anew(table)));
        }
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
                let fix = format!("ALTER SYSTEM SET {setting} = on\nSELECT pg_reload_conf()");
                warnings.push(Finding::warning(what, fix));
            }
        }
        for trigger in &self.triggers {
            let trigger = quoted(trigger);
            let what =
                format!("{table} has the trigger {trigger}, which may change what is written");
            let fix = format!(
                "DROP TRIGGER {trigger} ON {table}\nor leave it, if you know that it does no harm"
            );
            warnings.push(Finding::warning(what, fix));
        }
        warnings
    }
}

/// A row of `check_obstacles.sql`: the name, what it is, and the schema of an index that is no constraint's.
type Obstacle = (String, String, Option<String>);

/// A value that one of these refuses would be a lock that is refused.
fn obstacle_fault(table: &Table, (name, kind, schema): &Obstacle) -> Finding {
    let name = quoted(name);
    let fix = match schema {
        Some(schema) => format!("DROP INDEX {}.{name}", quoted(schema)),
        None if kind == "rule" => format!("DROP RULE {name} ON {table}"),
        None => format!("ALTER TABLE {table} DROP CONSTRAINT {name}"),
    };
    let what = format!("{table} has the {kind} {name} that can refuse a lock");
    Finding::fault(ErrorKind::Config, what, fix)
}

/// How a table of the wrong shape is replaced. To change it would depend on its rows, and on the time zone of whoever
/// does it.
fn anew(table: &Table) -> String {
    format!(
        "ALTER TABLE {table} RENAME TO {}\n\
         distlock migrate --store URL (stop the jobs first: locks held in it are let go; any name that is free will do \
         for the old one)",
        table.name_of_old()
    )
}

/// Whatever else keeps a lock from being had, found by taking one and undoing it.
async fn rehearsal_fault(
    session: &mut Session,
    statements: &Statements,
    table: &Table,
) -> sqlx::Result<Option<Finding>> {
    let (kind, what) = match rehearse(statements, session).await {
        Ok(true) => return Ok(None),
        Ok(false) => (
            ErrorKind::Config,
            format!("{table} does not keep what a lock writes"),
        ),
        Err(error) => match error::refusal(&error) {
            Some((kind, text)) => (kind, format!("{table} refuses a lock: {text}")),
            None => return Err(error),
        },
    };
    Ok(Some(Finding::fault(kind, what, anew(table))))
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

/// All that is wrong with the columns.
fn column_faults(table: &Table, columns: &[Column]) -> Vec<Finding> {
    let mut faults = Vec::new();
    for (name, kind, not_null) in COLUMNS {
        match columns.iter().find(|column| column.name == name) {
            Some(column) => faults.extend(unfit(column, kind, not_null)),
            None => faults.push(format!("has no column {name}")),
        }
    }
    let further = columns.iter().filter(|column| !column.is_wanted());
    faults.extend(further.filter_map(strange));
    let finding = |what| Finding::fault(ErrorKind::Config, format!("{table} {what}"), anew(table));
    faults.into_iter().map(finding).collect()
}

/// What is wrong with a column that we do not know.
fn strange(column: &Column) -> Option<String> {
    let name = quoted(&column.name);
    if column.is_generated {
        return Some(format!(
            "has the generated column {name} that can refuse a lock"
        ));
    }
    (column.not_null && !column.has_default)
        .then(|| format!("has a further column {name} that refuses null"))
}

/// What is wrong with a column of ours.
fn unfit(column: &Column, kind: &str, not_null: bool) -> Vec<String> {
    let name = &column.name;
    let mut faults = Vec::new();
    if column.is_generated {
        faults.push(format!("has the column {name} as a generated one"));
    }
    if column.r#type != kind {
        faults.push(format!("has the column {name} as {}", column.r#type));
    }
    if column.not_null != not_null {
        let verb = if not_null { "takes" } else { "refuses" };
        faults.push(format!("{verb} null in the column {name}"));
    }
    if name == "name" && !column.deterministic {
        faults.push("takes different names for the same".to_owned());
    }
    if name == "name" && !column.is_key {
        faults.push("has no key on name alone".to_owned());
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
            lifted: None,
            user: "app".to_owned(),
            fsync: false,
            full_page_writes: true,
            is_table: Some(true),
            partitioned: Some(false),
            persistence: Some("p".to_owned()),
            row_security: Some(false),
            closed_schema: None,
            missing_rights: Vec::new(),
            triggers: Vec::new(),
        };
        let warnings = found.warnings(&Table::default());
        let texts: Vec<_> = warnings.iter().map(Finding::to_string).collect();
        let text = "fsync is off, so that a crash may forget who holds what: \
                    ALTER SYSTEM SET fsync = on\nSELECT pg_reload_conf()";
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
