//! Renews the leases of holders that live.
//!
//! All that is due is renewed on common ticks, many leases in one round trip. A lease is due a third of its time after
//! its last renewal, so that two may fail before it ends; a tick takes along what will be due soon. A failed renewal is
//! tried again until the deadline, in ever smaller company: one lease that hangs must not take others down with it. That
//! a lease is no longer ours is final.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use super::{Deadline, Engine, Span};
use crate::clock::{self, Instant};
use crate::options::{KeepAlive, RENEWALS_PER_LEASE, SHORTEST_TRY};
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, ErrorKind, Hold, LeaseId, LockName, Loss, Operation, Renewal, Result};

#[cfg(all(test, shuttle))]
mod races;

/// How many leases go into one round trip: more would keep a server's thread, or rows, for long.
const BATCH: usize = 256;

/// Into how many batches all that is due is split at most, when nothing gets an answer.
const MOST_BATCHES: usize = 64;

/// How many round trips may be under way: the store has others to serve.
const AT_A_TIME: usize = 3;

/// Which part of the time between two renewals a lease may be renewed early, to go along with others.
const EARLY: u32 = 4;

/// The renewals of one engine.
#[derive(Debug)]
pub(crate) struct Watchdog {
    epoch: Instant,
    watched: Mutex<Watched>,
    /// Something is due earlier than planned, or there is nothing to wait for.
    wake: Notify,
    under_way: Semaphore,
}

#[derive(Debug, Default)]
struct Watched {
    /// By name, so that those who renew the same rows lock them in the same order.
    leases: BTreeMap<Key, Watch>,
    last: u64,
    /// For when the next look is planned; `None` where nothing is, since nobody runs or all sleep.
    planned: Option<Duration>,
    runs: bool,
    closed: bool,
}

type Key = (LockName, u64);

/// One lease that is kept alive.
#[derive(Clone, Debug)]
struct Watch {
    lease: LeaseId,
    hold: Hold,
    ttl: Duration,
    bound: Option<Bound>,
    /// Since the epoch.
    due: Duration,
    /// The last try failed.
    failed: bool,
    /// How many tries got no answer since the last renewal, so that its company was made smaller.
    splits: u32,
    in_flight: bool,
}

/// `at_most_for`, counted from before the acquire left.
#[derive(Clone, Copy, Debug)]
struct Bound {
    t0: Instant,
    length: Duration,
}

impl Bound {
    fn left(&self) -> Duration {
        self.length.saturating_sub(self.t0.elapsed())
    }
}

/// A watched lease, until this is dropped: then no renewal leaves any more.
#[derive(Debug)]
pub(crate) struct Watching {
    watchdog: Arc<Watchdog>,
    key: Key,
    ttl: Duration,
}

impl Watching {
    /// How long the lease may still be in force at the server, whatever renewal was last under way.
    pub(crate) fn span(&self) -> Span {
        Span {
            from: Instant::now(),
            length: self.ttl,
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watchdog.lock().leases.remove(&self.key);
    }
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            watched: Mutex::default(),
            wake: Notify::new(),
            under_way: Semaphore::new(AT_A_TIME),
        }
    }

    /// Renews a lease that was acquired at `t0`, in tasks of this runtime.
    pub(super) fn watch(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        runtime: &Handle,
        of: (LeaseId, Hold),
        keep_alive: KeepAlive,
        t0: Instant,
    ) -> Watching {
        let (watching, runs) = self.add(of, keep_alive, t0);
        if let Some(runs) = runs {
            runtime.spawn(run(runs, Arc::downgrade(engine), runtime.clone()));
        }
        watching
    }

    /// One more lease; and what is to be run, where nothing runs.
    fn add(
        self: &Arc<Self>,
        (lease, hold): (LeaseId, Hold),
        keep_alive: KeepAlive,
        t0: Instant,
    ) -> (Watching, Option<Runs>) {
        let ttl = keep_alive.ttl;
        let due = self.now() + self.pause(ttl);
        let mut watched = self.lock();
        watched.last += 1;
        let key = (lease.name.clone(), watched.last);
        let watch = Watch {
            lease,
            hold,
            ttl,
            bound: keep_alive.at_most.map(|length| Bound { t0, length }),
            due,
            failed: false,
            splits: 0,
            in_flight: false,
        };
        watched.leases.insert(key.clone(), watch);
        let ran = std::mem::replace(&mut watched.runs, true);
        if ran && watched.planned.is_none_or(|planned| due < planned) {
            self.wake.notify_one();
        }
        drop(watched);
        let watching = Watching {
            watchdog: Arc::clone(self),
            key,
            ttl,
        };
        (watching, (!ran).then(|| Runs(Arc::clone(self))))
    }

    /// Nobody is left who could hold a lock.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// What is due, or will be soon, in batches.
    fn take_due(&self) -> Vec<Vec<(Key, Watch)>> {
        let now = self.now();
        let mut watched = self.lock();
        let mut by_splits = BTreeMap::<u32, Vec<_>>::new();
        for (key, watch) in &mut watched.leases {
            let early = match watch.failed {
                false => watch.ttl / RENEWALS_PER_LEASE / EARLY,
                true => Duration::ZERO,
            };
            if watch.due <= now + early && !watch.in_flight {
                watch.in_flight = true;
                let due = by_splits.entry(watch.splits).or_default();
                due.push((key.clone(), watch.clone()));
            }
        }
        let batches = by_splits.into_iter().flat_map(|(splits, due)| {
            let size = (BATCH >> (2 * splits).min(8))
                .max(due.len() / MOST_BATCHES)
                .max(1);
            due.chunks(size).map(<[_]>::to_vec).collect::<Vec<_>>()
        });
        batches.collect()
    }

    /// Waits until something is due, or may be.
    async fn due(&self) {
        let next = self.plan();
        let wait = async {
            match next {
                Some(next) => clock::sleep(next.saturating_sub(self.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = self.wake.notified() => {}
        }
    }

    /// When something will be due next; `None` if nothing is watched.
    fn plan(&self) -> Option<Duration> {
        let mut watched = self.lock();
        let idle = watched.leases.values().filter(|watch| !watch.in_flight);
        let next = idle.map(|watch| watch.due).min();
        watched.planned = next;
        next
    }

    /// What came of a try, for a lease that may have been released meanwhile.
    fn settle(&self, key: &Key, settle: impl FnOnce(&mut Watch) -> Keep) {
        let mut watched = self.lock();
        let Some(watch) = watched.leases.get_mut(key) else {
            return;
        };
        watch.in_flight = false;
        match settle(watch) {
            Keep::Until(due) => {
                watch.due = due;
                if watched.planned.is_none_or(|planned| due < planned) {
                    self.wake.notify_one();
                }
            }
            Keep::No => {
                watched.leases.remove(key);
            }
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The time between two renewals, less a random part that keeps processes from ticking in step.
    fn pause(&self, ttl: Duration) -> Duration {
        let pause = ttl / RENEWALS_PER_LEASE;
        pause - pause / 8 * u32::from(random()) / 256
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a lease is to be renewed again.
enum Keep {
    Until(Duration),
    No,
}

/// A running watchdog. When its runtime goes, another may start.
struct Runs(Arc<Watchdog>);

impl Drop for Runs {
    fn drop(&mut self) {
        let mut watched = self.0.lock();
        watched.runs = false;
        watched.planned = None;
        for watch in watched.leases.values_mut() {
            watch.in_flight = false;
        }
    }
}

async fn run(runs: Runs, engine: Weak<Engine>, runtime: Handle) {
    let watchdog = &runs.0;
    loop {
        watchdog.due().await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        for batch in watchdog.take_due() {
            let batch = Batch {
                watchdog: Arc::clone(watchdog),
                leases: batch,
            };
            runtime.spawn(renew(Arc::clone(&engine), batch));
        }
    }
}

/// A batch on its way. If its task ends without an answer, by a panic of the backend, its leases are due again.
struct Batch {
    watchdog: Arc<Watchdog>,
    leases: Vec<(Key, Watch)>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        let now = self.watchdog.now();
        for (key, watch) in self.leases.drain(..) {
            let again = now + watch.retry_pause();
            self.watchdog.settle(&key, |_| Keep::Until(again));
        }
    }
}

/// One round trip for one batch.
async fn renew(engine: Arc<Engine>, mut batch: Batch) {
    let watchdog = &engine.watchdog;
    let Ok(_place) = watchdog.under_way.acquire().await else {
        return;
    };
    let leases = &batch.leases;
    let asked: Vec<_> = leases
        .iter()
        .map(|(_, watch)| (watch.lease.clone(), watch.asks_for()))
        .collect();
    let t0 = Instant::now();
    let limit = try_limit(&engine, leases);
    let answers = clock::timeout(limit, engine.backend.renew(&asked)).await;
    let mut answers = answers.unwrap_or_default();
    // None at all, or from a backend that answers fewer than it was asked.
    answers.resize_with(leases.len(), || Err(timed_out(limit)));
    let leases = std::mem::take(&mut batch.leases);
    for (((key, _), (_, ttl)), answer) in leases.iter().zip(asked).zip(answers) {
        let renewed = Asked { t0, ttl };
        watchdog.settle(key, |watch| watch.learn(&engine, answer, renewed));
    }
}

/// A renewal as it was asked for.
struct Asked {
    t0: Instant,
    ttl: Duration,
}

/// A part of what is left, so that there is time for other tries, and enough for a healthy store to answer. The first
/// finds out whether the connection lives; those after it may have to open another.
fn try_limit(engine: &Engine, batch: &[(Key, Watch)]) -> Duration {
    let left = batch.iter().map(|(_, watch)| watch.hold.remaining()).min();
    let failed = batch.iter().any(|(_, watch)| watch.failed);
    (left.unwrap_or_default() / if failed { 2 } else { 4 })
        .max(SHORTEST_TRY)
        .min(engine.capabilities.operation_limit)
}

impl Watch {
    fn asks_for(&self) -> Duration {
        let bound = self.bound.map_or(Duration::MAX, |bound| bound.left());
        self.ttl.min(bound).max(Duration::from_millis(1))
    }

    /// Between a try that failed and the next.
    fn retry_pause(&self) -> Duration {
        (self.hold.remaining() / 20).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    fn learn(&mut self, engine: &Engine, answer: Result<Renewal>, asked: Asked) -> Keep {
        let watchdog = &engine.watchdog;
        match answer {
            Ok(Renewal::Renewed) => {
                let deadline = Deadline::new(asked.t0, asked.ttl, engine.capabilities.granularity);
                // It reaches the bound, so that there is nothing to renew any more.
                let is_last = asked.ttl < self.ttl;
                if !self.hold.extend(deadline, is_last) || is_last {
                    return Keep::No;
                }
                self.failed = false;
                self.splits = 0;
                Keep::Until(watchdog.now() + watchdog.pause(self.ttl))
            }
            Ok(Renewal::Lost { to: Some(by) }) => self.lost(Loss::Taken { by }),
            Ok(Renewal::Lost { to: None }) => self.lost(Loss::Gone),
            Err(error) => {
                let error = error
                    .during(engine.capabilities.backend, Operation::Renew)
                    .on(&self.lease.name);
                self.failed = true;
                // Perhaps one of the batch hangs on a row. A store that is down is down for all of them.
                if error.kind() == ErrorKind::Timeout {
                    self.splits += 1;
                }
                self.hold.could_not_renew(error);
                match self.hold.is_valid() {
                    true => Keep::Until(watchdog.now() + self.retry_pause()),
                    false => Keep::No,
                }
            }
        }
    }

    fn lost(&self, loss: Loss) -> Keep {
        self.hold.lose(loss);
        Keep::No
    }
}

fn timed_out(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Timeout,
        format!("no answer within {limit:?}: check the network and the store"),
    )
}

/// 0 to 255; 0 where the system has no randomness, which only costs the spread.
fn random() -> u8 {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => byte[0],
        Err(_) => 0,
    }
}
