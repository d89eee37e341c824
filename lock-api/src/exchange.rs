//! Requests and their answers, over kept connections of which any may have died unnoticed.

use std::time::Duration;

use crate::clock::{self, Instant};
use crate::connections::{Connections, Taken};
use crate::{Attempt, Effect, Error, ErrorKind, ForceRelease, Operation, Release, Result};

/// How often a request is sent again at most.
const REPEATS: u32 = 5;

/// One request of a backend, and how it is sent. It must be such that it may be sent twice.
pub trait Exchange: Sync {
    /// What it is sent over.
    type Connection: Send;

    /// What the server says.
    type Answer: Send;

    /// Whose place it takes.
    fn lane(&self) -> Lane;

    /// How long it may take until it has a connection: less than the operation may, so that whoever waits is still told
    /// why.
    fn connect_limit(&self) -> Duration;

    /// How long it may wait, within that, for a connection that others use: not so long that it is sent for a caller
    /// who has given up.
    fn patience(&self) -> Duration;

    /// A new connection.
    fn open(&self, limit: Duration) -> impl Future<Output = Result<Self::Connection>> + Send;

    /// Sends it and waits for the answer.
    fn send(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<Self::Answer, Failed>> + Send;
}

/// Whose places a request takes. What keeps or frees a lock never waits behind tries that hang on a locked row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Tries to take a lock, and what operators ask.
    Taking,
    /// Renewals and releases, from the reserve.
    Holding,
}

/// A try that failed.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// Whether another try makes sense.
    pub again: Again,
    /// The server did not tell of the failure itself, so that the request may still be under way.
    pub may_still_run: bool,
}

impl Failed {
    /// What a first look at the store complains of: it may be out of date like any answer of a session that was kept.
    pub fn complaint(error: Error) -> Self {
        Self {
            error,
            again: Again::Elsewhere,
            may_still_run: false,
        }
    }
}

/// Whether a request may be sent again, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The server rolled it back for others' sake: again on the same connection.
    Here,
    /// The session is gone or out of date: again on a new connection, unless this one was new.
    Elsewhere,
    /// It would fail again.
    No,
}

/// An answer, and the doubt that an earlier try left.
#[derive(Debug)]
pub struct Answered<T> {
    /// What the server said.
    pub answer: T,
    /// An earlier try that may have taken effect, so that the answer may speak of its consequences.
    pub doubt: Option<Doubt>,
}

/// A try without an answer.
#[derive(Debug)]
pub struct Doubt {
    /// Why there was none.
    pub error: Error,
    /// It may still be under way.
    pub may_still_run: bool,
}

impl<C: Send> Connections<C> {
    /// Sends a request until it is answered or no further try makes sense.
    ///
    /// A connection that was kept may be dead, or its session out of date, without our knowing. So its failure counts
    /// for nothing: the request goes out once more on a new one.
    ///
    /// # Errors
    ///
    /// Those of the last try, with [`Effect::Unknown`] if an earlier one is in doubt.
    ///
    /// # Cancel safety
    ///
    /// Safe for the connection: one whose request was dropped is closed. The request may have been done.
    pub async fn exchange<E>(&self, exchange: &E) -> Result<Answered<E::Answer>>
    where
        E: Exchange<Connection = C>,
    {
        let began = Instant::now();
        let mut connection = self.connection_for(exchange, began).await?;
        let mut doubt: Option<Doubt> = None;
        let mut repeats = 0..REPEATS;
        loop {
            let failed = match exchange.send(&mut connection).await {
                Ok(answer) => {
                    connection.keep();
                    return Ok(Answered { answer, doubt });
                }
                Err(failed) => failed,
            };
            match repeats.next().map_or(Again::No, |_| failed.again) {
                Again::Here => {}
                Again::Elsewhere if !connection.is_fresh() => {
                    doubt = worse(doubt, failed);
                    drop(connection);
                    connection = match self.connection_for(exchange, began).await {
                        Ok(connection) => connection,
                        Err(error) => return Err(doubt.map_or(error, |doubt| doubt.error)),
                    };
                }
                _ if doubt.is_some() => return Err(failed.error.with_effect(Effect::Unknown)),
                _ => return Err(failed.error),
            }
        }
    }

    /// A connection for a request that has been under way since `began`.
    async fn connection_for<E>(&self, exchange: &E, began: Instant) -> Result<Taken<'_, C>>
    where
        E: Exchange<Connection = C>,
    {
        let left = || exchange.connect_limit().saturating_sub(began.elapsed());
        let patience = exchange.patience().min(left());
        let open = || exchange.open(left());
        match exchange.lane() {
            Lane::Taking => self.take(patience, open).await,
            Lane::Holding => self.take_reserved(patience, open).await,
        }
    }
}

/// An operators' call, kept within its limit: no engine stands above it.
///
/// # Errors
///
/// Those of the work, and [`ErrorKind::Timeout`], each with the backend and the operation.
///
/// # Cancel safety
///
/// That of the work, which is dropped when its time is up.
pub async fn limited<T>(
    limit: Duration,
    backend: &'static str,
    operation: Operation,
    work: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    let done = clock::timeout(limit, work).await;
    let done = done.unwrap_or_else(|| {
        let text = format!("no answer within {limit:?}: check the network and the server");
        Err(Error::new(ErrorKind::Timeout, text).after(limit))
    });
    done.map_err(|error| error.during(backend, operation))
}

/// The worst doubt is the one about a request that may still run.
fn worse(doubt: Option<Doubt>, failed: Failed) -> Option<Doubt> {
    let is_worse = doubt.as_ref().is_none_or(|doubt| !doubt.may_still_run);
    if failed.error.effect() == Effect::Unknown && is_worse {
        return Some(Doubt {
            error: failed.error,
            may_still_run: failed.may_still_run,
        });
    }
    doubt
}

impl Answered<Attempt> {
    /// The decision. A grant stands, for it is the same token's. That somebody else has the lock stands where no earlier
    /// try is under way, to be granted after it. That the tick is done does not: perhaps the earlier try was granted it.
    ///
    /// # Errors
    ///
    /// The doubt.
    pub fn decided(self) -> Result<Attempt> {
        match (self.answer, self.doubt) {
            (Attempt::Held(_), Some(doubt)) if doubt.may_still_run => Err(doubt.error),
            (Attempt::TickDone { .. }, Some(doubt)) => Err(doubt.error),
            (attempt, _) => Ok(attempt),
        }
    }
}

impl Answered<Release> {
    /// The outcome. Where the lease was not held, perhaps an earlier try released it.
    ///
    /// # Errors
    ///
    /// The doubt.
    pub fn decided(self) -> Result<Release> {
        match (self.answer, self.doubt) {
            (Release::NotHeld { .. }, Some(doubt)) => Err(doubt.error),
            (release, _) => Ok(release),
        }
    }
}

impl Answered<ForceRelease> {
    /// The outcome. Where nobody had the lock, perhaps an earlier try freed it.
    ///
    /// # Errors
    ///
    /// The doubt.
    pub fn decided(self) -> Result<ForceRelease> {
        match (self.answer, self.doubt) {
            (ForceRelease::NotHeld, Some(doubt)) => Err(doubt.error),
            (outcome, _) => Ok(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;
    use crate::Held;

    const SECOND: Duration = Duration::from_secs(1);

    /// A server that fails as it is told to, and then answers with the number of the connection.
    struct Script {
        failures: Mutex<VecDeque<(ErrorKind, Again, bool)>>,
        opened: Mutex<u32>,
    }

    impl Script {
        fn failing(failures: &[(ErrorKind, Again, bool)]) -> Self {
            Self {
                failures: Mutex::new(failures.iter().copied().collect()),
                opened: Mutex::new(0),
            }
        }
    }

    impl Exchange for Script {
        type Connection = u32;
        type Answer = u32;

        fn lane(&self) -> Lane {
            Lane::Taking
        }

        fn connect_limit(&self) -> Duration {
            SECOND
        }

        fn patience(&self) -> Duration {
            SECOND
        }

        async fn open(&self, _: Duration) -> Result<u32> {
            let mut opened = self.opened.lock().unwrap();
            *opened += 1;
            Ok(*opened)
        }

        async fn send(&self, connection: &mut u32) -> Result<u32, Failed> {
            let failure = self.failures.lock().unwrap().pop_front();
            failure.map_or(Ok(*connection), |(kind, again, may_still_run)| {
                Err(Failed {
                    error: Error::new(kind, "made up"),
                    again,
                    may_still_run,
                })
            })
        }
    }

    use Again::{Elsewhere, Here, No};
    use ErrorKind::{Denied, Unavailable};

    /// Over a connection that was used before.
    async fn on_a_kept_one(script: &Script) -> Result<Answered<u32>> {
        let connections = Connections::new(1);
        let first = connections.take(SECOND, || script.open(SECOND)).await?;
        first.keep();
        connections.exchange(script).await
    }

    #[tokio::test]
    async fn a_kept_connection_that_died_counts_for_nothing_but_the_doubt() {
        let script = Script::failing(&[(Unavailable, Elsewhere, true)]);
        let answered = on_a_kept_one(&script).await.unwrap();
        assert_eq!(answered.answer, 2, "on a new connection");
        assert!(answered.doubt.unwrap().may_still_run);
    }

    #[tokio::test]
    async fn a_new_connection_that_fails_has_failed() {
        let script = Script::failing(&[(Unavailable, Elsewhere, true)]);
        let error = Connections::new(1).exchange(&script).await.unwrap_err();
        assert_eq!(error.kind(), Unavailable);
        assert_eq!(script.failures.lock().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn what_was_rolled_back_is_sent_again_five_times_at_most() {
        let script = Script::failing(&[(Unavailable, Here, false); 5]);
        let answered = Connections::new(1).exchange(&script).await.unwrap();
        assert_eq!(answered.answer, 1, "on the same connection");
        assert!(answered.doubt.is_none());
        let script = Script::failing(&[(Unavailable, Here, false); 6]);
        assert!(Connections::new(1).exchange(&script).await.is_err());
    }

    #[tokio::test]
    async fn a_failure_after_a_doubt_leaves_the_effect_unknown() {
        let script = Script::failing(&[(Unavailable, Elsewhere, true), (Denied, No, false)]);
        let error = on_a_kept_one(&script).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (Denied, Effect::Unknown));
        let script = Script::failing(&[(Denied, Elsewhere, false), (Denied, No, false)]);
        let error = on_a_kept_one(&script).await.unwrap_err();
        assert_eq!(error.effect(), Effect::None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operators_call_ends_with_its_limit_and_says_what_it_was() {
        let never = std::future::pending::<Result<()>>();
        let error = limited(SECOND, "store", Operation::List, never).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().starts_with("store list: "), "{error}");
        let done = limited(SECOND, "store", Operation::List, async { Ok(7) }).await;
        assert_eq!(done.unwrap(), 7);
    }

    #[test]
    fn the_worst_doubt_is_kept() {
        let failed = |may_still_run| Failed {
            error: Error::new(Unavailable, "made up"),
            again: Elsewhere,
            may_still_run,
        };
        let told = worse(None, failed(false));
        let worst = worse(told, failed(true)).unwrap();
        assert!(worst.may_still_run);
        assert!(worse(Some(worst), failed(false)).unwrap().may_still_run);
    }

    #[test]
    fn an_answer_that_may_be_the_first_trys_doing_is_none() {
        fn after<T>(answer: T, may_still_run: bool) -> Answered<T> {
            let error = Error::new(Unavailable, "made up");
            let doubt = Some(Doubt {
                error,
                may_still_run,
            });
            Answered { answer, doubt }
        }
        let granted = Attempt::Acquired {
            fencing_token: None,
        };
        let held = Attempt::Held(Held::default());
        assert!(after(granted, true).decided().is_ok());
        assert!(after(held.clone(), false).decided().is_ok());
        assert!(after(held, true).decided().is_err());
        assert!(
            after(Attempt::TickDone { last: 1 }, false)
                .decided()
                .is_err()
        );
        assert!(after(Release::Released, true).decided().is_ok());
        assert!(
            after(Release::NotHeld { by: None }, false)
                .decided()
                .is_err()
        );
        assert!(after(ForceRelease::NotHeld, false).decided().is_err());
    }
}
