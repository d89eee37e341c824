use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::{Capabilities, FencingToken, Findings, LockName, Result, Token};

/// A store of locks: what whoever writes a backend starts with.
///
/// A call is one decision: an implementation does not wait for a lock, does not sleep, and starts no tasks. It may
/// repeat what its server rolled back (a serialization failure, a deadlock, busy), at most five times. Times come
/// from the server's clock; where the local one is needed, from [`clock`](crate::clock) only.
///
/// A backend whose store counts in coarser units rounds the ends of leases and lingers up, never down, and names the
/// unit in its [`Capabilities`].
///
/// Limits, clean-up, deadlines and `at_least_for` are the engine's, which stands above every backend alike.
///
/// # Cancel safety
///
/// A future of this trait that is dropped may leave its request at the server, with or without effect. It must not
/// leave a connection that a later call would find in the middle of something, nor an open transaction.
#[async_trait]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// What this backend can do.
    fn capabilities(&self) -> Capabilities;

    /// Tries once to take the lock.
    ///
    /// Granted when nobody holds the lock by the server's clock and the request's tick, if it has one, is greater than
    /// the last one granted. The token that holds the lock is granted again, with the same or a greater fencing token
    /// and a lease that ends no earlier than before. A token whose lease is over, released or resting is not, as long as
    /// the store remembers it: a request that was under way for long must not take the lock for nobody.
    ///
    /// A backend may send the request again when a connection that was open before turns out dead. If it is then told
    /// that the lock is held, the first request may still be under way: it reports the failure, with
    /// [`Effect::Unknown`](crate::Effect::Unknown), so that the engine cleans up.
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt>;

    /// Moves the ends of leases to now + the given time on the server's clock, never back, in one round trip.
    ///
    /// The answers stand in the order of the questions. A lease that is over, resting, deleted or taken stays so.
    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>>;

    /// Ends a lease, or lets it rest for `linger` more (zero: frees it at once).
    ///
    /// Acts only where the stored token is this lease's and the lease is not over. Releasing a resting lease again
    /// changes nothing and answers [`Release::Released`].
    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release>;
}

/// What operators and tools ask of a store.
///
/// No engine stands above these: an implementation keeps each call within
/// [`operation_limit`](Capabilities::operation_limit) by itself, or answers
/// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout).
///
/// # Errors
///
/// Those of the store. After an error with [`Effect::Unknown`](crate::Effect::Unknown) ask again.
///
/// # Cancel safety
///
/// As for [`LockBackend`].
#[async_trait]
pub trait LockAdmin: LockBackend {
    /// Looks for whatever keeps the store from being used, or weakens a promise: the schema, the rights, the settings.
    ///
    /// Touches no lock. Everything that can be seen at once is told at once, faults first, each with its fix. An error says
    /// that the store could not be looked at: it is not reachable, say, or refuses the user.
    async fn check(&self) -> Result<Findings>;

    /// Makes what [`check`](Self::check) finds missing. Safe to call again, and by many processes at once.
    async fn migrate(&self) -> Result<()>;

    /// The record of one lock, or `None` where the store knows nothing of it.
    async fn inspect(&self, name: &LockName) -> Result<Option<LockRecord>>;

    /// The records of all locks, ordered by name.
    async fn list(&self) -> Result<Vec<LockRecord>>;

    /// Frees a lock whoever holds it, resting ones too; only if its present fencing token is `only_if`, where given.
    ///
    /// The holder is not asked, and goes on until its deadline: what it still does is kept out by the fencing token
    /// only.
    async fn force_release(
        &self,
        name: &LockName,
        only_if: Option<FencingToken>,
    ) -> Result<ForceRelease>;

    /// Deletes the records of locks that have been free for at least this long, and says how many.
    ///
    /// Fencing tokens keep growing: a record is kept where its counter is ahead of the server's clock. The last tick
    /// is forgotten with the record, so choose a time longer than any run can be late.
    async fn purge(&self, free_for: Duration) -> Result<u64>;
}

/// What a backend is asked for when a lock is to be taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// The token of this acquisition.
    pub token: Token,
    /// Who asks, for people: `host/pid` or a label; no control characters, at most 255 bytes.
    pub owner: String,
    /// How long the lease lasts from the server's now; within the range of [`options`](crate::options).
    pub lease: Duration,
    /// The planned run that the lock is taken for.
    pub tick: Option<i64>,
}

impl AcquireRequest {
    /// A request with a new token and no tick.
    pub fn new(name: LockName, owner: impl Into<String>, lease: Duration) -> Self {
        Self {
            name,
            token: Token::random(),
            owner: owner.into(),
            lease,
            tick: None,
        }
    }

    /// The lease that this request asks for.
    pub fn lease_id(&self) -> LeaseId {
        LeaseId {
            name: self.name.clone(),
            token: self.token,
        }
    }
}

/// One acquisition of one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId {
    /// The lock.
    pub name: LockName,
    /// The token of the acquisition.
    pub token: Token,
}

/// The answer to [`LockBackend::try_acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The lock is ours.
    Acquired {
        /// Greater than that of every earlier grant; `None` where the backend has no fencing.
        fencing_token: Option<FencingToken>,
    },
    /// Somebody else has it.
    Held(Held),
    /// The asked tick, or a later one, was granted before: this run is not ours, and never will be.
    TickDone {
        /// The greatest tick granted so far.
        last: i64,
    },
}

/// Who has a lock that was asked for, as far as the store could say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The holder's owner text. `None` where the store does not say: the lock changed hands in that very moment, or was
    /// not taken by this library.
    pub by: Option<String>,
    /// What is left of the lease, on the server's clock; `None` where the store does not say.
    pub remaining: Option<Duration>,
    /// The holder has released it, and `at_least_for` keeps others out.
    pub resting: bool,
}

/// The answer to one renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease now ends no earlier than the asked time after the server got the request.
    Renewed,
    /// The lease is over, for good.
    Lost {
        /// The present holder's owner text, if there is one.
        to: Option<String>,
    },
}

/// The answer to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// The lock was ours and is free, or resting.
    Released,
    /// The lock was no longer ours, and nothing was changed.
    NotHeld {
        /// The present holder's owner text, if there is one.
        by: Option<String>,
    },
}

/// The answer to a forced release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceRelease {
    /// The lock was held or resting and is free now.
    Freed {
        /// The owner text of who had it.
        was: String,
    },
    /// Nobody had it.
    NotHeld,
    /// It is held under another fencing token than the one given, and was left alone.
    OtherFence {
        /// The present fencing token.
        current: Option<FencingToken>,
    },
}

/// What a store knows of one lock. Instants are the server's and are for people only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockRecord {
    /// The lock.
    pub name: LockName,
    /// Whether somebody has it.
    pub state: LockState,
    /// Who has it or had it last.
    pub owner: Option<String>,
    /// When it was last granted.
    pub locked_at: Option<SystemTime>,
    /// When the lease ends or ended.
    pub lock_until: Option<SystemTime>,
    /// What is left of the lease; zero when free.
    pub remaining: Duration,
    /// The fencing token of the last grant.
    pub fencing_token: Option<FencingToken>,
    /// The greatest tick granted so far.
    pub last_tick: Option<i64>,
}

impl LockRecord {
    /// A free lock of which nothing else is known, for backends to fill.
    pub fn new(name: LockName) -> Self {
        Self {
            name,
            state: LockState::Free,
            owner: None,
            locked_at: None,
            lock_until: None,
            remaining: Duration::ZERO,
            fencing_token: None,
            last_tick: None,
        }
    }
}

/// Whether somebody has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockState {
    /// Held.
    Held,
    /// Released, but kept from others until `at_least_for` is over.
    Resting,
    /// Free.
    Free,
}

impl LockState {
    /// `held`, `resting` or `free`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Resting => "resting",
            Self::Free => "free",
        }
    }
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
