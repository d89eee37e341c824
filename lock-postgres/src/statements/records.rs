use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{Effect, LockName, LockRecord, LockState};

use super::{Request, Statements, damaged, fencing_token};
use crate::session::Session;
use crate::value::Value;

/// Reads the record of one lock, or of all. A replica and a role that may only read can be asked, too.
pub(crate) struct Records<'a>(pub(crate) Option<&'a LockName>);

/// The columns of `records.sql`.
type Row = (
    String,
    Option<i64>,
    Option<i64>,
    i64,
    String,
    i64,
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
        session: &mut Session,
    ) -> sqlx::Result<Vec<LockRecord>> {
        let values = [Value::Text(self.0.map(LockName::as_str))];
        let rows: Vec<Row> = session.ask(&statements.records, &values).await?;
        rows.into_iter().map(record).collect()
    }
}

fn record(row: Row) -> sqlx::Result<LockRecord> {
    let (name, lock_until, locked_at, left, locked_by, fence, last_tick, resting) = row;
    let name = LockName::new(&name).map_err(|_| {
        damaged(
            &name,
            "is no lock's, because that is no lock name",
            Effect::None,
        )
    })?;
    let fence = fencing_token(name.as_str(), fence, Effect::None)?;
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
    record.fencing_token = Some(fence);
    record.last_tick = last_tick;
    Ok(record)
}
