//! A file that another program keeps locked for writing: what callers who give up leave, and what becomes of the leases that
//! are to be renewed meanwhile (G1, U11, promise 8). A file has one write lock, so that no lease is stuck alone.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Store, granted, request};
use distlock_api::clock::{self, Instant};
use distlock_api::{Effect, ErrorKind, Guard, LockAdmin, LockBackend, LockState, Locks, Loss};
use distlock_sqlite::SqliteBackend;
use sqlx::{Executor, SqliteConnection};

const SECOND: Duration = Duration::from_secs(1);

/// A backend that has used the file before, which another program is writing to now.
async fn with_writer(store: &Store) -> (Arc<SqliteBackend>, Locks, SqliteConnection) {
    let backend = Arc::new(store.impatient(2 * SECOND));
    granted(&backend, &request("warm")).await;
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    let locks = Locks::from_arc(Arc::clone(&backend) as Arc<dyn LockBackend>);
    (backend, locks, writer)
}

/// Whether anybody has, or had, the lock.
async fn was_taken(backend: &SqliteBackend) -> bool {
    let record = backend.inspect(&common::name("job")).await.unwrap();
    record.is_some()
}

#[tokio::test]
async fn a_dropped_try_stops_waiting_for_the_writer_by_itself_and_takes_nothing() {
    let store = Store::migrated().await;
    let (backend, locks, mut writer) = with_writer(&store).await;
    let job = locks.lock("job").unwrap().at_most_for(600 * SECOND);
    let met = clock::timeout(SECOND / 10, job.try_acquire()).await;
    assert!(met.is_none(), "{met:?}");
    // Nothing is pending any more, although the writer is still at it.
    locks.shutdown(60 * SECOND).await.unwrap();
    writer.execute("COMMIT").await.unwrap();
    assert!(!was_taken(&backend).await);
    granted(&backend, &request("job")).await;
}

#[tokio::test]
async fn a_try_that_times_out_stops_waiting_for_the_writer_and_takes_nothing() {
    let store = Store::migrated().await;
    let (backend, locks, mut writer) = with_writer(&store).await;
    // Shorter than what a connection waits for the writer, so that the caller is told first.
    let short = locks.lock("job").unwrap().at_most_for(SECOND / 4);
    let error = short.try_acquire().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Timeout, Effect::Unknown),
        "{error}"
    );
    locks.shutdown(60 * SECOND).await.unwrap();
    writer.execute("COMMIT").await.unwrap();
    assert!(!was_taken(&backend).await);
    granted(&backend, &request("job")).await;
}

#[tokio::test]
async fn what_is_granted_after_its_caller_gave_up_is_released() {
    let store = Store::migrated().await;
    let (backend, locks, mut writer) = with_writer(&store).await;
    let job = locks.lock("job").unwrap().at_most_for(600 * SECOND);
    let met = clock::timeout(SECOND / 10, job.try_acquire()).await;
    assert!(met.is_none(), "{met:?}");
    writer.execute("COMMIT").await.unwrap();
    locks.shutdown(60 * SECOND).await.unwrap();
    assert!(was_taken(&backend).await, "nothing was granted");
    granted(&backend, &request("job")).await;
}

/// Sixty locks that the watchdog renews, while another program is writing.
async fn sixty_and_a_writer(store: &Store, ttl: Duration) -> (Locks, Vec<Guard>, SqliteConnection) {
    let locks = Locks::new(store.backend());
    let mut guards = Vec::new();
    for number in 0..60 {
        let lock = locks.lock(format!("job-{number}")).unwrap();
        let acquired = lock.watchdog(ttl).try_acquire().await.unwrap();
        guards.push(acquired.acquired().unwrap());
    }
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    (locks, guards, writer)
}

/// How many locks the file says are held.
async fn held(store: &Store) -> usize {
    let records = store.backend().list().await.unwrap();
    let held = records
        .iter()
        .filter(|record| record.state == LockState::Held);
    held.count()
}

#[tokio::test]
async fn sixty_leases_outlive_a_writer_who_is_quicker_than_they_are() {
    let store = Store::migrated().await;
    let ttl = 6 * SECOND;
    let (locks, guards, mut writer) = sixty_and_a_writer(&store, ttl).await;
    let since = Instant::now();
    clock::sleep(ttl / 2).await;
    writer.execute("COMMIT").await.unwrap();
    clock::sleep(ttl.saturating_sub(since.elapsed())).await;
    assert!(guards.iter().all(|guard| guard.is_valid()));
    assert_eq!(held(&store).await, 60);
    drop(guards);
    locks.shutdown(60 * SECOND).await.unwrap();
    assert_eq!(held(&store).await, 0);
}

#[tokio::test]
async fn sixty_leases_that_a_writer_keeps_from_being_renewed_are_lost_before_they_end() {
    let store = Store::migrated().await;
    let (locks, guards, mut writer) = sixty_and_a_writer(&store, SECOND).await;
    while held(&store).await == 60 {
        clock::sleep(Duration::from_millis(5)).await;
    }
    // One is over in the file: none that is over may still be valid here.
    for guard in &guards {
        let record = store.backend().inspect(guard.name()).await.unwrap();
        assert!(record.unwrap().state == LockState::Held || !guard.is_valid());
    }
    for guard in &guards {
        let loss = guard.lost().await;
        assert!(matches!(loss, Loss::NotRenewed { .. }), "{loss}");
    }
    writer.execute("COMMIT").await.unwrap();
    drop(guards);
    locks.shutdown(60 * SECOND).await.unwrap();
    granted(&store.backend(), &request("job-30")).await;
}
