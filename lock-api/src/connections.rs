//! Connections that a backend keeps for itself.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Result;

/// A few connections of a backend's own, opened when needed and used again without a ping in between.
///
/// A connection comes back only when its user [keeps](Taken::keep) it. One whose user failed, or was dropped in the
/// middle of a statement, is closed: nobody ever finds a connection in an unknown state.
pub struct Connections<C> {
    idle: Mutex<Vec<C>>,
    permits: Semaphore,
}

impl<C> Connections<C> {
    /// At most `max` connections at a time, none open yet.
    pub fn new(max: usize) -> Self {
        Self {
            idle: Mutex::default(),
            permits: Semaphore::new(max),
        }
    }

    /// An idle connection, or one from `open`; waits, in order of arrival, while all are in use.
    ///
    /// # Errors
    ///
    /// Those of `open`.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped call gives its place in the queue up.
    pub async fn take<F>(&self, open: impl FnOnce() -> F) -> Result<Taken<'_, C>>
    where
        F: Future<Output = Result<C>>,
    {
        let permit = self.permits.acquire().await;
        let permit = permit.expect("the semaphore is never closed");
        let idle = self.idle().pop();
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

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<C>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> fmt::Debug for Connections<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("idle", &self.idle().len())
            .field("free", &self.permits.available_permits())
            .finish()
    }
}

/// A connection in use. Dropping it closes it.
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
            self.home.idle().push(connection);
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

    #[tokio::test]
    async fn a_kept_connection_is_used_again_and_a_dropped_one_is_not() {
        let connections = Connections::new(1);
        let first = connections.take(|| async { Ok(1) }).await.unwrap();
        assert!(first.is_fresh());
        first.keep();
        let again = connections.take(|| async { Ok(2) }).await.unwrap();
        assert_eq!((*again, again.is_fresh()), (1, false));
        drop(again);
        let next = connections.take(|| async { Ok(3) }).await.unwrap();
        assert_eq!((*next, next.is_fresh()), (3, true));
    }

    #[tokio::test]
    async fn no_more_than_the_maximum_are_out_at_a_time() {
        let connections = Connections::new(1);
        let first = connections.take(|| async { Ok(()) }).await.unwrap();
        let second = connections.take(|| async { Ok(()) });
        tokio::pin!(second);
        assert!(
            crate::clock::timeout(std::time::Duration::from_millis(20), &mut second)
                .await
                .is_none()
        );
        first.keep();
        assert!(!second.await.unwrap().is_fresh());
    }
}
