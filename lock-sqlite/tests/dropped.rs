//! What many acquisitions that are dropped at random leave in the file and in the process (J1, promise 8). That they leave
//! no lock is a rule of the family.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Store, granted, request};
use distlock_api::{LockAdmin, LockState, Locks};
use distlock_conformance::{InProcess, leave_nothing_pending};
use sqlx::Executor;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_in_the_file_or_in_the_process() {
    let store = Store::migrated().await;
    let before = InProcess::now();
    let locks = Locks::new(store.backend());
    leave_nothing_pending(&locks, 300).await.unwrap();
    drop(locks);
    before.again().await.unwrap();
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    writer.execute("COMMIT").await.unwrap();
    let backend = store.backend();
    for record in backend.list().await.unwrap() {
        assert_eq!(record.state, LockState::Free, "{record:?}");
    }
    granted(&backend, &request("job-few-0")).await;
}
