//! Guard, watchdog, release and shutdown at the same time, in many orders (`cargo xtask races`).

use shuttle::future::block_on;
use shuttle::thread;

use super::*;
use crate::engine::{Background, Deadline};
use crate::sync::{AtomicBool, Ordering};
use crate::{AcquireRequest, Loss};

const HOUR: Duration = Duration::from_secs(3600);

/// Each test is run in so many random orders.
const ORDERS: usize = 5_000;

fn check(test: fn()) {
    shuttle::check_random(test, ORDERS);
    shuttle::check_pct(test, ORDERS, 3);
}

fn hold() -> (LeaseId, Hold) {
    let name = LockName::new("job").unwrap();
    let request = AcquireRequest::new(name.clone(), "owner", HOUR);
    let deadline = Deadline::new(Instant::now(), HOUR, Duration::ZERO);
    let hold = Hold::new(name, "owner".to_owned(), None, deadline, false);
    (request.lease_id(), hold)
}

fn keep_alive(ttl: Duration) -> KeepAlive {
    KeepAlive { ttl, at_most: None }
}

/// A lease that is due at once.
fn watched(watchdog: &Arc<Watchdog>) -> (Watching, Hold) {
    let (lease, hold) = hold();
    let of = (lease, hold.clone());
    let (watching, runs) = watchdog.add(of, keep_alive(HOUR), Instant::now(), HOUR);
    std::mem::forget(runs);
    for watch in watchdog.lock().leases.values_mut() {
        watch.due = Duration::ZERO;
    }
    (watching, hold)
}

#[test]
fn a_loss_wakes_whoever_waits_for_it() {
    check(|| {
        let (_, hold) = hold();
        let waits = {
            let hold = hold.clone();
            thread::spawn(move || block_on(hold.lost()))
        };
        hold.lose(Loss::Gone);
        assert!(matches!(waits.join().unwrap(), Loss::Gone));
    });
}

#[test]
fn an_answer_that_comes_with_the_release_revives_nothing() {
    check(|| {
        let (_, hold) = hold();
        let renewed = {
            let hold = hold.clone();
            let deadline = Deadline::new(Instant::now(), 2 * HOUR, Duration::ZERO);
            thread::spawn(move || hold.extend(deadline, false))
        };
        hold.end();
        assert!(!hold.is_valid(), "it was released");
        renewed.join().unwrap();
        assert!(!hold.is_valid(), "it came back");
    });
}

#[test]
fn no_renewal_leaves_after_a_release() {
    check(|| {
        let watchdog = Arc::new(Watchdog::new(Instant::now()));
        let (watching, hold) = watched(&watchdog);
        let released = Arc::new(AtomicBool::new(false));
        let renews = {
            let (watchdog, released) = (Arc::clone(&watchdog), Arc::clone(&released));
            thread::spawn(move || {
                for lease in watchdog.take_due() {
                    let before = released.load(Ordering::SeqCst);
                    let wanted = watchdog.is_wanted(&lease);
                    assert!(!(before && wanted), "renewed after the release");
                    watchdog.settle(&lease.0, |_| Keep::Until(Duration::ZERO));
                }
            })
        };
        hold.end();
        drop(watching);
        released.store(true, Ordering::SeqCst);
        renews.join().unwrap();
        assert!(watchdog.lock().leases.is_empty(), "an answer put it back");
    });
}

#[test]
fn two_batches_never_take_the_same_lease() {
    check(|| {
        let watchdog = Arc::new(Watchdog::new(Instant::now()));
        let (_watching, _hold) = watched(&watchdog);
        let take = |watchdog: &Arc<Watchdog>| {
            let watchdog = Arc::clone(watchdog);
            thread::spawn(move || watchdog.take_due().len())
        };
        let takers = [take(&watchdog), take(&watchdog)];
        let taken: usize = takers.map(|taker| taker.join().unwrap()).iter().sum();
        assert_eq!(taken, 1);
    });
}

#[test]
fn a_lease_that_is_due_earlier_than_planned_is_seen() {
    check(|| {
        let watchdog = Arc::new(Watchdog::new(Instant::now()));
        let (_watching, _hold) = watched(&watchdog);
        for watch in watchdog.lock().leases.values_mut() {
            watch.due = 2 * HOUR;
        }
        let runner = {
            let watchdog = Arc::clone(&watchdog);
            thread::spawn(move || {
                while watchdog.plan().is_none_or(|due| due > HOUR) {
                    block_on(watchdog.due());
                }
            })
        };
        let (lease, hold) = hold();
        let soon = keep_alive(Duration::from_secs(1));
        let added = watchdog.add((lease, hold), soon, Instant::now(), HOUR);
        runner.join().unwrap();
        drop(added);
    });
}

#[test]
fn a_shutdown_waits_for_every_attempt_that_does_not_see_it() {
    check(|| {
        let background = Arc::new(Background::default());
        let under_way = Arc::new(AtomicBool::new(false));
        let attempt = {
            let (background, under_way) = (Arc::clone(&background), Arc::clone(&under_way));
            thread::spawn(move || {
                let _ticket = background.ticket();
                if !background.is_closed() {
                    under_way.store(true, Ordering::SeqCst);
                    thread::yield_now();
                    under_way.store(false, Ordering::SeqCst);
                }
            })
        };
        background.close();
        block_on(background.idle());
        assert!(!under_way.load(Ordering::SeqCst), "it was not waited for");
        attempt.join().unwrap();
        assert!(!under_way.load(Ordering::SeqCst));
    });
}
