use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{AcquireRequest, Attempt, Effect, Held, Token};

use sqlx::Row as _;

use super::{Request, Statements, fencing_token};
use crate::session::Session;
use crate::value::{Value, filled};

/// Tries to take a lock.
pub(crate) struct Acquire<'a>(pub(crate) &'a AcquireRequest);

/// The columns of `acquire.sql`: the fencing token if granted, else the record.
type Row = (Option<i64>, Option<String>, Option<i64>, bool, Option<i64>);

/// Whether a lock could be had: one is granted, and granted again, and both are undone.
///
/// Its name is one that no lock can have and that no other rehearsal has, so that nobody has to wait for it. What would be
/// refused at the end of the transaction is refused before it.
pub(crate) async fn rehearse(statements: &Statements, session: &mut Session) -> sqlx::Result<bool> {
    let token = Token::random();
    let name = format!("\n{:x}", u128::from_be_bytes(*token.as_bytes()));
    let values = [
        Value::from(&*name),
        token.as_bytes().into(),
        "distlock".into(),
        micros::up(Duration::from_secs(1)).into(),
        Value::Bigint(None),
    ];
    let insert = filled(&statements.insert, &values)?;
    let update = filled(&statements.acquire, &values)?;
    let sql = format!("{insert}; {update}; SET CONSTRAINTS ALL IMMEDIATE");
    let rows = session.rehearse(&sql).await?;
    let fences: Vec<Option<i64>> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<sqlx::Result<_>>()?;
    Ok(matches!(fences[..], [Some(first), Some(second)] if first < second))
}

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
            micros::up(request.lease).into(),
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
                remaining: Some(micros::remaining(left)),
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
