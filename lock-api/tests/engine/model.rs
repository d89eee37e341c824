//! Random uses of locks on the paused clock, against a model of what must be true then.

use std::time::Duration;

use crate::scripted::Scripted;
use distlock_api::clock::{self, Instant};
use distlock_api::{
    Acquisition, FencingToken, Guard, Hold, LockAdmin, LockName, LockState, Locks, Release,
};
use proptest::collection::vec;
use proptest::prelude::*;

const NAMES: [&str; 2] = ["one", "two"];
const MILLI: Duration = Duration::from_millis(1);

/// What is done in the background is done by then, where nothing is wrong.
const SETTLED: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(usize, Bounds),
    /// One of the guards that are left, by a release or by its drop.
    Release(usize),
    Drop(usize),
    Wait(Duration),
    /// Nothing reaches the store for so long.
    Outage(Duration),
    Force(usize),
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    watchdog: Option<Duration>,
    at_most: Option<Duration>,
    at_least: Option<Duration>,
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let length = |millis: std::ops::Range<u64>| millis.prop_map(Duration::from_millis);
    let watchdog = prop::option::weighted(0.7, length(1000..3000));
    let at_most = prop::option::of(length(3000..9000));
    let at_least = prop::option::weighted(0.3, length(1..3000));
    (watchdog, at_most, at_least).prop_map(|(watchdog, at_most, at_least)| Bounds {
        watchdog,
        // One of them there must be.
        at_most: at_most.or(watchdog.is_none().then_some(3000 * MILLI)),
        at_least,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let length = |most: u64| (0..most).prop_map(Duration::from_millis);
    prop_oneof![
        4 => (name.clone(), bounds()).prop_map(|(name, bounds)| Step::Acquire(name, bounds)),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Drop),
        4 => length(4000).prop_map(Step::Wait),
        2 => length(1500).prop_map(Step::Outage),
        1 => name.prop_map(Step::Force),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_the_engine_keeps_to_the_model(steps in vec(step(), 1..40)) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for step in steps {
                world.take(step).await;
            }
        });
    }
}

/// The engine above a store, and what the model knows of it.
struct World {
    backend: Scripted,
    locks: Locks,
    held: Vec<Held>,
    /// The greatest fencing token so far, by name.
    fences: [Option<FencingToken>; NAMES.len()],
    /// Until when each name must not be granted, whatever happens but force.
    kept: [Option<(Instant, Duration)>; NAMES.len()],
    /// How long the last outage was, and when it ended.
    away: Duration,
    back_since: Option<Instant>,
}

struct Held {
    guard: Guard,
    name: usize,
    bounds: Bounds,
    since: Instant,
    /// How long the store was away at most, since it is held.
    outage: Duration,
    forced: bool,
    /// It was not valid when last looked at.
    over: bool,
}

impl World {
    fn new() -> Self {
        let backend = Scripted::default();
        Self {
            locks: Locks::new(backend.clone()),
            backend,
            held: Vec::new(),
            fences: [None; NAMES.len()],
            kept: [None; NAMES.len()],
            away: Duration::ZERO,
            back_since: None,
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire(name, bounds) => self.acquire(name, bounds).await,
            Step::Release(which) => self.release(which).await,
            Step::Drop(which) => self.drop(which).await,
            Step::Wait(length) => self.wait(length).await,
            Step::Outage(length) => self.outage(length).await,
            Step::Force(name) => self.force(name).await,
        }
        self.look().await;
    }

    /// Granted if, and only if, the store has the lock for nobody.
    async fn acquire(&mut self, name: usize, bounds: Bounds) {
        let state = self.backend.state(NAMES[name]).await;
        let mut lock = self.locks.lock(NAMES[name]).unwrap();
        if let Some(watchdog) = bounds.watchdog {
            lock = lock.watchdog(watchdog);
        }
        if let Some(at_most) = bounds.at_most {
            lock = lock.at_most_for(at_most);
        }
        if let Some(at_least) = bounds.at_least {
            lock = lock.at_least_for(at_least);
        }
        let since = Instant::now();
        match lock.try_acquire().await.unwrap() {
            Acquisition::Acquired(guard) => {
                assert_eq!(state, LockState::Free);
                let rests = |(since, least): (Instant, Duration)| since.elapsed() < least;
                assert!(!self.kept[name].is_some_and(rests), "it has to rest");
                assert!(guard.fencing_token() > self.fences[name], "fences grow");
                self.fences[name] = guard.fencing_token();
                self.kept[name] = bounds.at_least.map(|least| (since, least));
                self.held.push(Held {
                    guard,
                    name,
                    bounds,
                    since,
                    outage: Duration::ZERO,
                    forced: false,
                    over: false,
                });
            }
            refused => assert_ne!(state, LockState::Free, "{refused:?}"),
        }
    }

    /// A guard that is valid is released, and the lock is free then, or rests.
    async fn release(&mut self, which: usize) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.swap_remove(which % self.held.len());
        let (valid, name, forced) = (held.guard.is_valid(), held.name, held.forced);
        let rests = held
            .bounds
            .at_least
            .is_some_and(|least| held.since.elapsed() < least);
        let release = held.guard.release().await.unwrap();
        if valid && !forced {
            assert_eq!(release, Release::Released);
            let state = self.backend.state(NAMES[name]).await;
            let right = if rests {
                LockState::Resting
            } else {
                LockState::Free
            };
            assert_eq!(state, right);
        }
    }

    async fn drop(&mut self, which: usize) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.swap_remove(which % self.held.len());
        let (fence, name) = (held.guard.fencing_token(), held.name);
        drop(held);
        self.wait(SETTLED).await;
        let record = self.backend.record(NAMES[name]).await.unwrap();
        let is_ours = record.fencing_token == fence;
        assert!(!is_ours || record.state != LockState::Held, "{record:?}");
    }

    async fn force(&mut self, name: usize) {
        let lock_name = LockName::new(NAMES[name]).unwrap();
        self.backend
            .store
            .force_release(&lock_name, None)
            .await
            .unwrap();
        self.kept[name] = None;
        for held in self.held.iter_mut().filter(|held| held.name == name) {
            held.forced = true;
        }
    }

    /// Two outages with too little between them for a renewal are one.
    async fn outage(&mut self, length: Duration) {
        self.away = match self.back_since {
            Some(since) if since.elapsed() < SETTLED => self.away + length,
            _ => length,
        };
        for held in &mut self.held {
            held.outage = held.outage.max(self.away);
        }
        self.backend.set_down(true);
        self.wait(length).await;
        self.backend.set_down(false);
        self.back_since = Some(Instant::now());
    }

    async fn wait(&mut self, length: Duration) {
        let since = Instant::now();
        while since.elapsed() < length {
            clock::sleep(50 * MILLI).await;
            self.look().await;
        }
    }

    /// What must be true at every moment.
    async fn look(&mut self) {
        for name in 0..NAMES.len() {
            let valid = |held: &&Held| held.name == name && held.guard.is_valid() && !held.forced;
            assert!(self.held.iter().filter(valid).count() <= 1, "two holders");
        }
        for index in 0..self.held.len() {
            let held = &mut self.held[index];
            let valid = held.guard.is_valid();
            assert!(!(valid && held.over), "what was lost came back");
            held.over = !valid;
            if let Some(at_most) = held.bounds.at_most {
                assert!(
                    !valid || held.since.elapsed() < at_most,
                    "beyond at_most_for"
                );
            }
            if valid && !held.forced {
                let (hold, name) = (held.guard.hold(), NAMES[held.name]);
                self.is_held_at_store(&hold, name).await;
            } else if !valid && !held.forced {
                assert!(may_be_over(held), "lost for nothing: {:?}", held.bounds);
            }
        }
    }

    /// The deadline is no later than the end of the lease at the store.
    async fn is_held_at_store(&self, hold: &Hold, name: &str) {
        let record = self.backend.record(name).await.unwrap();
        assert_eq!(record.state, LockState::Held);
        assert_eq!(record.fencing_token, hold.fencing_token());
        assert!(hold.remaining() <= record.remaining);
    }
}

/// Whether there is a reason why the lock is no longer held: its time is up, or the store was away for longer than what is
/// always left after a renewal.
fn may_be_over(held: &Held) -> bool {
    let given_away = |length: Duration| length / 100 + 3 * MILLI;
    let bound = held.bounds.at_most;
    let time_up = bound.is_some_and(|most| held.since.elapsed() + given_away(most) >= most);
    let watchdog = held.bounds.watchdog;
    time_up || watchdog.is_some_and(|ttl| held.outage > ttl / 2)
}
