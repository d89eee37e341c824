use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;

use super::{Request, Statements};
use crate::session::Session;

/// Deletes some records of locks that have been free for long, and says how many.
pub(crate) struct Purge(pub(crate) Duration);

impl Purge {
    /// How many at most, so that one statement stays far below its time limit.
    pub(crate) const BATCH: u64 = 10_000;

    /// 200 years: PostgreSQL's times go back that far, and no record does.
    const LONGEST: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);
}

impl Request for Purge {
    type Answer = u64;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Taking;

    async fn send(&self, statements: &Statements, session: &mut Session) -> sqlx::Result<u64> {
        let longest = micros::up(self.0.min(Self::LONGEST));
        let values = [longest.into(), (Self::BATCH as i64).into()];
        let deleted: Vec<(i64,)> = session.ask(&statements.purge, &values).await?;
        Ok(deleted.iter().map(|(count,)| count.unsigned_abs()).sum())
    }
}
