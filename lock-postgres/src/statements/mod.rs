//! The statements, one SQL file each, and what their answers mean.

mod acquire;
mod force_release;
mod purge;
mod records;
mod release;
mod renew;

use std::sync::Arc;
use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::{Effect, Error, ErrorKind, FencingToken};

pub(crate) use acquire::{Acquire, rehearse};
pub(crate) use force_release::Forced;
pub(crate) use purge::Purge;
pub(crate) use records::Records;
pub(crate) use release::Released;
pub(crate) use renew::Renew;

use crate::schema::Table;
use crate::session::Session;

/// One thing to ask of the server, in one statement or a few that each stand alone.
///
/// It may be sent again as a whole after the server rolled it back or the connection broke.
pub(crate) trait Request: Sync {
    /// What the server says.
    type Answer: Send;

    /// Whether the store must have been found usable before.
    const CHECKED: bool;

    /// Whose place it takes.
    const LANE: Lane;

    /// How long it may wait for a connection where a call may take `limit`: not so long that it is sent for a caller
    /// who has given up.
    fn patience(&self, limit: Duration) -> Duration {
        limit / 2
    }

    /// Sends it and waits for the answer.
    fn send(
        &self,
        statements: &Statements,
        session: &mut Session,
    ) -> impl Future<Output = sqlx::Result<Self::Answer>> + Send;
}

/// The texts for one table. The table's quoted name is the only thing that is put into them.
pub(crate) struct Statements {
    acquire: Arc<str>,
    insert: Arc<str>,
    renew: Arc<str>,
    release: Arc<str>,
    force_release: Arc<str>,
    records: Arc<str>,
    purge: Arc<str>,
    pub(crate) check_table: Arc<str>,
    pub(crate) check_columns: Arc<str>,
    pub(crate) check_obstacles: Arc<str>,
}

impl Statements {
    pub(crate) fn new(table: &Table) -> Self {
        let text = |template| statement(template, table).into();
        Self {
            acquire: text(include_str!("acquire.sql")),
            insert: text(include_str!("insert.sql")),
            renew: text(include_str!("renew.sql")),
            release: text(include_str!("release.sql")),
            force_release: text(include_str!("force_release.sql")),
            records: text(include_str!("records.sql")),
            purge: text(include_str!("purge.sql")),
            check_table: text(include_str!("check_table.sql")),
            check_columns: text(include_str!("check_columns.sql")),
            check_obstacles: text(include_str!("check_obstacles.sql")),
        }
    }
}

/// The text of a file for one table.
pub(crate) fn statement(template: &str, table: &Table) -> String {
    without_comments(template).replace("{table}", &table.to_string())
}

/// Comments are for readers of the files; the server is spared them.
fn without_comments(sql: &str) -> String {
    let lines = sql.lines().map(str::trim);
    let code: Vec<_> = lines.filter(|line| !line.starts_with("--")).collect();
    code.join(" ")
}

/// A stored fencing token; `effect` is what the statement that read it may have had.
fn fencing_token(name: &str, fence: i64, effect: Effect) -> sqlx::Result<FencingToken> {
    match u64::try_from(fence) {
        Ok(fence) => Ok(FencingToken::new(fence)),
        Err(_) => Err(damaged(name, "has a negative fence", effect)),
    }
}

/// A row that somebody made by hand, and wrongly.
fn damaged(name: &str, what: &str, effect: Effect) -> sqlx::Error {
    let name = name.escape_debug();
    let text = format!("the row with the name \"{name}\" {what}: correct or delete it");
    sqlx::Error::Decode(
        Error::new(ErrorKind::Config, text)
            .with_effect(effect)
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let table = Table::new("a{table}b").unwrap();
        let texts = Statements::new(&table);
        for text in [&texts.acquire, &texts.renew, &texts.purge] {
            assert!(text.contains(r#""a{table}b""#), "{text}");
            assert!(!text.contains("--"), "{text}");
        }
    }
}
