use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock;
use crate::engine::Deadline;
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, FencingToken, LockName};

/// What a job may know of the lock that it runs under. Cheap to clone, and no obstacle to the release.
#[derive(Clone, Debug)]
pub struct Hold(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    name: LockName,
    owner: String,
    fencing_token: Option<FencingToken>,
    locked: bool,
    state: Mutex<State>,
    end: Notify,
}

#[derive(Debug)]
struct State {
    deadline: Deadline,
    /// The deadline is that of `at_most_for`: no renewal will move it.
    is_last: bool,
    /// Why the last renewal failed, if it did.
    failure: Option<Error>,
    /// Set once, and final.
    end: Option<Loss>,
}

/// Why a lock is no longer held.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// `at_most_for` is over.
    TimeUp,
    /// Somebody else has the lock: the lease had ended, or was ended by force.
    Taken {
        /// The present holder, for people.
        by: String,
    },
    /// The store has the lease no longer, and nobody else has the lock: it was ended by force, deleted, or flushed, or had
    /// run out.
    Gone,
    /// The watchdog could not renew the lease in time.
    NotRenewed {
        /// Why the last try failed; `None` if there was none to fail, because this process, or the runtime in which the lock was
        /// acquired, stood still or was too busy.
        cause: Option<Error>,
    },
    /// The guard was released or dropped, or the job under [`Lock::run`](crate::Lock::run) has ended.
    Released,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeUp => f.write_str("the time of at_most_for is up"),
            Self::Taken { by } => write!(f, "{} has the lock now", by.escape_debug()),
            Self::Gone => f.write_str("the store has the lease no longer"),
            Self::NotRenewed { cause: Some(cause) } => {
                write!(f, "the lease could not be renewed in time: {cause}")
            }
            Self::NotRenewed { cause: None } => f.write_str(
                "the lease was not renewed in time: this process, or its runtime, stood still or was too busy",
            ),
            Self::Released => f.write_str("the lock was released"),
        }
    }
}

impl Hold {
    /// `is_last`: no renewal will move the deadline.
    pub(crate) fn new(
        name: LockName,
        owner: String,
        fencing_token: Option<FencingToken>,
        deadline: Deadline,
        is_last: bool,
    ) -> Self {
        Self(Arc::new(Facts {
            name,
            owner,
            fencing_token,
            locked: true,
            state: Mutex::new(State::until(deadline, is_last)),
            end: Notify::new(),
        }))
    }

    /// For a job that runs although no lock could be had.
    pub(crate) fn without_lock(name: LockName, owner: String, deadline: Deadline) -> Self {
        Self(Arc::new(Facts {
            name,
            owner,
            fencing_token: None,
            locked: false,
            state: Mutex::new(State::until(deadline, true)),
            end: Notify::new(),
        }))
    }

    /// From here on nobody counts as holding: called before a release leaves.
    pub(crate) fn end(&self) {
        self.lose(Loss::Released);
    }

    /// The lock is lost, if it was not before.
    pub(crate) fn lose(&self, loss: Loss) {
        let mut state = self.state();
        state.see_deadline();
        state.end.get_or_insert(loss);
        drop(state);
        self.0.end.notify_waiters();
    }

    /// The lease was renewed. Says whether the lock is still held: what was lost stays lost.
    pub(crate) fn extend(&self, deadline: Deadline, is_last: bool) -> bool {
        let mut state = self.state();
        state.see_deadline();
        if state.end.is_some() {
            return false;
        }
        if deadline.remaining() > state.deadline.remaining() {
            state.deadline = deadline;
        }
        state.is_last = is_last;
        state.failure = None;
        true
    }

    pub(crate) fn could_not_renew(&self, error: Error) {
        self.state().failure = Some(error);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// Who holds it, for people.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// Whether a lock stands behind this. Not where the job runs [unlocked](crate::Lock::fail_open): then there is no
    /// fencing token, and the deadline is `at_most_for`, if that was given.
    pub fn is_locked(&self) -> bool {
        self.0.locked
    }

    /// The number to hand to the protected resource; `None` where the backend has no fencing, or no
    /// lock stands behind this.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.0.fencing_token
    }

    /// What is left until the deadline, computed from the clock at every call; zero when it is over, or the lock was
    /// released.
    ///
    /// The deadline is never later than the end of the lease at the store: it counts from before the request left,
    /// less 1 % and 2 ms for clocks that differ in rate.
    pub fn remaining(&self) -> Duration {
        let state = self.state();
        match state.end {
            Some(_) => Duration::ZERO,
            None => state.deadline.remaining(),
        }
    }

    /// Whether no renewal will move the deadline any more: the lease is a fixed one, or the watchdog has reached
    /// `at_most_for`.
    pub fn is_final(&self) -> bool {
        self.state().is_last
    }

    /// Why the last renewal failed, if it did: what a job that is [endangered](Self::endangered) may say.
    pub fn failure(&self) -> Option<Error> {
        self.state().failure.clone()
    }

    /// Whether the lock is not released and the deadline is still to come, computed from the clock at every call: true
    /// after a freeze or a suspend only if it was short enough.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Waits until the lock is no longer held, and says why.
    ///
    /// No later than the deadline, which comes a little before the lease ends at the store, so that a release right after
    /// [`Loss::TimeUp`] may still answer [`Release::Released`](crate::Release::Released).
    ///
    /// # Cancel safety
    ///
    /// Safe: it can be dropped and called again any number of times.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one without its time driver.
    pub async fn lost(&self) -> Loss {
        self.endangered(Duration::ZERO).await;
        let mut state = self.state();
        state.see_deadline();
        state.end.clone().unwrap_or(Loss::Released)
    }

    /// Waits until no more than `margin` is [left](Self::remaining): time to bring the work to an end that can still be
    /// under the lock.
    ///
    /// A watchdog lets two thirds of its time remain when all goes well, so choose the margin shorter than that. A renewal
    /// may still succeed afterwards.
    ///
    /// Cancel safety and panics are those of [`lost`](Self::lost).
    pub async fn endangered(&self, margin: Duration) {
        // Made before looking, so that an end in between is not missed.
        let mut end = std::pin::pin!(self.0.end.notified());
        loop {
            let left = self.remaining();
            if left <= margin {
                return;
            }
            tokio::select! {
                () = &mut end => return,
                () = clock::sleep(left - margin) => {}
            }
        }
    }
}

impl State {
    fn until(deadline: Deadline, is_last: bool) -> Self {
        Self {
            deadline,
            is_last,
            failure: None,
            end: None,
        }
    }

    /// Once the deadline is over, it stays over.
    fn see_deadline(&mut self) {
        if self.end.is_none() && self.deadline.remaining().is_zero() {
            self.end = Some(match self.is_last {
                true => Loss::TimeUp,
                false => Loss::NotRenewed {
                    cause: self.failure.take(),
                },
            });
        }
    }
}
