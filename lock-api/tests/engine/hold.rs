//! Deadlines, `at_least_for` and jobs on the paused clock (promises 4, 7 and 9).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use crate::scripted::{Fault, Scripted};
use distlock_api::{
    AcquireRequest, Acquisition, Attempt, ErrorKind, Held, Lock, LockAdmin, LockBackend, LockName,
    LockState, Locks, Loss, MemoryBackend, Outcome, Release, clock,
};

const SECOND: Duration = Duration::from_secs(1);

fn lock(backend: &Scripted) -> (Locks, Lock) {
    let locks = Locks::new(backend.clone());
    let lock = locks.lock("job").unwrap().at_most_for(10 * SECOND);
    (locks, lock)
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_before_the_request_left() {
    let backend = Scripted::on_acquire([Fault::SlowAnswer(4 * SECOND)]);
    let (_locks, lock) = lock(&backend);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    assert!(guard.remaining() <= Duration::from_millis(5_898));
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn loss_is_told_before_another_can_hold_the_lock() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    assert!(matches!(guard.lost().await, Loss::TimeUp));
    assert!(!guard.is_valid());
    assert_eq!(backend.state("job").await, LockState::Held);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_given_back() {
    let backend = Scripted::on_acquire([Fault::SlowAnswer(Duration::from_millis(59))]);
    let locks = Locks::new(backend.clone());
    let lock = locks.lock("job").unwrap();
    let error = lock
        .at_most_for(Duration::from_millis(60))
        .try_acquire()
        .await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_quick_job_leaves_its_lock_resting_until_at_least_for_is_over() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let lock = lock.at_least_for(2 * SECOND);
    for _ in 0..3 {
        let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
        clock::sleep(Duration::from_millis(1)).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        clock::sleep(Duration::from_millis(1_990)).await;
        let Acquisition::Held(held) = lock.try_acquire().await.unwrap() else {
            panic!("the lock is free too early");
        };
        assert!(held.resting);
        clock::sleep(Duration::from_millis(40)).await;
        assert_eq!(backend.state("job").await, LockState::Free);
    }
}

#[tokio::test(start_paused = true)]
async fn at_least_for_counts_from_the_answer_and_not_from_the_question() {
    let slow = Duration::from_millis(600);
    let backend = Scripted::on_acquire([Fault::ActsSlowly(slow)]);
    let (_locks, lock) = lock(&backend);
    let lock = lock.at_least_for(2 * SECOND);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    guard.release().await.unwrap();
    clock::sleep(Duration::from_millis(1_900)).await;
    assert_eq!(backend.state("job").await, LockState::Resting);
}

#[tokio::test(start_paused = true)]
async fn at_least_for_holds_for_dropped_guards_too_and_not_beyond_a_longer_job() {
    let backend = Scripted::default();
    let (locks, lock) = lock(&backend);
    let lock = lock.at_least_for(2 * SECOND);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    clock::sleep(3 * SECOND).await;
    guard.release().await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
    drop(lock.try_acquire().await.unwrap());
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Resting);
}

#[tokio::test(start_paused = true)]
async fn a_lock_for_a_job_that_did_not_start_does_not_rest() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let guard = lock.at_least_for(9 * SECOND).try_acquire().await.unwrap();
    let released = guard.acquired().unwrap().release_unused().await.unwrap();
    assert_eq!(released, Release::Released);
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_nobody_used_does_not_rest() {
    let backend = Scripted::on_acquire([Fault::LostAnswer]);
    let (locks, lock) = lock(&backend);
    lock.at_least_for(9 * SECOND)
        .try_acquire()
        .await
        .unwrap_err();
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_value_and_the_release() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let outcome = lock.run(|hold| async move { hold.fencing_token() }).await;
    let Outcome::Ran { value, release } = outcome.unwrap() else {
        panic!("it did not run");
    };
    assert!(value.is_some());
    assert_eq!(release.unwrap(), Release::Released);
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn run_stops_the_job_when_the_lock_is_lost() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let job_alive = Arc::new(());
    let witness = Arc::downgrade(&job_alive);
    let outcome = lock.run(|_| async move { (pending::<()>().await, job_alive) });
    assert!(matches!(
        outcome.await.unwrap(),
        Outcome::Stopped(Loss::TimeUp)
    ));
    assert!(witness.upgrade().is_none(), "the job's future was dropped");
    assert_eq!(
        backend.state("job").await,
        LockState::Held,
        "before the lease's end"
    );
}

#[tokio::test(start_paused = true)]
async fn a_view_of_the_lock_ends_with_its_guard() {
    let backend = Scripted::on_release([Fault::ActsSlowly(SECOND)]);
    let (_locks, lock) = lock(&backend);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    let view = guard.hold();
    let (_released, loss) = tokio::join!(guard.release(), async {
        let loss = view.lost().await;
        (
            loss,
            view.is_valid(),
            view.remaining(),
            backend.state("job").await,
        )
    });
    assert!(
        matches!(
            loss,
            (Loss::Released, false, Duration::ZERO, LockState::Held)
        ),
        "{loss:?}"
    );
    let dropped = lock.try_acquire().await.unwrap().acquired().unwrap().hold();
    assert!(matches!(dropped.lost().await, Loss::Released));
    clock::sleep(SECOND).await;
    let outcome = lock.run(|hold| async move { hold }).await.unwrap();
    let Outcome::Ran { value, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(!value.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_lease_is_over_is_not_granted_again() {
    let store = MemoryBackend::new();
    let name = LockName::new("job").unwrap();
    let request = AcquireRequest::new(name.clone(), "late", SECOND);
    store.try_acquire(&request).await.unwrap();
    store
        .release(&request.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    let late = store.try_acquire(&request).await.unwrap();
    assert_eq!(late, Attempt::Held(Held::default()));
    let record = store.inspect(&name).await.unwrap().unwrap();
    assert_eq!(record.state, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn run_skips_where_another_holds_the_lock_or_has_done_the_tick() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let guard = lock
        .clone()
        .tick(7)
        .owner("first")
        .try_acquire()
        .await
        .unwrap();
    let skipped = lock.run(|_| async { panic!("two holders") }).await.unwrap();
    assert!(matches!(skipped, Outcome::Skipped(held) if held.by.as_deref() == Some("first")));
    drop(guard);
    let done = lock
        .tick(7)
        .run(|_| async { panic!("two runs") })
        .await
        .unwrap();
    assert!(matches!(done, Outcome::TickDone { last: 7 }));
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_a_cancelled_run_frees_the_lock() {
    let backend = Scripted::default();
    let (locks, lock) = lock(&backend);
    let panicking = lock.clone();
    let job = tokio::spawn(async move { panicking.run(|_| async { panic!("job") }).await });
    assert!(job.await.unwrap_err().is_panic());
    clock::sleep(SECOND).await;
    assert_eq!(backend.state("job").await, LockState::Free);
    let cancelled = clock::timeout(SECOND, lock.run(|_| pending::<()>())).await;
    assert!(cancelled.is_none());
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn memory_locks_may_be_held_as_long_as_the_process_lives() {
    let locks = Locks::new(MemoryBackend::new());
    let guard = locks.lock("job").unwrap().try_acquire().await.unwrap();
    let guard = guard.acquired().unwrap();
    clock::sleep(100_000 * SECOND).await;
    assert!(guard.is_valid());
}

#[test]
fn the_surface_can_be_sent_and_shared() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Locks>();
    check::<Lock>();
    check::<distlock_api::Guard>();
    check::<distlock_api::Hold>();
    check::<distlock_api::Error>();
    fn sent<T: Send>(_: &T) {}
    let locks = Locks::new(MemoryBackend::new());
    let lock = locks.lock("job").unwrap();
    sent(&lock.try_acquire());
    sent(&lock.run(|hold| async move { hold.lost().await }));
    sent(&locks.shutdown(SECOND));
}

/// A job that must not be cut off looks after itself.
#[tokio::test(start_paused = true)]
async fn a_cooperative_job_is_waited_for_when_its_lock_is_lost() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let job = |hold: distlock_api::Hold| async move {
        hold.lost().await;
        clock::sleep(5 * SECOND).await;
        hold.is_valid()
    };
    let outcome = lock.cooperative().run(job).await.unwrap();
    let Outcome::Ran { value, release } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(!value, "it was lost");
    assert_eq!(release.unwrap(), Release::NotHeld { by: None });
}
