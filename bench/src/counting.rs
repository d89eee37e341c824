//! A backend that counts its renewals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use distlock::clock::Instant;
use distlock::{
    AcquireRequest, Attempt, Capabilities, LeaseId, LockAdmin, LockBackend, Release, Renewal,
    Result, Token,
};

/// Passes everything on.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    inner: Arc<dyn LockAdmin>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    counts: Counts,
    /// Until when each lease is sure to last, less its time to live: when its last request left.
    asked: HashMap<Token, Instant>,
}

/// What happened since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Calls to renew: a round trip each.
    pub(crate) calls: u64,
    /// Leases that they renewed.
    pub(crate) renewed: u64,
    /// Leases that they did not: lost, or an error that is tried again.
    pub(crate) failed: u64,
    /// The longest that a lease had to last: from when its request left to when the next had its answer.
    pub(crate) longest: Duration,
}

impl Counting {
    pub(crate) fn new(inner: Arc<dyn LockAdmin>) -> Self {
        Self {
            inner,
            seen: Arc::default(),
        }
    }

    /// The counts, which begin anew.
    pub(crate) fn take(&self) -> Counts {
        std::mem::take(&mut self.seen().counts)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn renewed(&mut self, lease: &LeaseId, left: Instant, answered: Instant) {
        self.counts.renewed += 1;
        if let Some(before) = self.asked.insert(lease.token, left) {
            self.counts.longest = self.counts.longest.max(answered.since(&before));
        }
    }
}

#[async_trait]
impl LockBackend for Counting {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let left = Instant::now();
        let attempt = self.inner.try_acquire(request).await?;
        if matches!(attempt, Attempt::Acquired { .. }) {
            self.seen().asked.insert(request.token, left);
        }
        Ok(attempt)
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        let left = Instant::now();
        let answers = self.inner.renew(leases).await;
        let answered = Instant::now();
        let mut seen = self.seen();
        seen.counts.calls += 1;
        for ((lease, _), answer) in leases.iter().zip(&answers) {
            match answer {
                Ok(Renewal::Renewed) => seen.renewed(lease, left, answered),
                _ => seen.counts.failed += 1,
            }
        }
        drop(seen);
        answers
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        self.seen().asked.remove(&lease.token);
        self.inner.release(lease, linger).await
    }
}
