use std::ops::Deref;

use crate::clock;
use crate::engine::{AtLeast, Grant};
use crate::{Error, ErrorKind, Hold, Operation, Release, Result};

/// A lock that is held. Dropping it releases the lock in the background.
///
/// The lock is held until the guard is released or dropped, or until its deadline, whichever comes first. Nothing
/// stops code from running after the deadline: ask [`is_valid`](Hold::is_valid) before each step that needs the lock,
/// or race the work against [`lost`](Hold::lost), as [`Lock::run`](crate::Lock::run) does. Even so, code that runs
/// right after `is_valid` said yes can be delayed without limit: only a resource that checks the
/// [fencing token](Hold::fencing_token) closes that gap.
///
/// The background works while the tokio runtime in which the lock was acquired lives; after that the lock frees itself at the
/// end of its lease. So it does after [`std::mem::forget`], but a [`watchdog`](crate::Lock::watchdog) renews a forgotten lock
/// until `at_most_for`, or for as long as the runtime lives. Call
/// [`Locks::shutdown`](crate::Locks::shutdown) before the runtime ends.
#[derive(Debug)]
#[must_use = "a guard that is not kept releases its lock at once"]
pub struct Guard(Grant);

impl Guard {
    pub(crate) fn new(grant: Grant) -> Self {
        Self(grant)
    }

    /// The view of this lock that can be handed to a job. It ends with the guard.
    pub fn hold(&self) -> Hold {
        self.0.hold.clone()
    }

    /// Releases the lock, or lets it rest for what is left of `at_least_for`, and says what came of it.
    ///
    /// [`Release::NotHeld`] means that the lease had ended before: somebody else may have held the lock meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the store, or [`ErrorKind::Timeout`]. The release is then tried again in the background until the
    /// store has answered or the lease is over.
    ///
    /// # Cancel safety
    ///
    /// Safe: a release that is dropped goes on in the background.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one without its time driver.
    pub async fn release(self) -> Result<Release> {
        self.give_back().await
    }

    /// Frees the lock at once, whatever is left of `at_least_for`: for a job that did not start, so that others need
    /// not skip for it. A tick that was granted stays granted.
    ///
    /// Errors, cancel safety and panics are those of [`release`](Self::release).
    pub async fn release_unused(mut self) -> Result<Release> {
        self.0.at_least = AtLeast::none();
        self.give_back().await
    }

    async fn give_back(mut self) -> Result<Release> {
        let grant = &mut self.0;
        // A shutdown waits for this one, too. Dropped last, when the background has taken over what failed here.
        let _ticket = grant.engine.background.ticket();
        grant.end();
        let engine = &grant.engine;
        let limit = engine.capabilities.operation_limit;
        let start = clock::Instant::now();
        let release = engine.backend.release(&grant.lease, grant.at_least.left());
        let failure = match clock::timeout(limit, release).await {
            Some(Ok(release)) => {
                grant.released = true;
                return Ok(release);
            }
            Some(Err(error)) => error,
            None => Error::new(
                ErrorKind::Timeout,
                format!("no answer within {limit:?}; it is tried again in the background"),
            ),
        };
        Err(failure
            .during(engine.capabilities.backend, Operation::Release)
            .on(&grant.lease.name)
            .after(start.elapsed()))
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.0.hold
    }
}
