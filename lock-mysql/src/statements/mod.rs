//! The statements, one SQL file each, and what their answers mean.

mod acquire;
mod force_release;
mod holder;
mod purge;
mod records;
mod release;
mod renew;

use std::sync::Arc;
use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::{Effect, Error, ErrorKind};
use sqlx::{AssertSqlSafe, MySqlConnection};

pub(crate) use acquire::Acquire;
pub(crate) use force_release::Forced;
pub(crate) use purge::Purge;
pub(crate) use records::Records;
pub(crate) use release::Released;
pub(crate) use renew::Renew;

use crate::schema::Table;

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
        connection: &mut MySqlConnection,
    ) -> impl Future<Output = sqlx::Result<Self::Answer>> + Send;
}

/// The texts for one table. The table's quoted name is the only thing that is put into them.
pub(crate) struct Statements {
    acquire: Arc<str>,
    insert: Arc<str>,
    holder: Arc<str>,
    renew: renew::Texts,
    release: Arc<str>,
    force_release: Arc<str>,
    record: Arc<str>,
    records: Arc<str>,
    purge: Arc<str>,
}

impl Statements {
    pub(crate) fn new(table: &Table) -> Self {
        let text = |template: &str| text(template, table).into();
        let records = |filter: &str| text(&include_str!("records.sql").replace("{where}", filter));
        Self {
            acquire: text(include_str!("acquire.sql")),
            insert: text(include_str!("insert.sql")),
            holder: text(include_str!("holder.sql")),
            renew: renew::Texts::new(table),
            release: text(include_str!("release.sql")),
            force_release: text(include_str!("force_release.sql")),
            record: records("WHERE name = ?"),
            records: records(""),
            purge: text(include_str!("purge.sql")),
        }
    }
}

/// A template for one table.
pub(crate) fn text(template: &str, table: &Table) -> String {
    code(template).replace("{table}", &table.to_string())
}

/// A template without the comments: they are for readers of the files.
pub(crate) fn code(template: &str) -> String {
    let lines = template.lines().map(str::trim);
    let code = lines.filter(|line| !line.starts_with("--") && !line.is_empty());
    let code: Vec<_> = code.collect();
    code.join(" ")
}

/// A text that was made here, of nothing but a template and the quoted table.
fn safe(text: &Arc<str>) -> AssertSqlSafe<Arc<str>> {
    AssertSqlSafe(Arc::clone(text))
}

/// A row that somebody made by hand, and wrongly.
fn damaged(name: &str, what: &str) -> sqlx::Error {
    let name = name.escape_debug();
    let text = format!("the row with the name \"{name}\" {what}: correct or delete it");
    let error = Error::new(ErrorKind::Config, text).with_effect(Effect::None);
    sqlx::Error::Decode(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let table = Table::new("a{table}b").unwrap();
        let texts = Statements::new(&table);
        for text in [&texts.acquire, &texts.record, &texts.records, &texts.purge] {
            assert!(text.contains("`a{table}b`"), "{text}");
            assert!(!text.contains("--") && !text.contains("{where}"), "{text}");
        }
    }
}
