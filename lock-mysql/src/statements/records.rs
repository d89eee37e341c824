use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{FencingToken, LockName, LockRecord, LockState};
use sqlx::MySqlConnection;

use super::{Request, Statements, damaged, safe};

/// Reads the record of one lock, or of all. A replica and a user who may only read can be asked, too.
pub(crate) struct Records<'a>(pub(crate) Option<&'a LockName>);

/// The columns of `records.sql`.
type Row = (
    String,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    String,
    u64,
    Option<i64>,
    bool,
);

impl Request for Records<'_> {
    type Answer = Vec<LockRecord>;
    const CHECKED: bool = false;
    const LANE: Lane = Lane::Taking;

    async fn send(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<Vec<LockRecord>> {
        let query = match self.0 {
            Some(name) => sqlx::query_as(safe(&statements.record)).bind(name.as_str()),
            None => sqlx::query_as(safe(&statements.records)),
        };
        let rows: Vec<Row> = query.fetch_all(connection).await?;
        rows.into_iter().map(record).collect()
    }
}

fn record(row: Row) -> sqlx::Result<LockRecord> {
    let (name, lock_until, locked_at, left, locked_by, fence, last_tick, resting) = row;
    let name = LockName::new(&name)
        .map_err(|_| damaged(&name, "is no lock's, because that is no lock name"))?;
    let left = left.unwrap_or(0);
    let mut record = LockRecord::new(name);
    record.state = match (left > 0, resting) {
        (false, _) => LockState::Free,
        (true, true) => LockState::Resting,
        (true, false) => LockState::Held,
    };
    record.owner = Some(locked_by);
    record.locked_at = locked_at.and_then(micros::instant);
    record.lock_until = lock_until.and_then(micros::instant);
    record.remaining = micros::remaining(left);
    record.fencing_token = Some(FencingToken::new(fence));
    record.last_tick = last_tick;
    Ok(record)
}
