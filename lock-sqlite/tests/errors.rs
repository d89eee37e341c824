//! What goes wrong with the file: each a kind, with nothing done, in one line that says what to do.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{Store, error_of, granted, name, refused, request};
use distlock_api::clock::Instant;
use distlock_api::{
    Effect, Error, ErrorKind, Findings, LockAdmin, LockBackend, LockState, Operation,
};
use distlock_sqlite::SqliteBackend;
use sqlx::{Connection, Executor};

/// The kind, nothing done, one line of text with what to do in it.
#[track_caller]
fn assert_error(error: &Error, kind: ErrorKind, what: &str) {
    let text = error.to_string();
    assert_eq!(
        (error.kind(), error.effect()),
        (kind, Effect::None),
        "{text}"
    );
    assert!(text.contains(what) && text.starts_with("sqlite "), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

/// The same from every operation.
async fn assert_every_operation_fails(backend: &SqliteBackend, kind: ErrorKind, what: &str) {
    let (lock, lease) = (name("a"), request("a").lease_id());
    assert_error(&error_of(backend).await, kind, what);
    assert_error(
        &backend.release(&lease, Duration::ZERO).await.unwrap_err(),
        kind,
        what,
    );
    for answer in backend
        .renew(&[(lease.clone(), common::LEASE), (lease, common::LEASE)])
        .await
    {
        assert_error(&answer.unwrap_err(), kind, what);
    }
    let fault = backend.check().await.and_then(Findings::usable);
    let fault = fault.unwrap_err().during("sqlite", Operation::Check);
    assert_error(&fault, kind, what);
    assert_error(&backend.inspect(&lock).await.unwrap_err(), kind, what);
    assert_error(&backend.list().await.unwrap_err(), kind, what);
    assert_error(
        &backend.force_release(&lock, None).await.unwrap_err(),
        kind,
        what,
    );
    assert_error(
        &backend.purge(Duration::ZERO).await.unwrap_err(),
        kind,
        what,
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made_by_a_typo() {
    let store = Store::empty();
    assert_every_operation_fails(&store.backend(), ErrorKind::Config, "distlock migrate").await;
    assert!(!store.path().exists());
}

#[tokio::test]
async fn a_file_is_made_where_that_was_asked_for() {
    let store = Store::empty();
    let url = format!(
        "sqlite://{}?mode=rwc&lock_table=mine",
        store.path().display()
    );
    let backend = SqliteBackend::connect(&url).await.unwrap();
    granted(&backend, &request("a")).await;
    let other = SqliteBackend::builder()
        .file(store.path())
        .table("mine")
        .build()
        .unwrap();
    assert!(refused(&other, "a").await);
    // A file that is there without the table gets it, too.
    let more = SqliteBackend::builder()
        .file(store.path())
        .table("more")
        .create(true)
        .build()
        .unwrap();
    granted(&more, &request("a")).await;
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_not_made() {
    let store = Store::empty();
    let builder = SqliteBackend::builder().file(store.path().join("deeper/locks.db"));
    let backend = builder.create(true).build().unwrap();
    let missing = "does not exist: make it";
    assert_error(&error_of(&backend).await, ErrorKind::Config, missing);
    assert_error(
        &backend.migrate().await.unwrap_err(),
        ErrorKind::Config,
        missing,
    );
}

#[tokio::test]
async fn a_directory_is_no_file() {
    let store = Store::empty();
    std::fs::create_dir(store.path()).unwrap();
    let backend = store.backend();
    assert_every_operation_fails(&backend, ErrorKind::Config, "is a directory").await;
    assert_error(
        &backend.migrate().await.unwrap_err(),
        ErrorKind::Config,
        "is a directory",
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_or_a_device_is_no_file() {
    let pipe = Store::empty();
    let mut mkfifo = std::process::Command::new("mkfifo");
    assert!(mkfifo.arg(pipe.path()).status().unwrap().success());
    let device = Store::empty();
    std::os::unix::fs::symlink("/dev/null", device.path()).unwrap();
    for store in [pipe, device] {
        let backend = store.backend();
        let what = "is no regular file";
        assert_every_operation_fails(&backend, ErrorKind::Config, what).await;
        assert_error(
            &backend.migrate().await.unwrap_err(),
            ErrorKind::Config,
            what,
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_to_nothing_is_told_as_such_by_a_migration_too() {
    let store = Store::empty();
    std::os::unix::fs::symlink("nowhere/locks.db", store.path()).unwrap();
    assert_error(
        &store.backend().migrate().await.unwrap_err(),
        ErrorKind::Config,
        "is a symbolic link that leads to nothing",
    );
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_alone() {
    let store = Store::empty();
    let text = "the quick brown fox ".repeat(1000);
    std::fs::write(store.path(), &text).unwrap();
    let backend = store.backend();
    assert_every_operation_fails(&backend, ErrorKind::Config, "no SQLite database").await;
    assert_error(
        &backend.migrate().await.unwrap_err(),
        ErrorKind::Config,
        "no SQLite database",
    );
    assert_eq!(std::fs::read_to_string(store.path()).unwrap(), text);
}

#[tokio::test]
async fn a_missing_table_says_how_to_make_it() {
    let store = Store::empty();
    store.run("CREATE TABLE theirs (id INTEGER)").await;
    let backend = store.backend();
    assert_every_operation_fails(&backend, ErrorKind::SchemaMissing, "distlock migrate").await;
    // Nothing negative is remembered (U5).
    backend.migrate().await.unwrap();
    granted(&backend, &request("a")).await;
}

#[tokio::test]
async fn a_table_that_is_dropped_in_mid_life_is_missing_too() {
    let store = Store::migrated().await;
    let backend = store.backend();
    granted(&backend, &request("a")).await;
    store.run("DROP TABLE distlock_locks").await;
    assert_every_operation_fails(&backend, ErrorKind::SchemaMissing, "distlock migrate").await;
}

#[tokio::test]
async fn a_table_of_another_shape_is_refused_before_any_lock_is_touched() {
    let ours = distlock_sqlite::schema_sql("distlock_locks").unwrap();
    for (from, to, what) in [
        (
            "boot_until INTEGER",
            "boot_until TEXT   ",
            "boot_until that is not INTEGER",
        ),
        ("last_tick  INTEGER,", "", "has no column last_tick"),
        (
            "NOT NULL PRIMARY KEY",
            "NOT NULL PRIMARY KEY COLLATE NOCASE",
            "primary key",
        ),
        (
            "fence      INTEGER NOT NULL",
            "fence INTEGER",
            "fence that is not INTEGER NOT NULL",
        ),
        (
            "last_tick  INTEGER",
            "extra TEXT NOT NULL, last_tick INTEGER",
            "extra that wants a value",
        ),
        ("last_tick  INTEGER", "extra TEXT, last_tick INTEGER", ""),
        (
            "last_tick  INTEGER",
            "extra TEXT NOT NULL DEFAULT '', last_tick INTEGER",
            "",
        ),
    ] {
        let store = Store::empty();
        assert!(ours.contains(from));
        store.run(&ours.replace(from, to)).await;
        let backend = store.backend();
        if what.is_empty() {
            backend.check().await.unwrap().usable().unwrap();
        } else {
            assert_every_operation_fails(&backend, ErrorKind::Config, what).await;
            assert_error(
                &backend.migrate().await.unwrap_err(),
                ErrorKind::Config,
                what,
            );
        }
    }
}

#[tokio::test]
async fn a_table_with_another_primary_key_and_a_view_are_refused() {
    let store = Store::empty();
    let ours = distlock_sqlite::schema_sql("a").unwrap();
    let keyless = ours
        .replace(" PRIMARY KEY", "")
        .replace(" WITHOUT ROWID", "");
    store.run(&keyless).await;
    store.run("CREATE VIEW b AS SELECT * FROM a").await;
    for table in ["a", "b"] {
        let backend = SqliteBackend::builder()
            .file(store.path())
            .table(table)
            .build()
            .unwrap();
        assert_error(&error_of(&backend).await, ErrorKind::Config, "");
    }
}

#[tokio::test]
async fn a_file_opened_for_reading_is_read_only_and_never_held() {
    let store = Store::migrated().await;
    let url = format!("sqlite://{}?mode=ro", store.path().display());
    let backend = SqliteBackend::connect(&url).await.unwrap();
    let what = "cannot be written";
    assert_error(&error_of(&backend).await, ErrorKind::ReadOnly, what);
    let held = request("held");
    granted(&store.backend(), &held).await;
    let release = backend.release(&held.lease_id(), Duration::ZERO).await;
    assert_error(&release.unwrap_err(), ErrorKind::ReadOnly, what);
    // Looking is allowed.
    assert_eq!(backend.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_writer_who_stays_is_a_timeout_in_time_with_nothing_done() {
    // (G1)
    let store = Store::migrated().await;
    let limit = Duration::from_millis(500);
    let backend = store.impatient(limit);
    let mut writer = store.connection().await;
    writer.execute("BEGIN EXCLUSIVE").await.unwrap();
    let asked = request("a");
    let start = Instant::now();
    let error = backend.try_acquire(&asked).await.unwrap_err();
    let took = start.elapsed();
    assert_error(&error, ErrorKind::Timeout, "kept the file locked");
    assert!(error.is_retryable());
    assert!(
        took >= limit * 4 / 5 - Duration::from_millis(100),
        "did not wait: {took:?}"
    );
    assert!(took < limit * 4, "{took:?}");
    writer.execute("ROLLBACK").await.unwrap();
    assert!(backend.inspect(&asked.name).await.unwrap().is_none());
    granted(&backend, &request("a")).await;
}

#[tokio::test]
async fn a_record_that_was_changed_by_hand_is_an_error_of_its_own_only() {
    let store = Store::migrated().await;
    let backend = store.backend();
    for lock in ["a", "b", "c"] {
        granted(&backend, &request(lock)).await;
    }
    store
        .run("UPDATE distlock_locks SET token = x'00' WHERE name = 'a'")
        .await;
    store
        .run("UPDATE distlock_locks SET boot_until = 'soon' WHERE name = 'b'")
        .await;
    for lock in ["a", "b"] {
        let error = backend.try_acquire(&request(lock)).await.unwrap_err();
        assert_error(&error, ErrorKind::Config, "changed by hand");
    }
    assert!(refused(&backend, "c").await);
}

#[tokio::test]
async fn a_fencing_counter_at_its_end_is_an_error_and_not_a_smaller_number() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let first = request("a");
    granted(&backend, &first).await;
    backend
        .release(&first.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    store
        .run("UPDATE distlock_locks SET fence = 9223372036854775807")
        .await;
    assert_error(
        &error_of(&backend).await,
        ErrorKind::Config,
        "fencing counter",
    );
    let record = backend.inspect(&first.name).await.unwrap().unwrap();
    assert_eq!(record.state, LockState::Free);
}

#[tokio::test]
async fn a_file_that_is_replaced_under_an_open_connection_is_opened_anew() {
    let store = Store::migrated().await;
    let long_lived = store.backend();
    granted(&long_lived, &request("a")).await;
    for end in ["db", "db-wal", "db-shm"] {
        let _ = std::fs::remove_file(store.path().with_extension(end));
    }
    assert_error(
        &error_of(&long_lived).await,
        ErrorKind::Config,
        "there is no file",
    );
    store.backend().migrate().await.unwrap();
    granted(&store.backend(), &request("a")).await;
    assert!(refused(&long_lived, "a").await);
}

#[tokio::test]
async fn the_users_own_transaction_is_untouched() {
    // (U10)
    let store = Store::migrated().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path());
    let pool = sqlx::sqlite::SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .unwrap();
    let backend = SqliteBackend::builder().pool(&pool).build().unwrap();
    let mut theirs = pool.acquire().await.unwrap();
    let mut transaction = theirs.begin().await.unwrap();
    transaction
        .execute("SELECT count(*) FROM distlock_locks")
        .await
        .unwrap();
    // Their only connection is in use, and in a transaction: ours waits for neither.
    granted(&backend, &request("a")).await;
    transaction
        .execute("SELECT count(*) FROM distlock_locks")
        .await
        .unwrap();
    transaction.commit().await.unwrap();
}
