//! A grant, rehearsed.

use distlock_api::{ErrorKind, Finding, Token};
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::new_table;
use crate::error;
use crate::schema::Table;
use crate::statements::code;

/// Takes a lock that nobody can have and takes the grant back: the server tells what no look at the table does, such as a
/// trigger that refuses.
pub(super) async fn rehearse(
    connection: &mut MySqlConnection,
    table: &Table,
) -> sqlx::Result<Option<Finding>> {
    let rehearsal = sqlx::raw_sql(AssertSqlSafe(script(table)));
    let what = match rehearsal.fetch_all(&mut *connection).await {
        Ok(kept) if !kept.is_empty() => return Ok(None),
        Ok(_) => format!("{table} does not keep what a grant writes"),
        Err(error) => {
            let ended = sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await;
            let (kind, _) = error::meaning(&error);
            if let ErrorKind::Timeout | ErrorKind::Unavailable = kind {
                return Err(error);
            }
            ended?;
            format!("{table} refuses a grant ({error})")
        }
    };
    Ok(Some(Finding::fault(
        ErrorKind::Config,
        what,
        new_table(table),
    )))
}

/// The statements that grant a lock, in one message. The name begins with a blank, as no lock's can, and is another each
/// time, so that those who start at once do not wait for each other.
fn script(table: &Table) -> String {
    let random = u128::from_be_bytes(*Token::random().as_bytes());
    let random = format!("{random:032x}");
    let (name, token) = (format!("' rehearsal {random}'"), format!("X'{random}'"));
    let (name, token, owner, lease) = (&*name, &*token, "'rehearsal'", "60000000");
    let insert = filled(
        include_str!("../statements/insert.sql"),
        &[name, lease, owner, token, "NULL"],
    );
    let acquire = filled(
        include_str!("../statements/acquire.sql"),
        &[lease, owner, token, "1", name, token, token, "1"],
    );
    filled(
        include_str!("../statements/check_grant.sql"),
        &[name, token],
    )
    .replace("{insert}", &insert)
    .replace("{acquire}", &acquire)
    .replace("{table}", &table.to_string())
}

/// With these in the places of its parameters, before the table's name, which may have a question mark, is put in.
fn filled(template: &str, values: &[&str]) -> String {
    let put = |sql: String, value: &&str| sql.replacen('?', value, 1);
    values.iter().fold(code(template), put)
}
