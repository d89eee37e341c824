use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{AcquireRequest, Attempt, FencingToken, Held};
use sqlx::MySqlConnection;

use super::holder::Holder;
use super::{Request, Statements, safe};

/// Tries to take a lock.
pub(crate) struct Acquire<'a>(pub(crate) &'a AcquireRequest);

impl Request for Acquire<'_> {
    type Answer = Attempt;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Taking;

    /// Nobody waits for a grant longer than its lease.
    fn patience(&self, limit: Duration) -> Duration {
        limit.min(self.0.lease) / 2
    }

    /// One statement for a grant, two for a refusal, three for a new name. A second round follows where the first met
    /// somebody else's change: the statement's clock stands still while it waits for the row, so that a lock which was
    /// freed meanwhile was refused.
    async fn send(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<Attempt> {
        let mut duplicate = None;
        for _ in 0..2 {
            if let Some(granted) = self.update(statements, connection).await? {
                return Ok(granted);
            }
            let holder = Holder::read(statements, connection, &self.0.name).await?;
            if let Some(holder) = holder {
                if let Some(refusal) = self.refusal(holder) {
                    return Ok(refusal);
                }
            } else if let Some(error) = duplicate {
                // Twice no such name, and once a duplicate of it: another key of the table is in the way.
                return Err(error);
            } else {
                match self.insert(statements, connection).await {
                    Err(error) if is_duplicate(&error) => duplicate = Some(error),
                    inserted => return inserted,
                }
            }
        }
        // It changed hands under both rounds, so that we do not know who has it.
        Ok(Attempt::Held(Held::default()))
    }
}

impl Acquire<'_> {
    async fn update(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<Option<Attempt>> {
        let Self(request) = self;
        let token = request.token.as_bytes().as_slice();
        let done = sqlx::query(safe(&statements.acquire))
            .bind(micros::up(request.lease))
            .bind(&*request.owner)
            .bind(token)
            .bind(request.tick)
            .bind(request.name.as_str())
            .bind(token)
            .bind(token)
            .bind(request.tick)
            .execute(connection)
            .await?;
        Ok((done.rows_affected() > 0).then(|| acquired(done.last_insert_id())))
    }

    async fn insert(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<Attempt> {
        let Self(request) = self;
        let done = sqlx::query(safe(&statements.insert))
            .bind(request.name.as_str())
            .bind(micros::up(request.lease))
            .bind(&*request.owner)
            .bind(request.token.as_bytes().as_slice())
            .bind(request.tick)
            .execute(connection)
            .await?;
        Ok(acquired(done.last_insert_id()))
    }

    /// What the row says; `None` where it does not explain the refusal, so that it was changed since.
    fn refusal(&self, holder: Holder) -> Option<Attempt> {
        let Self(request) = self;
        let is_ours = holder.has(&request.token) && !holder.is_resting;
        if is_ours && holder.is_in_force() {
            return None;
        }
        // Ticks only grow: a refusal by an outdated row stands.
        if let (Some(tick), Some(last)) = (request.tick, holder.last_tick)
            && tick <= last
        {
            return Some(Attempt::TickDone { last });
        }
        match (holder.is_in_force(), holder.has(&request.token)) {
            (true, _) => Some(Attempt::Held(holder.held())),
            // Our own lease is over.
            (false, true) => Some(Attempt::Held(Held::default())),
            (false, false) => None,
        }
    }
}

fn acquired(fence: u64) -> Attempt {
    Attempt::Acquired {
        fencing_token: Some(FencingToken::new(fence)),
    }
}

fn is_duplicate(error: &sqlx::Error) -> bool {
    let server = error.as_database_error();
    server.is_some_and(|server| server.is_unique_violation())
}
