//! The start-up check: whether the store can be used as it is. It touches no lock.

mod columns;
mod settings;

use distlock_api::{ErrorKind, Finding, Findings, Severity};
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::error;
use crate::schema::Table;
use crate::statements::text;

/// What is tried where it can do no harm, because no row fits: so we have the rights of roles, too.
const TRIALS: [(&str, &str); 3] = [
    (
        "SELECT",
        "SELECT name, lock_until, locked_at, locked_by, token, fence, last_tick, resting FROM {table} WHERE FALSE",
    ),
    (
        "INSERT",
        "INSERT INTO {table} (name, lock_until, locked_at, locked_by, token, fence, last_tick, resting) \
         SELECT '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), '', '', 0, 0, 0 FROM DUAL WHERE FALSE",
    ),
    (
        "UPDATE",
        "UPDATE {table} SET lock_until = UTC_TIMESTAMP(6), locked_at = UTC_TIMESTAMP(6), locked_by = '', token = '', \
         fence = 0, last_tick = 0, resting = 0 WHERE FALSE",
    ),
];

/// Everything that can be seen at once, faults first. An error tells that the store could not be looked at.
pub(crate) async fn check(
    connection: &mut MySqlConnection,
    table: &Table,
) -> sqlx::Result<Findings> {
    let mut found = settings::check(connection).await?;
    let tried = try_all(connection, table).await?;
    if !tried.is_missing {
        found.extend(check_table(connection, table).await?);
    }
    found.extend(tried.findings(connection, table, &found).await?);
    let (faults, warnings): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|finding| finding.severity == Severity::Fault);
    Ok(faults.into_iter().chain(warnings).collect())
}

/// How the trials ended.
#[derive(Default)]
struct Tried {
    is_missing: bool,
    denied: Vec<&'static str>,
    read_only: bool,
    other: Option<sqlx::Error>,
}

async fn try_all(connection: &mut MySqlConnection, table: &Table) -> sqlx::Result<Tried> {
    let mut tried = Tried::default();
    for (right, statement) in TRIALS {
        let statement = AssertSqlSafe(text(statement, table));
        let Err(error) = sqlx::raw_sql(statement).execute(&mut *connection).await else {
            continue;
        };
        if error::is_unknown_schema(&error) && table.schema().is_some() {
            tried.is_missing = true;
            break;
        }
        match error::meaning(&error).0 {
            ErrorKind::SchemaMissing => {
                tried.is_missing = true;
                break;
            }
            ErrorKind::Denied => tried.denied.push(right),
            ErrorKind::ReadOnly => tried.read_only = true,
            ErrorKind::Timeout | ErrorKind::Unavailable => return Err(error),
            _ => tried.other = Some(error),
        }
    }
    Ok(tried)
}

impl Tried {
    async fn findings(
        self,
        connection: &mut MySqlConnection,
        table: &Table,
        others: &Findings,
    ) -> sqlx::Result<Findings> {
        let mut found = Findings::default();
        if self.is_missing {
            found.push(Finding::fault(
                ErrorKind::SchemaMissing,
                format!("the table {table} is missing"),
                "run `distlock migrate --store URL`, call migrate(), or apply what `distlock schema --for mysql` prints",
            ));
        }
        if self.read_only {
            found.push(Finding::fault(
                ErrorKind::ReadOnly,
                "the server takes no writes from us",
                "point the URL at the primary, or lift read_only and super_read_only",
            ));
        }
        if !self.denied.is_empty() {
            let (rights, account) = (self.denied.join(", "), account(connection).await?);
            found.push(Finding::fault(
                ErrorKind::Denied,
                format!("{account} has no right to {rights} on {table}"),
                format!("GRANT {rights} ON {table} TO {account}"),
            ));
        }
        // Most likely a consequence of what was found already.
        let is_fault = |finding: &Finding| finding.severity == Severity::Fault;
        match self.other {
            Some(error) if !others.iter().any(is_fault) => {
                let what = format!("{table} cannot be used ({error})");
                let (kind, fix) = error::meaning(&error);
                found.push(Finding::fault(kind, what, fix));
            }
            _ => {}
        }
        Ok(found)
    }
}

/// As `GRANT` wants it.
async fn account(connection: &mut MySqlConnection) -> sqlx::Result<String> {
    let account = sqlx::query_scalar("SELECT CAST(CURRENT_USER() AS CHAR)").persistent(false);
    let account: String = account.fetch_one(connection).await?;
    let (user, host) = account.rsplit_once('@').unwrap_or((&account, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    Ok(format!("{}@{}", quoted(user), quoted(host)))
}

/// The table itself, as far as we may see it.
async fn check_table(connection: &mut MySqlConnection, table: &Table) -> sqlx::Result<Findings> {
    let row = sqlx::query(include_str!("statements/check_table.sql"))
        .bind(table.schema())
        .bind(table.name())
        .persistent(false)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        return Ok(Findings::default());
    };
    let (kind, engine): (String, String) = (row.try_get("kind")?, row.try_get("engine")?);
    let triggers: i64 = row.try_get("triggers")?;
    if kind != "BASE TABLE" {
        let what = format!("{table} is no table");
        let fix = "drop it, or choose another lock_table";
        return Ok(Finding::fault(ErrorKind::Config, what, fix).into());
    }
    let mut found = Findings::default();
    if !engine.eq_ignore_ascii_case("InnoDB") {
        found.push(Finding::fault(
            ErrorKind::Config,
            format!("{table} is kept by {engine}, which may forget who holds what in a crash"),
            format!("ALTER TABLE {table} ENGINE = InnoDB"),
        ));
    }
    if triggers > 0 {
        found.push(Finding::warning(
            format!("{table} has a trigger, which takes part in every lock statement and can make it fail"),
            "SHOW TRIGGERS, and DROP TRIGGER",
        ));
    }
    found.extend(columns::check(connection, table).await?);
    Ok(found)
}
