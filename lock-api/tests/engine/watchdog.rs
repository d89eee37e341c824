//! Renewals on the paused clock (promises 5 and 7).

use std::time::Duration;

use crate::scripted::{Fault, Scripted};
use distlock_api::{
    Acquisition, ErrorKind, Guard, Lock, LockAdmin, LockName, LockState, Locks, Loss, Outcome,
    Release, clock,
};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(3);

fn lock(backend: &Scripted) -> Lock {
    let locks = Locks::new(backend.clone());
    locks.lock("job").unwrap().watchdog(TTL)
}

async fn acquire(lock: &Lock) -> Guard {
    lock.try_acquire().await.unwrap().acquired().unwrap()
}

/// What is left of the lease by the store's own clock.
async fn left_at_store(backend: &Scripted) -> Duration {
    backend.record("job").await.unwrap().remaining
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_for_as_long_as_its_guard_lives_and_freed_with_it() {
    let backend = Scripted::default();
    let lock = lock(&backend);
    let guard = acquire(&lock).await;
    for _ in 0..600 {
        clock::sleep(100 * MILLI).await;
        assert!(guard.is_valid());
        assert!(guard.remaining() <= left_at_store(&backend).await);
        assert!(matches!(
            lock.try_acquire().await.unwrap(),
            Acquisition::Held(_)
        ));
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_renewed_after_a_release() {
    let backend = Scripted::default();
    let lock = lock(&backend);
    for _ in 0..3 {
        acquire(&lock).await.release().await.unwrap();
        drop(acquire(&lock).await);
        clock::sleep(SECOND).await;
    }
    clock::sleep(60 * SECOND).await;
    assert_eq!(backend.renewals().len(), 0);
    assert_eq!(backend.state("job").await, LockState::Free);
}

/// (U16)
#[tokio::test(start_paused = true)]
async fn at_most_for_bounds_the_hold_even_of_a_forgotten_guard() {
    let backend = Scripted::default();
    let lock = lock(&backend).at_most_for(10 * SECOND);
    let start = clock::Instant::now();
    let guard = acquire(&lock).await;
    let hold = guard.hold();
    std::mem::forget(guard);
    let loss = clock::timeout(60 * SECOND, hold.lost()).await;
    assert!(matches!(loss, Some(Loss::TimeUp)), "{loss:?}");
    let held = start.elapsed();
    assert!((9 * SECOND..10 * SECOND).contains(&held), "{held:?}");
    clock::sleep(SECOND).await;
    assert_eq!(backend.state("job").await, LockState::Free);
}

/// (U13)
#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_until_the_deadline() {
    let backend = Scripted::on_renew([
        Fault::Refused,
        Fault::LostAnswer,
        Fault::SlowAnswer(60 * SECOND),
    ]);
    let guard = acquire(&lock(&backend)).await;
    clock::sleep(60 * SECOND).await;
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_is_a_loss_no_later_than_the_lease_ends_there() {
    let backend = Scripted::on_renew([Fault::Refused; 1000]);
    let guard = acquire(&lock(&backend)).await;
    let loss = guard.lost().await;
    assert!(left_at_store(&backend).await > Duration::ZERO);
    let Loss::NotRenewed { cause: Some(cause) } = loss else {
        panic!("{loss:?}");
    };
    assert_eq!(cause.kind(), ErrorKind::Denied);
    assert_eq!(cause.lock_name(), Some("job"));
    assert!(backend.renewals().len() > 3, "tried again and again");
}

#[tokio::test(start_paused = true)]
async fn that_the_lock_is_anothers_is_final_and_says_whose() {
    let backend = Scripted::default();
    let guard = acquire(&lock(&backend)).await;
    clock::sleep(10 * SECOND).await;
    let name = LockName::new("job").unwrap();
    backend.store.force_release(&name, None).await.unwrap();
    let thief = acquire(&lock(&backend).owner("thief")).await;
    let loss = clock::timeout(TTL / 3 + MILLI, guard.lost()).await;
    assert!(
        matches!(&loss, Some(Loss::Taken { by }) if by == "thief"),
        "{loss:?}"
    );
    assert!(!guard.is_valid());
    assert_eq!(
        guard.release().await.unwrap(),
        Release::NotHeld {
            by: Some("thief".to_owned())
        }
    );
    clock::sleep(10 * SECOND).await;
    assert!(thief.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_freed_by_force_is_gone() {
    let backend = Scripted::default();
    let guard = acquire(&lock(&backend)).await;
    let name = LockName::new("job").unwrap();
    backend.store.force_release(&name, None).await.unwrap();
    let loss = clock::timeout(TTL / 3 + MILLI, guard.lost()).await;
    assert!(matches!(loss, Some(Loss::Gone)), "{loss:?}");
}

/// (B9)
#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_renewal_counts_from_before_it_left() {
    let backend = Scripted::on_renew([Fault::SlowAnswer(400 * MILLI)]);
    let guard = acquire(&lock(&backend)).await;
    let mut before = guard.remaining();
    while guard.remaining() <= before {
        before = guard.remaining();
        clock::sleep(MILLI).await;
    }
    assert!(guard.remaining() <= TTL - 400 * MILLI, "just renewed");
    assert!(guard.remaining() <= left_at_store(&backend).await);
}

/// (U14)
#[tokio::test(start_paused = true)]
async fn an_answer_after_the_deadline_revives_nothing() {
    let backend = Scripted::on_renew([Fault::SlowAnswer(60 * SECOND); 100]);
    let guard = acquire(&lock(&backend)).await;
    let loss = guard.lost().await;
    assert!(
        matches!(&loss, Loss::NotRenewed { cause: Some(cause) } if cause.kind() == ErrorKind::Timeout),
        "{loss:?}"
    );
    clock::sleep(120 * SECOND).await;
    assert!(!guard.is_valid());
    let renewals = backend.renewals().len();
    clock::sleep(120 * SECOND).await;
    assert_eq!(backend.renewals().len(), renewals, "it is given up");
}

#[tokio::test(start_paused = true)]
async fn many_locks_share_few_round_trips_in_the_order_of_their_names() {
    let backend = Scripted::default();
    let locks = Locks::new(backend.clone());
    let mut guards = Vec::new();
    for number in (0..1_000).rev() {
        let lock = locks.lock(format!("job-{number:04}")).unwrap();
        guards.push(acquire(&lock.watchdog(30 * SECOND)).await);
        clock::sleep(10 * MILLI).await;
    }
    let before = backend.renewals().len();
    clock::sleep(100 * SECOND).await;
    let renewals = backend.renewals().split_off(before);
    assert!(renewals.len() <= 100, "{} in 100 s", renewals.len());
    assert!(renewals.iter().flatten().count() >= 10_000);
    assert!(renewals.iter().all(|names| names.is_sorted()));
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_hangs_takes_no_other_down_with_it() {
    let backend = Scripted::hanging_on("job-077");
    let locks = Locks::new(backend.clone());
    let mut guards = Vec::new();
    for number in 0..200 {
        let lock = locks.lock(format!("job-{number:03}")).unwrap();
        guards.push(acquire(&lock.watchdog(TTL)).await);
    }
    clock::sleep(20 * SECOND).await;
    for (number, guard) in guards.iter().enumerate() {
        assert_eq!(guard.is_valid(), number != 77, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_panics_is_asked_again() {
    let backend = Scripted::on_renew([Fault::Panics, Fault::Panics]);
    let guard = acquire(&lock(&backend)).await;
    clock::sleep(20 * SECOND).await;
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn danger_is_told_before_the_loss_and_a_renewal_ends_it() {
    let backend = Scripted::on_renew([Fault::Refused; 15]);
    let guard = acquire(&lock(&backend)).await;
    guard.endangered(SECOND).await;
    assert!(guard.is_valid() && guard.remaining() <= SECOND);
    clock::sleep(SECOND).await;
    assert!(guard.remaining() > SECOND, "renewed after all");
    let calm = clock::timeout(20 * SECOND, guard.endangered(SECOND)).await;
    assert!(calm.is_none(), "no danger while renewals succeed");
}

#[tokio::test(start_paused = true)]
async fn a_job_under_a_watchdog_is_stopped_when_its_lock_is_lost() {
    let backend = Scripted::on_renew([Fault::Refused; 1000]);
    let lock = lock(&backend);
    let run = lock.run(|_| std::future::pending::<()>());
    let outcome = clock::timeout(60 * SECOND, run).await.unwrap().unwrap();
    assert!(
        matches!(outcome, Outcome::Stopped(Loss::NotRenewed { .. })),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn at_least_for_is_kept_by_a_watchdogs_lock_too() {
    let backend = Scripted::default();
    let guard = acquire(&lock(&backend).at_least_for(20 * SECOND)).await;
    clock::sleep(10 * SECOND).await;
    guard.release().await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Resting);
    assert!(left_at_store(&backend).await > 9 * SECOND);
}

/// (C5) Nothing can be renewed then, in real time, and nobody has to be told: the clock says it.
#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "it blocks the runtime on purpose"
)]
fn a_runtime_whose_threads_are_busy_is_a_loss_that_is_plain_from_the_clock() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap().block_on(async {
        let locks = Locks::new(Scripted::default());
        let lock = locks.lock("job").unwrap().watchdog(300 * MILLI);
        let guard = acquire(&lock).await;
        std::thread::sleep(310 * MILLI);
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        let loss = guard.lost().await;
        assert!(matches!(loss, Loss::NotRenewed { .. }), "{loss:?}");
    });
}

/// (J4) As often as it is asked, in a loop of other work.
#[tokio::test(start_paused = true)]
async fn a_loss_can_be_waited_for_again_and_again() {
    let backend = Scripted::on_renew([Fault::Refused; 1000]);
    let guard = acquire(&lock(&backend)).await;
    let mut ticks = 0;
    let loss = loop {
        tokio::select! {
            loss = guard.lost() => break loss,
            () = clock::sleep(100 * MILLI) => ticks += 1,
        }
    };
    assert!((28..30).contains(&ticks), "{ticks}");
    let again = clock::timeout(MILLI, guard.lost()).await;
    assert_eq!(again.map(|again| again.to_string()), Some(loss.to_string()));
}

/// (C8, J5) Each guard is kept by the runtime in which it was acquired, and by no other.
#[test]
fn a_lease_is_renewed_for_as_long_as_its_own_runtime_lives() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let locks = Locks::new(Scripted::default());
    let lock = |name| locks.lock(name).unwrap().watchdog(TTL);
    let (first, second) = (runtime(), runtime());
    let old = first.block_on(acquire(&lock("old")));
    let new = second.block_on(acquire(&lock("new")));
    drop(first);
    second.block_on(async {
        clock::sleep(60 * SECOND).await;
        assert!(
            new.is_valid(),
            "the other runtime had nothing to do with it"
        );
        assert!(!old.is_valid());
        drop(old);
    });
}

#[tokio::test(start_paused = true)]
async fn a_slow_grant_is_renewed_all_the_sooner() {
    let backend = Scripted::on_acquire([Fault::SlowAnswer(2_300 * MILLI)]);
    let guard = acquire(&lock(&backend)).await;
    clock::sleep(60 * SECOND).await;
    assert!(guard.is_valid());
}

/// (U21) What was released while a batch waited for its turn is not renewed.
#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_leaves_out_what_was_released_meanwhile() {
    // Three batches are under way, and the next one waits for them.
    let backend = Scripted::on_renew([Fault::SlowAnswer(400 * MILLI); 3]);
    let locks = Locks::new(backend.clone());
    let mut guards = Vec::new();
    for number in 0..1024 {
        let lock = locks.lock(format!("job-{number:04}")).unwrap();
        guards.push(acquire(&lock.watchdog(TTL)).await);
    }
    while backend.renewals().len() < 3 {
        clock::sleep(MILLI).await;
    }
    let released = LockName::new("job-1023").unwrap();
    guards.pop().unwrap().release().await.unwrap();
    clock::sleep(10 * SECOND).await;
    assert!(
        !backend
            .renewals()
            .iter()
            .flatten()
            .any(|name| *name == released)
    );
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

/// Many long leases whose tries take long, as over connections that a firewall has forgotten.
#[tokio::test(start_paused = true)]
async fn short_leases_do_not_wait_for_long_ones() {
    let backend = Scripted::default();
    let locks = Locks::new(backend.clone());
    let mut long = Vec::new();
    for number in 0..2_000 {
        let lock = locks.lock(format!("long-{number:04}")).unwrap();
        long.push(acquire(&lock.watchdog(15 * SECOND)).await);
    }
    let short = acquire(&locks.lock("short").unwrap().watchdog(TTL)).await;
    backend.hang_on_prefix("long-");
    clock::sleep(14 * SECOND).await;
    assert!(short.is_valid());
}
