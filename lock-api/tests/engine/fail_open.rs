//! Jobs that run although the store is down, because that was chosen (promise 13).

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::scripted::{Fault, Scripted};
use distlock_api::{ErrorKind, Hold, Lock, Locks, Outcome, clock};

const SECOND: Duration = Duration::from_secs(1);

fn lock(fault: Fault, at_most: Duration) -> Lock {
    let locks = Locks::new(Scripted::on_acquire([fault]));
    locks.lock("job").unwrap().at_most_for(at_most)
}

/// (U11)
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_keeps_the_job_from_running_unless_it_was_chosen_otherwise() {
    for fault in [Fault::LostAnswer, Fault::SlowAnswer(60 * SECOND)] {
        let error = lock(fault, 60 * SECOND).run(|_| async {}).await;
        assert!(error.unwrap_err().is_store_down());
        let job =
            |hold: Hold| async move { (hold.is_locked(), hold.fencing_token(), hold.is_valid()) };
        let open = lock(fault, 60 * SECOND).fail_open();
        let outcome = open.run(job).await.unwrap();
        let Outcome::RanUnlocked { value, cause } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(value, (false, None, true));
        assert!(cause.is_store_down(), "{cause}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_no_reason_to_run_unlocked() {
    let open = lock(Fault::Refused, 60 * SECOND).fail_open();
    let outcome = open.run(|_| async {}).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Denied);
}

/// The store has answered.
#[tokio::test(start_paused = true)]
async fn a_grant_that_came_too_late_is_no_reason_to_run_unlocked() {
    let late = Fault::SlowAnswer(Duration::from_millis(995));
    let open = lock(late, SECOND).fail_open();
    let error = open.run(|_| async {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(!error.is_store_down(), "{error}");
}

/// A short lease gives the store little time, and silence is silence.
#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_within_a_short_lease_is_down() {
    let open = lock(Fault::SlowAnswer(60 * SECOND), SECOND).fail_open();
    let outcome = open.run(|_| async {}).await.unwrap();
    assert!(
        matches!(outcome, Outcome::RanUnlocked { .. }),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_lock_is_stopped_at_at_most_for() {
    let open = lock(Fault::LostAnswer, 10 * SECOND).fail_open();
    let start = clock::Instant::now();
    let outcome = open.run(|_| pending::<()>()).await.unwrap();
    assert!(start.elapsed() < 11 * SECOND);
    let Outcome::StoppedUnlocked { cause } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(cause.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn what_the_job_has_of_it_ends_with_the_job_however_that_ends() {
    let seen = Arc::new(Mutex::new(None));
    let open = lock(Fault::LostAnswer, 60 * SECOND).fail_open();
    let run = open.run(|hold| {
        *seen.lock().unwrap() = Some(hold);
        pending::<()>()
    });
    assert!(clock::timeout(SECOND, run).await.is_none(), "dropped");
    let hold = seen.lock().unwrap().take().unwrap();
    assert!(!hold.is_valid());
}
