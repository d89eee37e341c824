//! Calls that are dropped in the middle.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{Space, acquire, request};
use distlock_api::{Attempt, LockBackend, Release, clock};

/// Futures dropped at random points, and the release by token behind each on the same backend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_dropped_acquires_leave_no_lock() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let start = clock::Instant::now();
    for i in 0..200 {
        acquire(&backend, &request(&format!("warm-{i}"))).await;
    }
    let usual = start.elapsed() / 200;
    let mut granted_and_dropped = 0;
    for i in 0..10_000u32 {
        let request = request(&format!("job-{}", i % 50));
        let dropped = tokio::select! {
            biased;
            () = busy(usual * (i * 7_919 % 1_500) / 1_000) => true,
            attempt = backend.try_acquire(&request) => {
                assert!(matches!(attempt.unwrap(), Attempt::Acquired { .. }));
                false
            }
        };
        let released = backend.release(&request.lease_id(), Duration::ZERO).await;
        granted_and_dropped += u32::from(dropped && released.unwrap() == Release::Released);
    }
    assert!(
        granted_and_dropped > 100,
        "only {granted_and_dropped} were dropped in time"
    );
    let keys: Vec<String> = space.run(&format!("KEYS {}{{job-*}}", space.prefix)).await;
    assert!(keys.is_empty(), "{keys:?}");
}

/// Waits for less than a timer can.
async fn busy(duration: Duration) {
    let start = clock::Instant::now();
    while start.elapsed() < duration {
        tokio::task::yield_now().await;
    }
}
