use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;
use sqlx::MySqlConnection;

use super::{Request, Statements, safe};

/// Deletes some records of locks that have been free for long, and says how many.
pub(crate) struct Purge(pub(crate) Duration);

impl Purge {
    /// How many at most, so that one statement stays far below its time limit.
    pub(crate) const BATCH: u64 = 10_000;

    /// 200 years: the servers' times go back that far, and no record does.
    const LONGEST: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);
}

impl Request for Purge {
    type Answer = u64;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Taking;

    async fn send(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<u64> {
        let done = sqlx::query(safe(&statements.purge))
            .bind(-micros::up(self.0.min(Self::LONGEST)))
            .bind(Self::BATCH)
            .execute(connection)
            .await?;
        Ok(done.rows_affected())
    }
}
