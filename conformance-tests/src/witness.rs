use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use distlock_api::clock::Instant;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, LeaseId, LockBackend, Locks, Release, Renewal, Result,
};

use crate::client::Client;
use crate::failure::Failure;

/// A backend that remembers what the engine above it asked for.
///
/// What the engine does in the background nobody is told. Where its calls take so long that it gives them up, a lock is
/// given back late, however right engine and backend are.
#[derive(Debug)]
pub(crate) struct Witness {
    backend: Arc<dyn LockBackend>,
    renewals: AtomicU64,
    pace: Mutex<Pace>,
}

#[derive(Debug)]
struct Pace {
    /// Calls count from here on, or from their beginning.
    since: Instant,
    slowest: Duration,
}

impl Witness {
    pub(crate) fn of(client: &Client) -> Arc<Self> {
        Arc::new(Self {
            backend: Arc::clone(&client.backend),
            renewals: AtomicU64::new(0),
            pace: Mutex::new(Pace {
                since: Instant::now(),
                slowest: Duration::ZERO,
            }),
        })
    }

    /// The engine above it.
    pub(crate) fn locks(self: &Arc<Self>) -> Locks {
        Locks::from_arc(Arc::clone(self) as Arc<dyn LockBackend>)
    }

    /// How many calls to renew there were.
    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::SeqCst)
    }

    /// From now on there is no reason for a slow call but a slow machine.
    pub(crate) fn no_excuse(&self) {
        *self.pace() = Pace {
            since: Instant::now(),
            slowest: Duration::ZERO,
        };
    }

    /// The failure; or that the machine was too slow to tell, where a call took so long that it was as good as given up.
    pub(crate) fn judge(&self, failure: Failure) -> Failure {
        let slowest = self.pace().slowest;
        match failure {
            Failure::Broken(how) if slowest > self.capabilities().operation_limit / 2 => {
                Failure::stalled(format!("{how}; a call took {slowest:.1?}"))
            }
            other => other,
        }
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) -> Call<'_> {
        Call {
            witness: self,
            began: Instant::now(),
        }
    }
}

/// A call that is under way, until it is answered or dropped.
struct Call<'a> {
    witness: &'a Witness,
    began: Instant,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut pace = self.witness.pace();
        let took = self.began.elapsed().min(pace.since.elapsed());
        pace.slowest = pace.slowest.max(took);
    }
}

#[async_trait]
impl LockBackend for Witness {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let _call = self.call();
        self.backend.try_acquire(request).await
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        let _call = self.call();
        self.backend.renew(leases).await
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let _call = self.call();
        self.backend.release(lease, linger).await
    }
}
