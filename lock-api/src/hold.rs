use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock;
use crate::engine::Deadline;
use crate::{FencingToken, LockName};

/// What a job may know of the lock that it runs under. Cheap to clone, and no obstacle to the release.
#[derive(Clone, Debug)]
pub struct Hold(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    name: LockName,
    owner: String,
    fencing_token: Option<FencingToken>,
    deadline: Deadline,
    ended: AtomicBool,
    end: Notify,
}

/// Why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// `at_most_for` is over.
    TimeUp,
    /// The guard was released or dropped, or the job under [`Lock::run`](crate::Lock::run) has ended.
    Released,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeUp => "the time of at_most_for is up",
            Self::Released => "the lock was released",
        })
    }
}

impl Hold {
    pub(crate) fn new(
        name: LockName,
        owner: String,
        fencing_token: Option<FencingToken>,
        deadline: Deadline,
    ) -> Self {
        Self(Arc::new(Facts {
            name,
            owner,
            fencing_token,
            deadline,
            ended: AtomicBool::new(false),
            end: Notify::new(),
        }))
    }

    /// From here on nobody counts as holding: called before a release leaves.
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.end.notify_waiters();
    }

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

    /// What is left until the deadline, computed from the clock at every call; zero when it is over, or the lock was
    /// released.
    ///
    /// The deadline is never later than the end of the lease at the store: it counts from before the request left,
    /// less 1 % and 2 ms for clocks that differ in rate.
    pub fn remaining(&self) -> Duration {
        if self.0.ended.load(Ordering::SeqCst) {
            return Duration::ZERO;
        }
        self.0.deadline.remaining()
    }

    /// Whether the lock is not released and the deadline is still to come, computed from the clock at every call: true
    /// after a freeze or a suspend only if it was short enough.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Waits until the lock is no longer held, and says why.
    ///
    /// [`Loss::TimeUp`] comes a little before the lease ends at the store, so that a release right after it may still
    /// answer [`Release::Released`](crate::Release::Released).
    ///
    /// # Cancel safety
    ///
    /// Safe: it can be dropped and called again any number of times.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one without its time driver.
    pub async fn lost(&self) -> Loss {
        let mut end = std::pin::pin!(self.0.end.notified());
        // In the list of the notified before looking, so that an end in between is not missed.
        end.as_mut().enable();
        while self.is_valid() {
            tokio::select! {
                () = &mut end => {}
                () = clock::sleep(self.remaining()) => {}
            }
        }
        if self.0.ended.load(Ordering::SeqCst) {
            Loss::Released
        } else {
            Loss::TimeUp
        }
    }
}
