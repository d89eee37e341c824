use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::engine::{Deadline, Grant};
use crate::{Error, ErrorKind, FencingToken, LockName, Operation, Release, Result};

/// A lock that is held. Dropping it releases the lock in the background.
///
/// The lock is held until the guard is released or dropped, or until its deadline, whichever comes first. Nothing
/// stops code from running after the deadline: ask [`is_valid`](Hold::is_valid) before each step that needs the lock,
/// or race the work against [`lost`](Hold::lost), as [`Lock::run`](crate::Lock::run) does. Even so, code that runs
/// right after `is_valid` said yes can be delayed without limit: only a resource that checks the
/// [fencing token](Hold::fencing_token) closes that gap.
///
/// The background works while the tokio runtime in which the lock was acquired lives; after that, or after
/// [`std::mem::forget`], the lock frees itself at the end of its lease. Call
/// [`Locks::shutdown`](crate::Locks::shutdown) before the runtime ends.
#[derive(Debug)]
#[must_use = "a guard that is not kept releases its lock at once"]
pub struct Guard {
    grant: Grant,
    hold: Hold,
}

/// What a job may know of the lock that it runs under. Cheap to clone, and no obstacle to the release.
#[derive(Clone, Debug)]
pub struct Hold(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    name: LockName,
    owner: String,
    fencing_token: Option<FencingToken>,
    deadline: Deadline,
}

/// Why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// `at_most_for` is over.
    TimeUp,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TimeUp => f.write_str("the time of at_most_for is up"),
        }
    }
}

impl Guard {
    pub(crate) fn new(grant: Grant) -> Self {
        let hold = Hold(Arc::new(Facts {
            name: grant.lease.name.clone(),
            owner: grant.owner.clone(),
            fencing_token: grant.fencing_token,
            deadline: grant.deadline,
        }));
        Self { grant, hold }
    }

    /// The view of this lock that can be handed to a job.
    pub fn hold(&self) -> Hold {
        self.hold.clone()
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
    pub async fn release(mut self) -> Result<Release> {
        let Grant {
            engine,
            lease,
            at_least,
            ..
        } = &self.grant;
        let limit = engine.capabilities.operation_limit;
        let start = clock::Instant::now();
        let answer = clock::timeout(limit, engine.backend.release(lease, at_least.left())).await;
        let failure = match answer {
            Some(Ok(release)) => {
                self.grant.released = true;
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
            .on(&lease.name)
            .after(start.elapsed()))
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Hold {
    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// Who holds it, for people.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// The number to hand to the protected resource; `None` where the backend has no fencing.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.0.fencing_token
    }

    /// What is left until the deadline, computed from the clock at every call; zero when it is over.
    ///
    /// The deadline is never later than the end of the lease at the server: it counts from before the request left,
    /// less 1 % and 2 ms for clocks that differ in rate.
    pub fn remaining(&self) -> Duration {
        self.0.deadline.remaining()
    }

    /// Whether the deadline is still to come, computed from the clock at every call: true after a freeze or a suspend
    /// only if it was short enough.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Waits until the lock is no longer held, and says why. It does not see that the lock was released.
    ///
    /// # Cancel safety
    ///
    /// Safe: it can be dropped and called again any number of times.
    pub async fn lost(&self) -> Loss {
        while self.is_valid() {
            clock::sleep(self.remaining()).await;
        }
        Loss::TimeUp
    }
}
