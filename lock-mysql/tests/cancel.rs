//! A future that is dropped at any point leaves no lock behind, and no connection in the middle of something.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Server, Store};
use distlock_api::clock::Instant;
use distlock_api::{LockAdmin, LockBackend, LockState, Locks};

async fn acquires_that_are_dropped_at_any_moment_leave_no_lock(server: Server) {
    let store = Store::new(server, "dropped").await;
    let backend = Arc::new(store.backend());
    let locks = Locks::from_arc(Arc::clone(&backend) as Arc<dyn LockBackend>);
    for number in 0..100 {
        let lock = locks.lock(format!("job-{number}")).unwrap();
        let lock = lock.at_most_for(Duration::from_secs(600));
        tokio::select! {
            biased;
            guard = lock.try_acquire() => drop(guard),
            () = moment(Duration::from_micros(number * 20)) => {}
        }
    }
    locks.shutdown(Duration::from_secs(60)).await.unwrap();
    let left = backend.list().await.unwrap();
    let held = left.iter().filter(|record| record.state != LockState::Free);
    assert_eq!(held.count(), 0, "{left:?}");
    store.close().await;
}

/// Waits without a timer, which would be too coarse.
async fn moment(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        tokio::task::yield_now().await;
    }
}

on_both![acquires_that_are_dropped_at_any_moment_leave_no_lock];
