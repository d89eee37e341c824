//! What each operation costs, counted in the write-ahead log: commits, pages, and whether the write lock was taken.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{LEASE, Store, error_of, granted, name, refused, request};
use distlock_api::{ErrorKind, LeaseId, LockAdmin, LockBackend, Release, Renewal, clock};
use distlock_sqlite::SqliteBackend;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, Executor, Row, SqliteConnection};

/// Commits and pages written so far: <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>.
fn log(store: &Store) -> (usize, usize) {
    let path = store.path().with_extension("db-wal");
    let log = std::fs::read(path).unwrap_or_default();
    let page = 4096 + 24;
    let frames = log.get(32..).unwrap_or_default().chunks_exact(page);
    let commits = frames.clone().filter(|frame| frame[4..8] != [0; 4]);
    (commits.count(), frames.count())
}

/// A store whose log stays open, with one lock in it that was used before.
async fn used_before() -> (Store, SqliteBackend) {
    let store = Store::migrated().await;
    let backend = store.backend();
    let before = request("a");
    granted(&backend, &before).await;
    backend
        .release(&before.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    (store, backend)
}

#[tokio::test]
async fn a_grant_and_a_release_are_one_commit_of_one_page_each() {
    let (store, backend) = used_before().await;
    let (commits, pages) = log(&store);
    let request = request("a");
    granted(&backend, &request).await;
    assert_eq!(log(&store), (commits + 1, pages + 1));
    backend
        .release(&request.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(log(&store), (commits + 2, pages + 2));
}

#[tokio::test]
async fn a_refusal_writes_nothing() {
    let (store, backend) = used_before().await;
    granted(&backend, &request("a")).await;
    let before = log(&store);
    for _ in 0..100 {
        assert!(refused(&backend, "a").await);
    }
    assert_eq!(log(&store), before);
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_who_writes() {
    let (store, _) = used_before().await;
    let impatient = store.impatient(Duration::from_millis(10));
    granted(&impatient, &request("a")).await;
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    assert!(refused(&impatient, "a").await);
    assert!(impatient.inspect(&name("a")).await.unwrap().is_some());
    // The writer was in the way of whoever writes, indeed.
    let busy = impatient.try_acquire(&request("b")).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn a_release_of_what_is_not_held_writes_nothing() {
    let (store, backend) = used_before().await;
    granted(&backend, &request("a")).await;
    let before = log(&store);
    for lock in ["a", "never seen"] {
        let stranger = request(lock).lease_id();
        let answer = backend.release(&stranger, Duration::ZERO).await.unwrap();
        assert!(matches!(answer, Release::NotHeld { .. }), "{answer:?}");
    }
    assert_eq!(log(&store), before);
}

#[tokio::test]
async fn a_hundred_renewals_are_one_commit() {
    let (store, backend) = used_before().await;
    let mut leases: Vec<(LeaseId, Duration)> = Vec::new();
    for i in 0..100 {
        let request = request(&format!("lock {i}"));
        granted(&backend, &request).await;
        leases.push((request.lease_id(), LEASE * 2));
    }
    let (commits, _) = log(&store);
    let answers = backend.renew(&leases).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Ok(Renewal::Renewed)))
    );
    assert_eq!(answers.len(), 100);
    assert_eq!(log(&store).0, commits + 1);
}

#[tokio::test]
async fn a_pool_that_wants_the_file_for_itself_does_not_make_the_locks_do_so() {
    let store = Store::migrated().await;
    let options = SqliteConnectOptions::new()
        .filename(store.path())
        .pragma("locking_mode", "EXCLUSIVE");
    let pool = sqlx::SqlitePool::connect_lazy_with(options);
    let backend = SqliteBackend::builder().pool(&pool).build().unwrap();
    granted(&backend, &request("a")).await;
    assert!(refused(&store.backend(), "a").await);
}

#[tokio::test]
async fn a_new_file_has_a_write_ahead_log_and_an_old_one_keeps_what_it_has() {
    let new = Store::migrated().await;
    assert_eq!(journal(&mut new.connection().await).await, "wal");
    let old = Store::empty();
    old.run("CREATE TABLE theirs (id INTEGER)").await;
    old.backend().migrate().await.unwrap();
    assert_eq!(journal(&mut old.connection().await).await, "delete");
    let backend = old.backend();
    granted(&backend, &request("a")).await;
    assert!(refused(&backend, "a").await);
    let busy = old.impatient(Duration::from_millis(10));
    let mut writer = old.connection().await;
    writer.execute("BEGIN EXCLUSIVE").await.unwrap();
    assert_eq!(error_of(&busy).await.kind(), ErrorKind::Timeout);
    writer.close().await.unwrap();
}

async fn journal(connection: &mut SqliteConnection) -> String {
    let row = connection.fetch_one("PRAGMA journal_mode").await.unwrap();
    row.get(0)
}

#[tokio::test]
async fn the_switch_to_a_write_ahead_log_waits_for_who_writes() {
    // SQLite itself does not wait here: of processes that migrate at once, some would see a busy database (U6).
    let store = Store::empty();
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    let backend = store.backend();
    let end = async {
        clock::sleep(Duration::from_millis(100)).await;
        writer.execute("COMMIT").await.unwrap();
    };
    let (migrated, ()) = tokio::join!(backend.migrate(), end);
    migrated.unwrap();
    assert_eq!(journal(&mut store.connection().await).await, "wal");
}
