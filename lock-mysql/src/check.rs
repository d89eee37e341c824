//! The start-up check: whether the store can be used as it is. It touches no lock.

mod columns;
mod grant;
mod settings;

use distlock_api::{ErrorKind, Finding, Findings, Severity};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, FromRow, MySqlConnection};

use crate::error;
use crate::schema::{Table, quoted};
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
    let seen = match tried.is_missing {
        true => None,
        false => check_table(connection, table).await?,
    };
    let is_seen = seen.is_some();
    found.extend(seen.unwrap_or_default());
    found.extend(tried.findings(connection, table, is_seen, &found).await?);
    if !found.iter().any(is_fault) {
        found.extend(grant::rehearse(connection, table).await?);
    }
    let (faults, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(is_fault);
    Ok(faults.into_iter().chain(warnings).collect())
}

fn is_fault(finding: &Finding) -> bool {
    finding.severity == Severity::Fault
}

/// What mends every table of the wrong shape. Changes of its columns could fail for what is in it, or let locks go
/// unseen: a `timestamp` becomes a `datetime` in the time zone of whoever changes it.
fn new_table(table: &Table) -> String {
    let schema = table.schema().map(|schema| quoted(schema) + ".");
    let schema = schema.unwrap_or_default();
    let room = Table::MAX_CHARS - "_old".len();
    let old: String = table.name().chars().take(room).collect();
    let old = quoted(&format!("{old}_old"));
    format!(
        "RENAME TABLE {table} TO {schema}{old}\n\
         then run `distlock migrate --store URL`, or call migrate() \
         (stop the jobs first: locks held in it are let go; any name that is free will do for the old one)"
    )
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
        is_seen: bool,
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
            let grant = format!("GRANT {rights} ON {table} TO {account}");
            found.push(Finding::fault(
                ErrorKind::Denied,
                format!("{account} has no right to {rights} on {table}"),
                match is_seen {
                    true => grant,
                    // Nor is it said whether there is one, and a right on none cannot be granted.
                    false => format!("migrate with an account that may CREATE, unless the table is there\n{grant}"),
                },
            ));
        }
        // Most likely a consequence of what was found already.
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
    let quoted = |text: &str| format!("'{}'", text.replace('\\', r"\\").replace('\'', "''"));
    Ok(format!("{}@{}", quoted(user), quoted(host)))
}

/// The table itself, or nothing where we may not see it.
async fn check_table(
    connection: &mut MySqlConnection,
    table: &Table,
) -> sqlx::Result<Option<Findings>> {
    let seen = include_str!("statements/check_table.sql");
    let seen: Vec<(String, String, bool)> = rows(connection, table, seen).await?;
    let Some((kind, engine, may_lack_a_partition)) = seen.into_iter().next() else {
        return Ok(None);
    };
    if kind != "BASE TABLE" {
        let what = format!("{table} is no table");
        let fix = "drop it, or choose another lock_table";
        let fault = Finding::fault(ErrorKind::Config, what, fix);
        return Ok(Some(fault.into()));
    }
    let mut found = Findings::default();
    if !engine.eq_ignore_ascii_case("InnoDB") {
        found.push(Finding::fault(
            ErrorKind::Config,
            format!("{table} is kept by {engine}, which may forget who holds what in a crash"),
            format!("ALTER TABLE {table} ENGINE = InnoDB"),
        ));
    }
    if may_lack_a_partition {
        let what = format!("{table} has partitions by name that may leave a lock out");
        found.push(Finding::fault(ErrorKind::Config, what, new_table(table)));
    }
    found.extend(columns::check(connection, table).await?);
    found.extend(check_triggers(connection, table).await?);
    Ok(Some(found))
}

async fn check_triggers(connection: &mut MySqlConnection, table: &Table) -> sqlx::Result<Findings> {
    let triggers = include_str!("statements/check_triggers.sql");
    let triggers: Vec<(String,)> = rows(connection, table, triggers).await?;
    let schema = table.schema().map(|schema| quoted(schema) + ".");
    let schema = schema.unwrap_or_default();
    let warning = |(trigger,): &(String,)| {
        let trigger = quoted(trigger);
        Finding::warning(
            format!(
                "{table} has the trigger {trigger}, which takes part in lock statements and can make them fail"
            ),
            format!("DROP TRIGGER {schema}{trigger}\nunless you know that it does no harm"),
        )
    };
    Ok(triggers.iter().map(warning).collect())
}

/// What a statement of the check says of the table.
async fn rows<R>(
    connection: &mut MySqlConnection,
    table: &Table,
    statement: &'static str,
) -> sqlx::Result<Vec<R>>
where
    R: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
{
    sqlx::query_as(statement)
        .bind(table.schema())
        .bind(table.name())
        .persistent(false)
        .fetch_all(connection)
        .await
}
