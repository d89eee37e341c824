//! Connections that a backend keeps for itself.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::{self, Instant};
use crate::options::MAX_IDLE;
use crate::{Effect, Error, ErrorKind, Result};

/// A few connections of a backend's own, opened when needed and used again without a ping in between.
///
/// A connection comes back only when its user [keeps](Taken::keep) it. One whose user failed, or was dropped in the
/// middle of a statement, is closed: nobody ever finds a connection in an unknown state. One that was idle for longer
/// than [`MAX_IDLE`] is not used again, because what lies between may have forgotten it without a word.
pub struct Connections<C> {
    max: usize,
    idle: Mutex<Vec<Idle<C>>>,
    places: Semaphore,
    reserved: Semaphore,
}

struct Idle<C> {
    connection: C,
    since: Instant,
}

impl<C> Connections<C> {
    /// At most `max` connections at a time, and as many again in reserve; none open yet.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            idle: Mutex::default(),
            places: Semaphore::new(max),
            reserved: Semaphore::new(max),
        }
    }

    /// An idle connection, or one from `open`. While all are in use it waits, in order of arrival, for at most `limit`:
    /// choose it so that nothing is sent for a caller who has given up.
    ///
    /// # Errors
    ///
    /// Those of `open`; [`ErrorKind::Unavailable`] without effect when all stayed in use.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped call gives its place in the queue up.
    pub async fn take<F>(&self, limit: Duration, open: impl FnOnce() -> F) -> Result<Taken<'_, C>>
    where
        F: Future<Output = Result<C>>,
    {
        self.take_from(&self.places, limit, open).await
    }

    /// As [`take`](Self::take), from the reserve: for releases and renewals, which must not wait behind acquires that
    /// hang. Idle connections are shared, so that one who takes and releases in turn needs one connection only.
    ///
    /// Errors and cancel safety are those of [`take`](Self::take).
    pub async fn take_reserved<F>(
        &self,
        limit: Duration,
        open: impl FnOnce() -> F,
    ) -> Result<Taken<'_, C>>
    where
        F: Future<Output = Result<C>>,
    {
        self.take_from(&self.reserved, limit, open).await
    }

    async fn take_from<'a, F>(
        &'a self,
        places: &'a Semaphore,
        limit: Duration,
        open: impl FnOnce() -> F,
    ) -> Result<Taken<'a, C>>
    where
        F: Future<Output = Result<C>>,
    {
        let permit = clock::timeout(limit, places.acquire()).await;
        let permit = permit.ok_or_else(|| self.all_in_use(limit))?;
        let permit = permit.expect("the semaphore is never closed");
        let idle = self.usable();
        Ok(Taken {
            fresh: idle.is_none(),
            connection: Some(match idle {
                Some(connection) => connection,
                None => open().await?,
            }),
            home: self,
            _permit: permit,
        })
    }

    /// Closes the idle connections: when one turned out dead, the others that were opened before it are, too.
    pub fn close_idle(&self) {
        self.idle().clear();
    }

    /// The connection that was used last, and so is the likeliest to live.
    fn usable(&self) -> Option<C> {
        let mut idle = self.idle();
        idle.retain(|idle| idle.since.elapsed() < MAX_IDLE);
        idle.pop().map(|idle| idle.connection)
    }

    fn all_in_use(&self, limit: Duration) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "all {} connections of the lock store were in use for {limit:?}: look for statements that hang",
                self.max
            ),
        )
        .with_effect(Effect::None)
        .with_store_up()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle<C>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> fmt::Debug for Connections<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("max", &self.max)
            .field("idle", &self.idle().len())
            .field("free", &self.places.available_permits())
            .finish()
    }
}

/// A connection in use. Dropping it closes it, and with it the idle ones if it was one of them: they may be as dead.
#[must_use = "a taken connection is closed unless it is kept"]
pub struct Taken<'a, C> {
    connection: Option<C>,
    fresh: bool,
    home: &'a Connections<C>,
    _permit: SemaphorePermit<'a>,
}

impl<C> Taken<'_, C> {
    /// Whether it was opened for this use. One that was idle before may have died meanwhile, unnoticed.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Gives the connection back for the next use: it is clean.
    pub fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            let since = Instant::now();
            self.home.idle().push(Idle { connection, since });
        }
    }
}

impl<C> Drop for Taken<'_, C> {
    fn drop(&mut self) {
        if self.connection.is_some() && !self.fresh {
            self.home.close_idle();
        }
    }
}

impl<C> Deref for Taken<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.connection.as_ref().expect("taken until kept")
    }
}

impl<C> DerefMut for Taken<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection.as_mut().expect("taken until kept")
    }
}

impl<C> fmt::Debug for Taken<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("fresh", &self.fresh).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    async fn take(connections: &Connections<u8>, new: u8) -> Result<Taken<'_, u8>> {
        connections.take(LIMIT, || async move { Ok(new) }).await
    }

    #[tokio::test]
    async fn a_kept_connection_is_used_again_and_a_dropped_one_is_not() {
        let connections = Connections::new(1);
        let first = take(&connections, 1).await.unwrap();
        assert!(first.is_fresh());
        first.keep();
        let again = take(&connections, 2).await.unwrap();
        assert_eq!((*again, again.is_fresh()), (1, false));
        drop(again);
        let next = take(&connections, 3).await.unwrap();
        assert_eq!((*next, next.is_fresh()), (3, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_idle_for_long_is_not_used_again() {
        let connections = Connections::new(1);
        take(&connections, 1).await.unwrap().keep();
        clock::sleep(MAX_IDLE - Duration::from_secs(2)).await;
        let soon = take(&connections, 2).await.unwrap();
        assert_eq!(*soon, 1);
        soon.keep();
        clock::sleep(MAX_IDLE).await;
        assert_eq!(*take(&connections, 3).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn the_idle_ones_go_with_one_that_failed() {
        let connections = Connections::new(2);
        let (one, two) = tokio::join!(take(&connections, 1), take(&connections, 2));
        one.unwrap().keep();
        two.unwrap().keep();
        drop(take(&connections, 3).await.unwrap());
        assert!(take(&connections, 4).await.unwrap().is_fresh());
    }

    #[tokio::test]
    async fn the_reserve_is_there_when_all_others_are_in_use_and_shares_what_is_idle() {
        let connections = Connections::new(1);
        let taking = take(&connections, 1).await.unwrap();
        let release = connections.take_reserved(LIMIT, || async { Ok(2) }).await;
        assert!(release.unwrap().is_fresh());
        taking.keep();
        let release = connections.take_reserved(LIMIT, || async { Ok(3) }).await;
        assert_eq!(*release.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_maximum_are_out_at_a_time_and_nobody_waits_for_ever() {
        let connections = Connections::new(1);
        let first = take(&connections, 1).await.unwrap();
        let error = take(&connections, 2).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.effect(), Effect::None);
        let second = take(&connections, 3);
        tokio::pin!(second);
        assert!(clock::timeout(LIMIT / 2, &mut second).await.is_none());
        first.keep();
        assert!(!second.await.unwrap().is_fresh());
    }
}
