//! Transactions that refuse holders whose lock has been granted to somebody else since.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Store, granted, request};
use distlock_api::{Admission, Effect, ErrorKind, FencingToken, LockAdmin, Result, StaleToken};
use distlock_sqlite::Fences;
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};

const fn token(value: u64) -> FencingToken {
    FencingToken::new(value)
}

fn stale(late: u64, seen: u64) -> Admission {
    Admission::Stale(StaleToken {
        token: token(late),
        seen: token(seen),
    })
}

/// A file with fences and something to protect.
async fn stock() -> Store {
    let store = Store::empty();
    store.run("PRAGMA journal_mode = WAL").await;
    store.run(&Fences::default().schema_sql()).await;
    store
        .run("CREATE TABLE stock (writer INTEGER); INSERT INTO stock VALUES (0)")
        .await;
    store
}

async fn admit(database: &mut SqliteConnection, fence: u64) -> Result<Admission> {
    let fences = Fences::default();
    fences.admit(database, "stock", token(fence)).await
}

/// Writes as the holder of a token does.
async fn write(
    database: &mut SqliteConnection,
    fence: u64,
) -> Result<Admission, Box<dyn std::error::Error + Send + Sync>> {
    let mut transaction = database.begin_with("BEGIN IMMEDIATE").await?;
    let admission = admit(&mut transaction, fence).await?;
    if admission == Admission::Admitted {
        let update = sqlx::query("UPDATE stock SET writer = ?1").bind(i64::try_from(fence)?);
        update.execute(&mut *transaction).await?;
        transaction.commit().await?;
    }
    Ok(admission)
}

async fn writer(database: &mut SqliteConnection) -> i64 {
    let writer = sqlx::query_scalar("SELECT writer FROM stock");
    writer.fetch_one(database).await.unwrap()
}

#[tokio::test]
async fn a_stale_token_changes_nothing_and_the_same_one_may_come_again() {
    let store = stock().await;
    let database = &mut store.connection().await;
    let most = i64::MAX.unsigned_abs();
    for (fence, expected, last) in [
        (7, Admission::Admitted, 7),
        (7, Admission::Admitted, 7),
        (10, Admission::Admitted, 10),
        (9, stale(9, 10), 10),
        (10, Admission::Admitted, 10),
        (most, Admission::Admitted, i64::MAX),
        (most - 1, stale(most - 1, most), i64::MAX),
    ] {
        assert_eq!(write(database, fence).await.unwrap(), expected);
        assert_eq!(writer(database).await, last);
    }
}

#[tokio::test]
async fn each_resource_has_a_fence_of_its_own() {
    let store = stock().await;
    let database = &mut store.connection().await;
    let fences = Fences::default();
    let mut transaction = database.begin().await.unwrap();
    for (resource, fence) in [("a", 9), ("A", 3), ("a ", 2), ("", 1)] {
        let admission = fences.admit(&mut transaction, resource, token(fence)).await;
        assert_eq!(admission.unwrap(), Admission::Admitted, "{resource:?}");
    }
}

/// A frozen holder's write arrives when another has the lock (C3).
#[tokio::test]
async fn the_write_of_a_holder_who_lost_the_lock_is_refused() {
    let store = stock().await;
    let backend = store.backend();
    backend.migrate().await.unwrap();
    let frozen = request("stock");
    let old = granted(&backend, &frozen).await;
    backend.force_release(&frozen.name, None).await.unwrap();
    let new = granted(&backend, &request("stock")).await;
    let database = &mut store.connection().await;
    assert_eq!(write(database, new).await.unwrap(), Admission::Admitted);
    assert_eq!(write(database, old).await.unwrap(), stale(old, new));
    assert_eq!(u64::try_from(writer(database).await).unwrap(), new);
}

/// Whoever is in keeps all others out until the commit.
#[tokio::test]
async fn of_many_writers_at_once_the_one_with_the_greatest_token_is_last() {
    let store = stock().await;
    let mut writers = tokio::task::JoinSet::new();
    for i in 0..20 {
        let mut database = store.connection().await;
        writers.spawn(async move { write(&mut database, i * 7 % 20 + 1).await.unwrap() });
    }
    let admissions = writers.join_all().await;
    assert!(admissions.contains(&Admission::Admitted));
    assert_eq!(writer(&mut store.connection().await).await, 20);
}

#[tokio::test]
async fn a_token_of_a_transaction_that_was_rolled_back_is_forgotten_with_it() {
    let store = stock().await;
    let database = &mut store.connection().await;
    let mut transaction = database.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let admission = admit(&mut transaction, 9).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    transaction.rollback().await.unwrap();
    assert_eq!(write(database, 8).await.unwrap(), Admission::Admitted);
}

/// A refusal holds the write lock too: what it told is so until the transaction ends.
#[tokio::test]
async fn a_refusal_keeps_others_out_until_the_end_of_the_transaction() {
    let store = stock().await;
    let database = &mut store.connection().await;
    assert_eq!(write(database, 9).await.unwrap(), Admission::Admitted);
    let mut transaction = database.begin().await.unwrap();
    let admission = admit(&mut transaction, 8).await.unwrap();
    assert_eq!(admission, stale(8, 9));
    let other = &mut store.connection().await;
    other.execute("PRAGMA busy_timeout = 50").await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap_err();
}

#[tokio::test]
async fn a_transaction_that_read_before_others_wrote_is_refused_with_nothing_done() {
    let store = stock().await;
    let (early, late) = (&mut store.connection().await, &mut store.connection().await);
    let mut transaction = early.begin().await.unwrap();
    transaction.execute("SELECT * FROM stock").await.unwrap();
    assert_eq!(write(late, 9).await.unwrap(), Admission::Admitted);
    let error = admit(&mut transaction, 8).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Timeout, Effect::None)
    );
}

/// Nothing would keep another writer out after it.
#[tokio::test]
async fn outside_of_a_transaction_a_token_is_refused_and_not_remembered() {
    let store = stock().await;
    let database = &mut store.connection().await;
    for begin_and_end in [
        ["BEGIN IMMEDIATE", "COMMIT"],
        ["BEGIN", "ROLLBACK"],
        ["SAVEPOINT x", "RELEASE x"],
    ] {
        let error = admit(database, 9).await.unwrap_err();
        let text = "a fence outside of a transaction keeps nobody out: begin one, and admit the token first in it \
                    (config)";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.effect(), Effect::None);
        let [begin, end] = begin_and_end;
        database.execute(begin).await.unwrap();
        let admission = admit(database, 8).await.unwrap();
        assert_eq!(admission, Admission::Admitted);
        database.execute(end).await.unwrap();
    }
}

#[tokio::test]
async fn a_missing_table_says_how_to_make_it() {
    let store = Store::empty();
    let database = &mut store.connection().await;
    database.execute("BEGIN").await.unwrap();
    let fences = Fences::in_table("mine").unwrap();
    let error = fences.admit(database, "stock", token(1)).await.unwrap_err();
    let text = "the table mine is missing: apply what Fences::schema_sql gives (schema_missing)";
    assert_eq!(error.to_string(), text);
    let schema = AssertSqlSafe(fences.schema_sql());
    database.execute(schema).await.unwrap();
    let admission = fences.admit(database, "stock", token(1)).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    assert_eq!(
        Fences::in_table("a b").unwrap_err().kind(),
        ErrorKind::Config
    );
}

#[tokio::test]
async fn a_token_that_does_not_fit_is_an_error_and_lets_nobody_in() {
    let store = stock().await;
    let database = &mut store.connection().await;
    let mut transaction = database.begin().await.unwrap();
    let error = admit(&mut transaction, u64::MAX).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidOption);
    transaction.rollback().await.unwrap();
    assert_eq!(write(database, 0).await.unwrap(), Admission::Admitted);
}

/// The statement of the documentation.
#[tokio::test]
async fn a_column_of_the_row_does_as_well() {
    let docs = include_str!("../src/fencing.rs");
    let update = docs
        .lines()
        .find_map(|line| line.strip_prefix("/// UPDATE stock SET"));
    let update = format!("UPDATE stock SET{}", update.unwrap());
    let store = Store::empty();
    let database = &mut store.connection().await;
    let table = "CREATE TABLE stock (id, quantity, fence INTEGER NOT NULL DEFAULT 0); \
                 INSERT INTO stock VALUES (1, 7, 0)";
    database.execute(table).await.unwrap();
    for (fence, rows) in [(5, 1), (5, 1), (4, 0), (6, 1)] {
        let update = sqlx::query(AssertSqlSafe(update.clone()));
        let update = update.bind(1).bind(fence * 10).bind(fence);
        let done = update.execute(&mut *database).await.unwrap();
        assert_eq!(done.rows_affected(), rows, "{fence}");
    }
}
