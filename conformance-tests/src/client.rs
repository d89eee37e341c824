use std::sync::Arc;
use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, FencingToken, Held, LeaseId, LockAdmin, LockBackend,
    LockName, LockRecord, LockState, Locks, Release, Renewal,
};

use crate::failure::{Checked, Failure, ensure, ensure_while, must_be};
use crate::store::Opened;

/// How often a rule that waits for a lock asks.
const POLL: Duration = Duration::from_millis(10);

/// A client of the store, in words that rules are written in: an error is a broken rule.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) backend: Arc<dyn LockBackend>,
    admin: Option<Arc<dyn LockAdmin>>,
    patience: Duration,
}

/// A lease that a rule was given.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) request: AcquireRequest,
    pub(crate) fence: Option<FencingToken>,
    /// Before the request left: the lease ends no earlier than this + its length.
    pub(crate) asked: Instant,
    /// When the answer had come: the lease began no later.
    pub(crate) answered: Instant,
    /// The unit in which the store counts.
    unit: Duration,
}

impl Client {
    pub(crate) fn new(opened: Opened, patience: Duration) -> Self {
        Self {
            backend: opened.backend,
            admin: opened.admin,
            patience,
        }
    }

    /// The same, for who has to share a lock with many: it waits as long as a rule may last.
    pub(crate) fn in_a_crowd(mut self) -> Self {
        self.patience *= 3;
        self
    }

    /// The engine above this client.
    pub(crate) fn locks(&self) -> Locks {
        Locks::from_arc(Arc::clone(&self.backend))
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    pub(crate) fn admin(&self) -> Checked<&dyn LockAdmin> {
        let admin = self.admin.as_deref();
        admin.ok_or_else(|| Failure::broken("the rule needs a LockAdmin"))
    }

    /// Asks once. The grant says when, and is one only if the answer is a grant.
    pub(crate) async fn ask(&self, request: &AcquireRequest) -> Checked<(Attempt, Grant)> {
        let asked = Instant::now();
        let attempt = self.backend.try_acquire(request).await?;
        let fence = match &attempt {
            Attempt::Acquired { fencing_token } => *fencing_token,
            _ => None,
        };
        let grant = Grant {
            request: request.clone(),
            fence,
            asked,
            answered: Instant::now(),
            unit: self.capabilities().granularity,
        };
        Ok((attempt, grant))
    }

    /// Asks once, whatever the answer.
    pub(crate) async fn attempt(&self, request: &AcquireRequest) -> Checked<Attempt> {
        Ok(self.ask(request).await?.0)
    }

    /// Asks once, and must be granted the lock.
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Checked<Grant> {
        let (attempt, grant) = self.ask(request).await?;
        must_be!(attempt, Attempt::Acquired { .. } => Ok(grant), "a free lock was not granted")
    }

    /// Asks once, and must be told that somebody has the lock, as long as this grant is one.
    pub(crate) async fn refused(&self, request: &AcquireRequest, by: &Grant) -> Checked<Held> {
        let attempt = self.attempt(request).await?;
        if let Attempt::Held(held) = attempt {
            return Ok(held);
        }
        by.ensure_running()?;
        Err(Failure::broken(format!(
            "{:.1?} after a lock was taken or left to rest for {:.1?}, another who asked was told {attempt:?}",
            by.asked.elapsed(),
            by.request.lease
        )))
    }

    /// Asks until the lock is granted.
    pub(crate) async fn take_when_free(&self, request: &AcquireRequest) -> Checked<Grant> {
        let since = Instant::now();
        loop {
            let (attempt, grant) = self.ask(request).await?;
            match attempt {
                Attempt::Acquired { .. } => return Ok(grant),
                Attempt::TickDone { .. } => {
                    return Err(Failure::broken(format!("unexpected {attempt:?}")));
                }
                Attempt::Held(_) => {}
            }
            ensure!(
                since.elapsed() < self.patience,
                "the lock was still refused after {:.1?}: {attempt:?}",
                since.elapsed()
            );
            clock::sleep(POLL).await;
        }
    }

    /// Asks until the server can be reached, and must be granted the lock then.
    pub(crate) async fn take_when_reachable(&self, request: &AcquireRequest) -> Checked<Grant> {
        let since = Instant::now();
        loop {
            match self.take(request).await {
                Err(Failure::Broken(how)) if since.elapsed() > self.patience => {
                    return Err(Failure::Broken(how));
                }
                Err(_) => clock::sleep(POLL).await,
                Ok(grant) => return Ok(grant),
            }
        }
    }

    /// Renews one lease.
    pub(crate) async fn renew(&self, lease: LeaseId, ttl: Duration) -> Checked<Renewal> {
        let mut answers = self.backend.renew(&[(lease, ttl)]).await;
        ensure!(
            answers.len() == 1,
            "one renewal was asked for, and {} answers came",
            answers.len()
        );
        Ok(answers.remove(0)?)
    }

    /// Renews a grant, which must succeed while it runs; the grant then counts from here.
    pub(crate) async fn prolong(&self, grant: &mut Grant, ttl: Duration) -> Checked {
        let asked = Instant::now();
        let renewal = self.renew(grant.lease(), ttl).await?;
        ensure_while!(
            grant,
            renewal == Renewal::Renewed,
            "a running lease was not renewed: {renewal:?}"
        );
        let left = grant
            .request
            .lease
            .saturating_sub(asked.since(&grant.asked));
        if ttl > left {
            grant.begin_again(asked, Instant::now(), ttl);
        }
        Ok(())
    }

    /// Releases a lease.
    pub(crate) async fn release(&self, lease: &LeaseId, linger: Duration) -> Checked<Release> {
        Ok(self.backend.release(lease, linger).await?)
    }

    /// Frees a grant at once, which must succeed while it runs.
    pub(crate) async fn free(&self, grant: &Grant) -> Checked {
        let release = self.release(&grant.lease(), Duration::ZERO).await?;
        ensure_while!(
            grant,
            release == Release::Released,
            "a running lease was not released: {release:?}"
        );
        Ok(())
    }

    /// Releases a grant so that the lock rests, which must succeed while it runs. The rest is like a grant that counts
    /// from the release.
    pub(crate) async fn rest(&self, grant: &Grant, linger: Duration) -> Checked<Grant> {
        let asked = Instant::now();
        let release = self.release(&grant.lease(), linger).await?;
        ensure_while!(
            grant,
            release == Release::Released,
            "a running lease was not released: {release:?}"
        );
        let mut rest = grant.clone();
        rest.begin_again(asked, Instant::now(), linger);
        Ok(rest)
    }

    /// The record of a lock, of which the store must know.
    pub(crate) async fn record(&self, name: &LockName) -> Checked<LockRecord> {
        let record = self.admin()?.inspect(name).await?;
        record.ok_or_else(|| Failure::broken(format!("the store knows nothing of {name:?}")))
    }

    /// Whether somebody has the lock. Of a free lock the store may know nothing.
    pub(crate) async fn state(&self, name: &LockName) -> Checked<LockState> {
        let record = self.admin()?.inspect(name).await?;
        Ok(record.map_or(LockState::Free, |record| record.state))
    }
}

impl Grant {
    pub(crate) fn name(&self) -> &LockName {
        &self.request.name
    }

    /// The owner's text, as answers give it.
    pub(crate) fn owner(&self) -> Option<String> {
        Some(self.request.owner.clone())
    }

    pub(crate) fn lease(&self) -> LeaseId {
        self.request.lease_id()
    }

    /// Counts from another question and its answer on.
    pub(crate) fn begin_again(&mut self, asked: Instant, answered: Instant, lease: Duration) {
        self.asked = asked;
        self.answered = answered;
        self.request.lease = lease;
    }

    /// What the store's unit and two clocks of one machine may take away from the lease, or add to it.
    fn slack(&self) -> Duration {
        self.unit + self.request.lease / 1000
    }

    /// Stops the rule as stalled where the lease may be over by now.
    pub(crate) fn ensure_running(&self) -> Checked {
        let (elapsed, lease) = (self.asked.elapsed(), self.request.lease);
        if elapsed + self.slack() < lease {
            return Ok(());
        }
        let late =
            format!("{elapsed:.1?} after a lease of {lease:.1?} was asked for, it may be over");
        Err(Failure::stalled(late))
    }

    /// That what the store says is left of the lease is so, as of an answer that was waited for since `asked`.
    pub(crate) fn ensure_remaining(&self, remaining: Option<Duration>, asked: &Instant) -> Checked {
        let most = self
            .request
            .lease
            .saturating_sub(asked.since(&self.answered))
            + self.slack();
        let least = self
            .request
            .lease
            .saturating_sub(self.asked.elapsed() + self.slack());
        ensure!(
            remaining.is_some_and(|left| least <= left && left <= most),
            "between {least:.1?} and {most:.1?} of the lease are left, and the store says {remaining:.1?}"
        );
        Ok(())
    }

    /// Waits until the lease is certainly over on the store's clock, too.
    pub(crate) async fn run_out(&self) {
        let end = self.request.lease + self.slack() + Duration::from_millis(5);
        clock::sleep(end.saturating_sub(self.answered.elapsed())).await;
    }

    /// That a later grant to another kept away for this long after this one. Exact: the store granted this one after
    /// `asked`, and the later one before its answer had come.
    pub(crate) fn kept_others_out(&self, later: &Grant, least: Duration) -> Checked {
        later.came_after(&self.asked, least)
    }

    /// That this grant came no earlier than so long after the other one's question was sent.
    pub(crate) fn came_after(&self, asked: &Instant, least: Duration) -> Checked {
        let gap = self.answered.since(asked);
        ensure!(
            gap + self.unit + least / 1000 >= least,
            "the lock was to be kept from others for {least:.1?}, and was granted to another after {gap:.1?}"
        );
        Ok(())
    }
}
