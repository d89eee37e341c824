//! What many acquisitions that are dropped at random leave at the server and in the process (J1, promise 8). That they leave
//! no lock is a rule of the family.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::sync::Arc;

use common::{Server, Store, acquire};
use distlock_api::{LockBackend, Locks};
use distlock_conformance::{InProcess, leave_nothing_pending};
use tokio::sync::Mutex;

/// The open files of the process are one number for all, so that the tests of this file take turns.
static TURN: Mutex<()> = Mutex::const_new(());

async fn nothing_is_left_at_the_server_or_in_the_process(server: Server) {
    let _turn = TURN.lock().await;
    let mut store = Store::new(server, "drops").await;
    let before = InProcess::now();
    let backend = Arc::new(store.builder().for_options(store.options()).unwrap());
    acquire(&backend, "warm").await;
    let locks = Locks::from_arc(Arc::clone(&backend) as Arc<dyn LockBackend>);
    leave_nothing_pending(&locks, 500).await.unwrap();
    let held = "SELECT COUNT(*) FROM {} WHERE lock_until > UTC_TIMESTAMP(6) AND name <> 'warm'";
    assert_eq!(store.value::<i64>(held).await, 0);
    drop((locks, backend));
    let mine = store.processes();
    let gone = format!("SELECT COUNT(*) = 0 FROM ({mine}) AS mine");
    server.until(&gone).await;
    before.again().await.unwrap();
    store.close().await;
}

on_both![nothing_is_left_at_the_server_or_in_the_process];
