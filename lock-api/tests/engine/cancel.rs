//! Attempts and releases that were dropped, timed out or got no answer leave nothing behind (promises 8 and 9).

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::scripted::{Fault, Scripted};
use distlock_api::{Effect, ErrorKind, Lock, LockState, Locks, Release, clock};

const SECOND: Duration = Duration::from_secs(1);

fn lock(backend: &Scripted) -> (Locks, Lock) {
    let locks = Locks::new(backend.clone());
    let lock = locks.lock("job").unwrap().at_most_for(60 * SECOND);
    (locks, lock)
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_at_any_poll_leaves_nothing() {
    const YIELDS: usize = 5;
    for polls in 0.. {
        let backend = Scripted::on_acquire([Fault::Yields(YIELDS)]);
        let (locks, lock) = lock(&backend);
        let mut finished = false;
        {
            let mut acquire = pin!(lock.try_acquire());
            for _ in 0..polls {
                let mut context = Context::from_waker(Waker::noop());
                finished = acquire.as_mut().poll(&mut context).is_ready();
            }
        }
        locks.shutdown(SECOND).await.unwrap();
        assert_eq!(backend.state("job").await, LockState::Free, "{polls} polls");
        if finished {
            assert!(polls > 2 * YIELDS);
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_times_out_is_carried_on_and_released() {
    let backend = Scripted::on_acquire([Fault::SlowAnswer(7 * SECOND)]);
    let (locks, lock) = lock(&backend);
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(backend.state("job").await, LockState::Held);
    locks.shutdown(10 * SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
    assert_eq!(backend.releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_never_answered_is_released_all_the_same() {
    let backend = Scripted::on_acquire([Fault::SlowAnswer(3600 * SECOND)]);
    let locks = Locks::new(backend.clone());
    let lock = locks.lock("job").unwrap().at_most_for(60 * SECOND);
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(backend.state("job").await, LockState::Held);
    locks.shutdown(20 * SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

/// (J2) The caller's own time limit ends in the tick in which the grant arrives.
#[tokio::test(start_paused = true)]
async fn a_time_limit_that_ends_with_the_grant_gives_a_guard_or_leaves_nothing() {
    for after in [999, 1_000, 1_001] {
        let backend = Scripted::on_acquire([Fault::SlowAnswer(SECOND)]);
        let locks = Locks::new(backend.clone());
        let lock = locks.lock("job").unwrap().at_most_for(60 * SECOND);
        let limit = Duration::from_millis(after);
        if let Some(acquired) = clock::timeout(limit, lock.try_acquire()).await {
            let guard = acquired.unwrap().acquired().unwrap();
            assert!(guard.is_valid());
            guard.release().await.unwrap();
        }
        locks.shutdown(5 * SECOND).await.unwrap();
        assert_eq!(backend.state("job").await, LockState::Free, "{after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_answer_was_lost_is_released() {
    let backend = Scripted::on_acquire([Fault::LostAnswer]);
    let (locks, lock) = lock(&backend);
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_changed_nothing_is_not_cleaned_up() {
    let backend = Scripted::on_acquire([Fault::Refused]);
    let (locks, lock) = lock(&backend);
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Denied, Effect::None)
    );
    locks.shutdown(SECOND).await.unwrap();
    clock::sleep(60 * SECOND).await;
    assert_eq!(backend.releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_connection_died_is_released_within_its_lease() {
    let backend = Scripted::on_acquire([Fault::ActsLater(9 * SECOND)]);
    let (locks, lock) = lock(&backend);
    lock.try_acquire().await.unwrap_err();
    locks
        .shutdown(SECOND)
        .await
        .expect("nothing at the store to wait for");
    clock::sleep(10 * SECOND).await;
    let granted = backend
        .record("job")
        .await
        .expect("the request arrived")
        .locked_at;
    clock::sleep(10 * SECOND).await;
    assert_eq!(backend.state("job").await, LockState::Free);
    assert_eq!(backend.record("job").await.unwrap().locked_at, granted);
    clock::sleep(60 * SECOND).await;
    assert!(backend.releases() < 12, "{} releases", backend.releases());
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_is_reported_and_goes_on() {
    let faults = [
        Fault::Refused,
        Fault::Refused,
        Fault::ActsLater(600 * SECOND),
    ];
    let backend = Scripted::on_release(faults);
    let (locks, lock) = lock(&backend);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(backend.state("job").await, LockState::Held);
    locks.shutdown(10 * SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
    assert_eq!(backend.releases(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_release_goes_on() {
    let backend = Scripted::on_release([Fault::Yields(3)]);
    let (locks, lock) = lock(&backend);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    {
        let mut release = pin!(guard.release());
        let mut context = Context::from_waker(Waker::noop());
        assert!(release.as_mut().poll(&mut context).is_pending());
    }
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn releasing_ends_with_the_lease_where_the_store_never_answers() {
    let backend = Scripted::on_release(std::iter::repeat_n(Fault::Refused, 1000));
    let (locks, lock) = lock(&backend);
    drop(lock.try_acquire().await.unwrap());
    let error = locks.shutdown(30 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    locks.shutdown(32 * SECOND).await.unwrap();
    let tries = backend.releases();
    assert!((12..30).contains(&tries), "{tries}");
    clock::sleep(60 * SECOND).await;
    assert_eq!(backend.releases(), tries);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_frees_its_lock() {
    let backend = Scripted::default();
    let (locks, lock) = lock(&backend);
    drop(lock.try_acquire().await.unwrap());
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_guard_frees_its_lock_at_the_end_of_the_lease() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    std::mem::forget(lock.try_acquire().await.unwrap());
    clock::sleep(59 * SECOND).await;
    assert_eq!(backend.state("job").await, LockState::Held);
    clock::sleep(2 * SECOND).await;
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_no_lock_is_taken_and_held_ones_stay() {
    let backend = Scripted::default();
    let (locks, lock) = lock(&backend);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    locks.shutdown(SECOND).await.unwrap();
    let error = locks
        .lock("other")
        .unwrap()
        .at_most_for(SECOND)
        .try_acquire()
        .await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Closed);
    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_during_a_shutdown_is_given_back() {
    let backend = Scripted::on_acquire([Fault::SlowAnswer(SECOND)]);
    let (locks, lock) = lock(&backend);
    let lock = lock.at_least_for(30 * SECOND).tick(7);
    let (acquired, shut_down) = tokio::join!(lock.try_acquire(), locks.shutdown(5 * SECOND));
    let error = acquired.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Closed, Effect::Unknown)
    );
    shut_down.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_release_that_somebody_else_waits_for() {
    let backend = Scripted::on_release([Fault::ActsSlowly(SECOND)]);
    let (locks, lock) = lock(&backend);
    let guard = lock.try_acquire().await.unwrap().acquired().unwrap();
    let (released, shut_down) = tokio::join!(guard.release(), async {
        locks.shutdown(5 * SECOND).await.unwrap();
        backend.state("job").await
    });
    assert_eq!(released.unwrap(), Release::Released);
    assert_eq!(shut_down, LockState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_backend_is_cleaned_up_after() {
    let backend = Scripted::on_acquire([Fault::Panics]);
    let (locks, lock) = lock(&backend);
    let attempt = tokio::spawn(async move { lock.try_acquire().await });
    assert!(attempt.await.unwrap_err().is_panic());
    locks.shutdown(SECOND).await.unwrap();
    assert_eq!(backend.state("job").await, LockState::Free);
}

#[test]
fn without_a_runtime_the_error_says_so() {
    let (_locks, lock) = lock(&Scripted::default());
    let mut acquire = pin!(lock.try_acquire());
    let mut context = Context::from_waker(Waker::noop());
    let std::task::Poll::Ready(answer) = acquire.as_mut().poll(&mut context) else {
        panic!("it waits for a runtime");
    };
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

#[test]
fn guards_that_outlive_their_runtime_do_no_harm() {
    let backend = Scripted::default();
    let (_locks, lock) = lock(&backend);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let acquired = runtime.block_on(lock.try_acquire()).unwrap();
    drop(runtime);
    drop(acquired);
}
