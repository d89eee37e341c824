//! What many acquisitions that are dropped at random leave at the server and in the process (J1, promise 8). That they leave
//! no lock is a rule of the family.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Server, Store, acquire};
use distlock_api::clock::{self, Instant};
use distlock_api::{Lock, LockBackend, Locks};
use distlock_conformance::{acquisitions_to_drop, drop_at_random};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// The open files of the process are one number for all, so that the tests of this file take turns.
static TURN: Mutex<()> = Mutex::const_new(());

async fn nothing_is_left_at_the_server_or_in_the_process(server: Server) {
    let _turn = TURN.lock().await;
    let mut store = Store::new(server, "drops").await;
    let (files, tasks) = (open_files(), tasks());
    let backend = Arc::new(store.builder().for_options(store.options()).unwrap());
    acquire(&backend, "warm").await;
    let locks = Locks::from_arc(Arc::clone(&backend) as Arc<dyn LockBackend>);
    let count = acquisitions_to_drop(500);
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
    let held = "SELECT COUNT(*) FROM {} WHERE lock_until > UTC_TIMESTAMP(6) AND name <> 'warm'";
    assert_eq!(store.value::<i64>(held).await, 0);
    drop((locks, backend));
    let mine = store.processes();
    let gone = format!("SELECT COUNT(*) = 0 FROM ({mine}) AS mine");
    server.until(&gone).await;
    becomes_true(|| open_files() <= files).await;
    becomes_true(|| self::tasks() <= tasks).await;
    store.close().await;
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

on_both![nothing_is_left_at_the_server_or_in_the_process];
