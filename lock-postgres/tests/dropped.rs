//! What many acquisitions that are dropped at random leave at the server and in the process (J1, promise 8). That they leave
//! no lock is a rule of the family.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Store, acquire, until};
use distlock_api::clock::{self, Instant};
use distlock_api::{Lock, LockBackend, Locks};
use distlock_conformance::{acquisitions_to_drop, drop_at_random};
use sqlx::postgres::PgConnectOptions;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// The open files of the process are one number for all, so that the tests of this file take turns.
static TURN: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_at_the_server_or_in_the_process() {
    nothing_is_left(|store| store.options()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind_a_pooler() {
    nothing_is_left(|_| common::pooler_options()).await;
}

async fn nothing_is_left(way: fn(&Store) -> PgConnectOptions) {
    let _turn = TURN.lock().await;
    let mut store = Store::new("drops").await;
    let (files, tasks) = (open_files(), tasks());
    let backend = Arc::new(store.builder().for_options(way(&store)).unwrap());
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
    let held = "SELECT count(*) FROM {} WHERE lock_until > clock_timestamp() AND name <> 'warm'";
    assert_eq!(store.value::<i64>(held).await, 0);
    drop((locks, backend));
    at_the_server(&store).await;
    becomes_true(|| open_files() <= files).await;
    becomes_true(|| self::tasks() <= tasks).await;
    store.close().await;
}

/// No session of ours, and where a pooler keeps its own, none that is at work or in a transaction.
async fn at_the_server(store: &Store) {
    let table = &store.table;
    until(&format!(
        "SELECT count(*) = 0 FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND (
             application_name = '{table}' OR query LIKE '%{table}%' AND state <> 'idle'
         )"
    ))
    .await;
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
