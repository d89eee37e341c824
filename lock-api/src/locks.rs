use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::engine::{Answer, Engine};
use crate::options::LockOptions;
use crate::{
    Capabilities, Error, ErrorKind, Guard, Held, Hold, LockAdmin, LockBackend, LockName, Loss,
    Operation, Release, Result, Severity,
};

/// The locks of one store. Cloning is cheap, and clones share everything.
///
/// ```
/// use std::time::Duration;
/// use distlock_api::{Acquisition, Locks, MemoryBackend};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> distlock_api::Result<()> {
/// let locks = Locks::new(MemoryBackend::new());
/// let lock = locks.lock("nightly-report")?.at_most_for(Duration::from_secs(600));
/// match lock.try_acquire().await? {
///     Acquisition::Acquired(guard) => {
///         println!("ours, with fencing token {:?}", guard.fencing_token());
///         guard.release().await?;
///     }
///     refused => println!("not ours: {refused:?}"),
/// }
/// locks.shutdown(Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locks(Arc<Engine>);

impl Locks {
    /// Locks in this store.
    pub fn new(backend: impl LockBackend) -> Self {
        Self::from_arc(Arc::new(backend))
    }

    /// Locks in a store that is shared already.
    pub fn from_arc(backend: Arc<dyn LockBackend>) -> Self {
        Self(Engine::new(backend))
    }

    /// Locks in a store that is looked at first: a fault is an error, a warning goes to the log.
    ///
    /// # Errors
    ///
    /// Those of [`LockAdmin::check`], and the first fault that it found.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped call leaves nothing but a connection that closes.
    pub async fn checked(backend: Arc<dyn LockAdmin>) -> Result<Self> {
        let findings = backend.check().await?;
        for warning in findings.iter().filter(|f| f.severity == Severity::Warning) {
            tracing::warn!(backend = backend.capabilities().backend, "{warning}");
        }
        let checked = findings.usable();
        checked.map_err(|e| e.during(backend.capabilities().backend, Operation::Check))?;
        Ok(Self::from_arc(backend))
    }

    /// A lock by its name, with options still to be set. No I/O happens here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for a name that breaks the rules of [`LockName`] or is too long for the store.
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        let name = LockName::new(name)?;
        let most = self.0.capabilities.max_name_bytes;
        if name.as_str().len() > most {
            let backend = self.0.capabilities.backend;
            let length = name.as_str().len();
            return Err(Error::new(
                ErrorKind::InvalidName,
                format!("a lock name of {length} bytes is too long: at most {most} on {backend}"),
            ));
        }
        Ok(Lock {
            engine: Arc::clone(&self.0),
            name,
            options: LockOptions::default(),
        })
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// Takes no more locks, and waits until every pending attempt and release has come to its end.
    ///
    /// Guards that are still held stay held; each can be released, or dropped, as before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] if something is still pending after `bound`: it goes on while the runtime lives, and the
    /// leases end otherwise.
    ///
    /// # Cancel safety
    ///
    /// Safe: the locks stay closed, and it can be called again.
    pub async fn shutdown(&self, bound: Duration) -> Result<()> {
        let background = &self.0.background;
        background.close();
        match clock::timeout(bound, background.idle()).await {
            Some(()) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Timeout,
                format!(
                    "{} releases or attempts were still pending after {bound:?}",
                    background.pending()
                ),
            )),
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locks").field(&self.0.backend).finish()
    }
}

/// A lock by its name, with the options of the acquisitions that are made from it. Holds nothing.
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    engine: Arc<Engine>,
    name: LockName,
    options: LockOptions,
}

/// What came of an acquisition that the store decided.
#[derive(Debug)]
#[must_use = "an acquired lock is released at once unless its guard is kept"]
#[non_exhaustive]
#[allow(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made, and a guard is not worth an allocation"
)]
pub enum Acquisition {
    /// The lock is ours.
    Acquired(Guard),
    /// Somebody else has it.
    Held(Held),
    /// The asked tick, or a later one, was granted before.
    TickDone {
        /// The greatest tick granted so far.
        last: i64,
    },
}

impl Acquisition {
    /// The guard, if the lock is ours.
    pub fn acquired(self) -> Option<Guard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            _ => None,
        }
    }
}

/// What came of [`Lock::run`].
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The job ran to its end.
    Ran {
        /// What the job returned.
        value: T,
        /// What came of the release, which the job's value does not depend on. Worth a look:
        /// [`Release::NotHeld`] means that the lease was over before the job was, and that another may have run
        /// meanwhile. After an error the release is tried again in the background.
        release: Result<Release>,
    },
    /// Somebody else has the lock; the job was not started.
    Skipped(Held),
    /// The asked tick, or a later one, was granted before; the job was not started.
    TickDone {
        /// The greatest tick granted so far.
        last: i64,
    },
    /// The lock was lost while the job ran, and the job was stopped: its future was dropped.
    Stopped(Loss),
    /// The store was down, and the job ran to its end without a lock, because [`Lock::fail_open`] was chosen.
    RanUnlocked {
        /// What the job returned.
        value: T,
        /// Why there was no lock.
        cause: Error,
    },
    /// The store was down, the job ran without a lock, because [`Lock::fail_open`] was chosen, and it was stopped at
    /// `at_most_for`: its future was dropped.
    StoppedUnlocked {
        /// Why there was no lock.
        cause: Error,
    },
}

impl Lock {
    /// The upper bound of a hold: the lock frees itself then, whatever became of its holder. 10 ms to 3650 days.
    ///
    /// Longer than the longest run of the job, for [`run`](Self::run) stops it at the end. Required without a
    /// [`watchdog`](Self::watchdog), but for locks that end with the process anyway
    /// ([`Scope::Process`](crate::Scope::Process)).
    pub fn at_most_for(mut self, at_most: Duration) -> Self {
        self.options.at_most_for = Some(at_most);
        self
    }

    /// Renews a lease of this length for as long as the guard lives: for jobs of any length. 300 ms to 3650 days, and not longer
    /// than `at_most_for`; 30 s ([`WATCHDOG_TTL`](crate::options::WATCHDOG_TTL)) is a good choice.
    ///
    /// A renewal is due after a third of it, so that two may fail. If this process dies, the lock is free after the rest of
    /// the lease, or of a longer `at_least_for`. With [`at_most_for`](Self::at_most_for) the lease is renewed up to that bound. Without it, a guard
    /// that is leaked, or a job that hangs, keeps the lock for as long as the process lives.
    ///
    /// Renewals run in tasks of the runtime in which the lock was acquired, and end with it. Where its threads are kept busy for
    /// too long, [`is_valid`](Hold::is_valid) says so at the deadline like everywhere else.
    pub fn watchdog(mut self, ttl: Duration) -> Self {
        self.options.watchdog = Some(ttl);
        self
    }

    /// The lower bound of a hold: a job that ends early leaves the lock resting until then, so that another instance
    /// whose timer fires a little later skips. 1 ms to `at_most_for`; none unless set.
    pub fn at_least_for(mut self, at_least: Duration) -> Self {
        self.options.at_least_for = Some(at_least);
        self
    }

    /// Who holds the lock, for people: 1 to 255 bytes without control characters. `host/pid` unless set.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.options.owner = Some(owner.into());
        self
    }

    /// The planned run that the lock is taken for: granted only if greater than the last tick granted for this name.
    ///
    /// An identity, such as the second at which the run was due; it is compared with other ticks and never with a
    /// clock. A tick counts as granted even if its job failed or was cancelled.
    pub fn tick(mut self, tick: i64) -> Self {
        self.options.tick = Some(tick);
        self
    }

    /// Lets [`run`](Self::run) run the job without the lock where the store cannot be reached or does not answer
    /// ([`Error::is_store_down`]), instead of failing: for jobs that do less harm when they run twice than when they do not
    /// run. It says so by [`Outcome::RanUnlocked`], a warning in the log, and [`Hold::is_locked`]. Neither a tick nor
    /// `at_least_for` keeps others out then.
    ///
    /// Everything else, a missing right or table say, is an error all the same. [`try_acquire`](Self::try_acquire) knows no
    /// such thing.
    pub fn fail_open(mut self) -> Self {
        self.options.fail_open = true;
        self
    }

    /// Leaves it to the job of [`run`](Self::run) to end when its lock is lost: it is waited for instead of being dropped, for
    /// jobs that must not be cut off at an `.await`. The job asks [`Hold::is_valid`], or waits for
    /// [`Hold::endangered`] or [`Hold::lost`]; until it ends, another may run beside it, which the release then says
    /// ([`Release::NotHeld`]).
    pub fn cooperative(mut self) -> Self {
        self.options.cooperative = true;
        self
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Takes the lock if it is free, without waiting for its holder.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] and [`ErrorKind::Unsupported`] before any I/O; those of the store;
    /// [`ErrorKind::Timeout`] when the store has not answered within the limit of one call, or within the lease if
    /// that is shorter; [`ErrorKind::Closed`] after a shutdown. Whatever a failed attempt was granted is released in
    /// the background.
    ///
    /// # Cancel safety
    ///
    /// Safe: an attempt that is dropped goes on in the background and is released if it was granted. A tick that it
    /// was granted stays granted.
    ///
    /// # Panics
    ///
    /// In a tokio runtime without its time driver.
    ///
    /// # Fairness
    ///
    /// None: whoever asks first when the lock is free gets it.
    pub async fn try_acquire(&self) -> Result<Acquisition> {
        let capabilities = &self.engine.capabilities;
        let terms = self.options.validate(capabilities).map_err(|error| {
            error
                .during(capabilities.backend, Operation::Acquire)
                .on(&self.name)
        })?;
        Ok(match self.engine.attempt(&self.name, terms).await? {
            Answer::Granted(grant) => Acquisition::Acquired(Guard::new(grant)),
            Answer::Held(held) => Acquisition::Held(held),
            Answer::TickDone { last } => Acquisition::TickDone { last },
        })
    }

    /// Runs a job under the lock if it is free.
    ///
    /// The job is polled in the caller's task. When the lock is lost, its future is dropped, unless the lock is
    /// [`cooperative`](Self::cooperative): it stops at its next `.await`; work that it handed to other tasks goes on unless it is stopped by the job itself. A panic of the job
    /// releases the lock and goes on to the caller.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire), and only before the job was started.
    ///
    /// # Cancel safety
    ///
    /// Safe: the job's future is dropped and the lock is released in the background.
    pub async fn run<J, F>(&self, job: J) -> Result<Outcome<F::Output>>
    where
        J: FnOnce(Hold) -> F,
        F: Future,
    {
        let guard = match self.try_acquire().await {
            Ok(Acquisition::Acquired(guard)) => guard,
            Ok(Acquisition::Held(held)) => return Ok(Outcome::Skipped(held)),
            Ok(Acquisition::TickDone { last }) => return Ok(Outcome::TickDone { last }),
            Err(cause) if self.options.fail_open && cause.is_store_down() => {
                return Ok(self.run_unlocked(job, cause).await);
            }
            Err(error) => return Err(error),
        };
        let ended = tokio::select! {
            biased;
            value = job(guard.hold()) => Ok(value),
            loss = guard.lost(), if !self.options.cooperative => Err(loss),
        };
        Ok(match ended {
            Ok(value) => Outcome::Ran {
                value,
                release: guard.release().await,
            },
            Err(loss) => Outcome::Stopped(loss),
        })
    }

    async fn run_unlocked<J, F>(&self, job: J, cause: Error) -> Outcome<F::Output>
    where
        J: FnOnce(Hold) -> F,
        F: Future,
    {
        tracing::warn!("a job runs without its lock, as was chosen: {cause}");
        let hold = EndsWithJob(self.options.without_lock(self.name.clone()));
        tokio::select! {
            biased;
            value = job(hold.0.clone()) => Outcome::RanUnlocked { value, cause },
            _ = hold.0.lost(), if !self.options.cooperative => Outcome::StoppedUnlocked { cause },
        }
    }
}

/// What a job has that runs without a lock, and that ends with it, however it ends.
struct EndsWithJob(Hold);

impl Drop for EndsWithJob {
    fn drop(&mut self) {
        self.0.end();
    }
}
