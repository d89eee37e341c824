//! Renews the leases of holders that live.
//!
//! All that is due is renewed on common ticks, many leases in one round trip ([`batch`]). A lease is due a third of its time
//! after its last renewal left, so that two may fail before it ends; a tick takes along what will be due soon. A failed
//! renewal is tried again until the deadline. That a lease is no longer ours is final.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, Semaphore};

use super::{Engine, Span};
use crate::clock::{self, Instant};
use crate::options::{KeepAlive, RENEWALS_PER_LEASE};
use crate::sync::{Mutex, MutexGuard};
use crate::{Hold, LeaseId, LockName};

use batch::Batch;

mod batch;
#[cfg(all(test, shuttle))]
mod races;

/// How many round trips may be under way for leases of about one length: the store has others to serve.
const AT_A_TIME: usize = 3;

/// One more than the binary logarithm of the longest lease in milliseconds.
const LENGTHS: usize = 39;

/// Which part of the time between two renewals a lease may be renewed early, to go along with others.
const EARLY: u32 = 4;

/// The renewals of one engine: each lease is renewed by the runtime in which it was acquired, and ends with it.
#[derive(Debug)]
pub(crate) struct Watchdogs {
    /// Before any lease was asked for.
    epoch: Instant,
    all: Mutex<HashMap<runtime::Id, Weak<Watchdog>>>,
}

impl Watchdogs {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            all: Mutex::default(),
        }
    }

    /// That of a runtime.
    pub(super) fn of(&self, runtime: &Handle) -> Arc<Watchdog> {
        let mut all = self.lock();
        if let Some(watchdog) = all.get(&runtime.id()).and_then(Weak::upgrade) {
            return watchdog;
        }
        all.retain(|_, watchdog| watchdog.strong_count() > 0);
        let watchdog = Arc::new(Watchdog::new(self.epoch));
        all.insert(runtime.id(), Arc::downgrade(&watchdog));
        watchdog
    }

    /// Nobody is left who could hold a lock.
    pub(super) fn close(&self) {
        for watchdog in self.lock().values().filter_map(Weak::upgrade) {
            watchdog.wake.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<runtime::Id, Weak<Watchdog>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The renewals of one runtime.
#[derive(Debug)]
pub(super) struct Watchdog {
    epoch: Instant,
    watched: Mutex<Watched>,
    /// Something is due earlier than planned, or there is nothing to wait for.
    wake: Notify,
    /// By the length of the leases: long ones, whose tries may take long, must not keep short ones waiting.
    under_way: [Semaphore; LENGTHS],
}

#[derive(Debug, Default)]
struct Watched {
    /// By name, so that those who renew the same rows lock them in the same order.
    leases: BTreeMap<Key, Watch>,
    last: u64,
    /// For when the next look is planned; `None` where nothing is, since nobody runs or all sleep.
    planned: Option<Duration>,
    runs: bool,
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
    operation_limit: Duration,
}

impl Watching {
    /// Ends it, and says for how long the lease may still be in force at the server: a renewal that is under way may get
    /// there late.
    pub(super) fn end(self) -> Span {
        let watch = self.watchdog.lock().leases.remove(&self.key);
        let under_way = watch.is_some_and(|watch| watch.in_flight);
        let late = if under_way {
            self.operation_limit
        } else {
            Duration::ZERO
        };
        Span {
            from: Instant::now(),
            length: self.ttl + late,
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watchdog.lock().leases.remove(&self.key);
    }
}

impl Watchdog {
    fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            watched: Mutex::default(),
            wake: Notify::new(),
            under_way: std::array::from_fn(|_| Semaphore::new(AT_A_TIME)),
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
        let limit = engine.capabilities.operation_limit;
        let (watching, runs) = self.add(of, keep_alive, t0, limit);
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
        operation_limit: Duration,
    ) -> (Watching, Option<Runs>) {
        let ttl = keep_alive.ttl;
        let due = self.due_after(t0, ttl);
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
            operation_limit,
        };
        (watching, (!ran).then(|| Runs(Arc::clone(self))))
    }

    /// What is due, or will be soon, in the order of the names.
    fn take_due(&self) -> Vec<(Key, Watch)> {
        let now = self.now();
        let mut watched = self.lock();
        let mut due = Vec::new();
        for (key, watch) in &mut watched.leases {
            let early = match watch.failed {
                false => watch.ttl / RENEWALS_PER_LEASE / EARLY,
                true => Duration::ZERO,
            };
            if watch.due <= now + early && !watch.in_flight {
                watch.in_flight = true;
                due.push((key.clone(), watch.clone()));
            }
        }
        due
    }

    /// Whether there is still somebody to renew it for. What is over for its holder is not renewed, so that others need not
    /// wait for it.
    fn is_wanted(&self, (key, watch): &(Key, Watch)) -> bool {
        let mut watched = self.lock();
        let wanted = watched.leases.contains_key(key) && watch.hold.is_valid();
        if !wanted {
            watched.leases.remove(key);
        }
        wanted
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

    /// When a lease is due that was asked for at `t0`: a random part earlier than it could, which keeps processes from
    /// ticking in step.
    fn due_after(&self, t0: Instant, ttl: Duration) -> Duration {
        let pause = ttl / RENEWALS_PER_LEASE;
        t0.since(&self.epoch) + pause - pause / 8 * u32::from(random()) / 256
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

/// A running watchdog.
struct Runs(Arc<Watchdog>);

impl Drop for Runs {
    fn drop(&mut self) {
        let mut watched = self.0.lock();
        watched.runs = false;
        watched.planned = None;
    }
}

async fn run(runs: Runs, engine: Weak<Engine>, runtime: Handle) {
    let watchdog = &runs.0;
    loop {
        watchdog.due().await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        for batch in Batch::of(watchdog, watchdog.take_due()) {
            runtime.spawn(batch.renew(Arc::clone(&engine)));
        }
    }
}

/// 0 to 255; 0 where the system has no randomness, which only costs the spread.
fn random() -> u8 {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => byte[0],
        Err(_) => 0,
    }
}
