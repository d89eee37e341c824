//! What many acquisitions that are dropped at random leave at the server and in the process (J1, promise 8). That they leave
//! no lock is a rule of the family.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;

use common::{Store, acquire, until};
use distlock_api::{LockBackend, Locks};
use distlock_conformance::{InProcess, leave_nothing_pending};
use sqlx::postgres::PgConnectOptions;
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
    let before = InProcess::now();
    let backend = Arc::new(store.builder().for_options(way(&store)).unwrap());
    acquire(&backend, "warm").await;
    let locks = Locks::from_arc(Arc::clone(&backend) as Arc<dyn LockBackend>);
    leave_nothing_pending(&locks, 500).await.unwrap();
    let held = "SELECT count(*) FROM {} WHERE lock_until > clock_timestamp() AND name <> 'warm'";
    assert_eq!(store.value::<i64>(held).await, 0);
    drop((locks, backend));
    at_the_server(&store).await;
    before.again().await.unwrap();
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
