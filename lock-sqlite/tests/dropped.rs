//! What many acquisitions that are dropped at random leave in the file and in the process (J1, promise 8). That they leave
//! no lock is a rule of the family.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{Store, granted, request};
use distlock_api::clock::{self, Instant};
use distlock_api::{Lock, LockAdmin, LockState, Locks};
use distlock_conformance::{acquisitions_to_drop, drop_at_random};
use sqlx::Executor;
use tokio::runtime::Handle;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_in_the_file_or_in_the_process() {
    let store = Store::migrated().await;
    let (files, tasks) = (open_files(), tasks());
    let locks = Locks::new(store.backend());
    let count = acquisitions_to_drop(300);
    let options = |lock: Lock| lock.at_most_for(Duration::from_secs(600));
    let began = Instant::now();
    let dropped = drop_at_random(&locks, "job", count, options).await;
    let in_flight = dropped.unwrap().in_flight;
    let ended = Instant::now();
    // Long before their leases would be over.
    locks.shutdown(Duration::from_secs(60)).await.unwrap();
    println!(
        "{count} acquisitions in {:.1?}, {in_flight} dropped in flight; {:.1?} later nothing was pending",
        ended.since(&began),
        ended.elapsed()
    );
    assert!(in_flight > count / 100);
    drop(locks);
    becomes_true(|| open_files() <= files).await;
    becomes_true(|| self::tasks() <= tasks).await;
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    writer.execute("COMMIT").await.unwrap();
    let backend = store.backend();
    for record in backend.list().await.unwrap() {
        assert_eq!(record.state, LockState::Free, "{record:?}");
    }
    granted(&backend, &request("job-few-0")).await;
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

async fn becomes_true(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = clock::timeout(Duration::from_secs(60), waiting).await;
    assert!(done.is_some(), "{} files, {} tasks", open_files(), tasks());
}
