use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::{AcquireRequest, Attempt, Effect, Held};

use super::{Request, Statements, fencing_token, micros, remaining};
use crate::session::Session;
use crate::value::Value;

/// Tries to take a lock.
pub(crate) struct Acquire<'a>(pub(crate) &'a AcquireRequest);

/// The columns of `acquire.sql`: the fencing token if granted, else the record.
type Row = (Option<i64>, Option<String>, Option<i64>, bool, Option<i64>);

impl Request for Acquire<'_> {
    type Answer = Attempt;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Taking;

    /// Nobody waits for a grant longer than its lease.
    fn patience(&self, limit: Duration) -> Duration {
        limit.min(self.0.lease) / 2
    }

    /// One statement, as a rule. A second try follows where the first met somebody else's change and so knows no
    /// holder, and a name that is unknown is inserted.
    async fn send(&self, statements: &Statements, session: &mut Session) -> sqlx::Result<Attempt> {
        for _ in 0..2 {
            let answer = match self.update(statements, session).await? {
                Some(row) => self.read(row)?,
                None => self.insert(statements, session).await?,
            };
            if let Some(attempt) = answer {
                return Ok(attempt);
            }
        }
        // It changed hands under both tries, so that we do not know who has it; or our own lease is over.
        Ok(Attempt::Held(Held::default()))
    }
}

impl Acquire<'_> {
    async fn update(
        &self,
        statements: &Statements,
        session: &mut Session,
    ) -> sqlx::Result<Option<Row>> {
        let rows = session.ask(&statements.acquire, &self.values()).await?;
        Ok(rows.into_iter().next())
    }

    async fn insert(
        &self,
        statements: &Statements,
        session: &mut Session,
    ) -> sqlx::Result<Option<Attempt>> {
        let fence: Vec<(i64,)> = session.ask(&statements.insert, &self.values()).await?;
        fence
            .first()
            .map(|(fence,)| self.acquired(*fence))
            .transpose()
    }

    fn values(&self) -> [Value<'_>; 5] {
        let Self(request) = self;
        [
            request.name.as_str().into(),
            request.token.as_bytes().into(),
            (&*request.owner).into(),
            micros(request.lease).into(),
            Value::Bigint(request.tick),
        ]
    }

    /// What the row says; `None` if it is out of date, or our own.
    fn read(&self, (granted, by, left, resting, last_tick): Row) -> sqlx::Result<Option<Attempt>> {
        if let Some(fence) = granted {
            return self.acquired(fence).map(Some);
        }
        // Ticks only grow: a refusal by an outdated row stands.
        if let (Some(tick), Some(last)) = (self.0.tick, last_tick)
            && tick <= last
        {
            return Ok(Some(Attempt::TickDone { last }));
        }
        Ok(left.map(|left| {
            Attempt::Held(Held {
                by,
                remaining: Some(remaining(left)),
                resting,
            })
        }))
    }

    fn acquired(&self, fence: i64) -> sqlx::Result<Attempt> {
        Ok(Attempt::Acquired {
            fencing_token: Some(fencing_token(self.0.name.as_str(), fence, Effect::Unknown)?),
        })
    }
}
