//! Fencing at the resource: a stale holder writes nothing, whatever the isolation level.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::{Store, acquire, session, unique};
use distlock_api::{
    Admission, Effect, ErrorKind, FencingToken, LockBackend, Result, StaleToken, clock,
};
use distlock_postgres::{Fences, Table};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::task::JoinSet;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn token(value: u64) -> FencingToken {
    FencingToken::new(value)
}

/// Fences in a table of the test's own.
struct Guarded {
    fences: Fences,
    store: Store,
}

impl Guarded {
    async fn new(label: &str) -> Self {
        let mut store = Store::without_table(label).await;
        let fences = Fences::in_table(Table::new(&store.table).unwrap());
        store.run(&fences.schema_sql()).await;
        Self { fences, store }
    }

    async fn admit(&self, connection: &mut PgConnection, value: u64) -> Result<Admission> {
        self.fences.admit(connection, "stock", token(value)).await
    }

    /// The same in a transaction of its own.
    async fn commit(&self, value: u64) -> Admission {
        let mut session = session().await;
        begin(&mut session, "READ COMMITTED").await;
        let admission = self.admit(&mut session, value).await.unwrap();
        session.execute("COMMIT").await.unwrap();
        admission
    }
}

async fn begin(session: &mut PgConnection, level: &str) {
    let begin = AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
    session.execute(begin).await.unwrap();
}

fn stale(value: u64, seen: u64) -> Admission {
    let (token, seen) = (token(value), token(seen));
    Admission::Stale(StaleToken { token, seen })
}

#[tokio::test]
async fn a_greater_token_shuts_the_smaller_ones_out_at_every_level() {
    let guarded = Guarded::new("greater").await;
    let mut last = 0;
    for level in LEVELS {
        let mut session = session().await;
        for (value, expected) in [
            (last + 5, Admission::Admitted),
            (last + 5, Admission::Admitted),
            (last + 9, Admission::Admitted),
            (last + 8, stale(last + 8, last + 9)),
        ] {
            begin(&mut session, level).await;
            let admission = guarded.admit(&mut session, value).await.unwrap();
            assert_eq!(admission, expected, "{level}");
            session.execute("COMMIT").await.unwrap();
        }
        last += 9;
    }
    guarded.store.close().await;
}

#[tokio::test]
async fn what_was_rolled_back_was_not_seen() {
    let guarded = Guarded::new("rolled").await;
    let mut transaction = session().await;
    let mut transaction = transaction.begin().await.unwrap();
    let admission = guarded.admit(&mut transaction, 9).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    transaction.rollback().await.unwrap();
    assert_eq!(guarded.commit(8).await, Admission::Admitted);
    guarded.store.close().await;
}

#[tokio::test]
async fn resources_do_not_mix_and_may_have_any_name() {
    let mut guarded = Guarded::new("names").await;
    let names = ["stock", "Stock", "stock ", r"it's \ $1 ö", ""];
    for (value, resource) in [5, 4, 3, 2, 1].into_iter().zip(names) {
        let mut transaction = guarded.store.session.begin().await.unwrap();
        let admission = guarded
            .fences
            .admit(&mut transaction, resource, token(value))
            .await;
        assert_eq!(admission.unwrap(), Admission::Admitted, "{resource}");
        transaction.commit().await.unwrap();
    }
    let stored = "SELECT array_agg(resource ORDER BY fence DESC) FROM {}";
    assert_eq!(guarded.store.value::<Vec<String>>(stored).await, names);
    guarded.store.close().await;
}

/// Lets a token in, starts another transaction that has to wait, and commits the first; what the second is told.
async fn behind(guarded: &mut Guarded, level: &str, first: u64, second: u64) -> Result<Admission> {
    let application = unique("behind");
    let mut holder = session().await;
    begin(&mut holder, "READ COMMITTED").await;
    let admission = guarded.admit(&mut holder, first).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    let options = common::options().application_name(&application);
    let mut late = PgConnection::connect_with(&options).await.unwrap();
    begin(&mut late, level).await;
    let waiting = common::until_waits(&application);
    let (admission, ()) = tokio::join!(guarded.admit(&mut late, second), async {
        waiting.await;
        holder.execute("COMMIT").await.unwrap();
    });
    admission
}

#[tokio::test]
async fn who_waited_for_a_greater_token_is_stale_or_has_to_begin_again() {
    let mut guarded = Guarded::new("waited").await;
    let mut last = 0;
    // The first of each level waits for an insert, the second for an update.
    for (turn, level) in LEVELS
        .into_iter()
        .flat_map(|level| [(0, level), (1, level)])
    {
        last += 10;
        let admission = behind(&mut guarded, level, last, last - 1).await;
        match level {
            "READ COMMITTED" => assert_eq!(admission.unwrap(), stale(last - 1, last)),
            _ => {
                let error = admission.unwrap_err();
                assert_eq!(
                    (error.kind(), error.effect(), error.is_retryable()),
                    (ErrorKind::Unavailable, Effect::None, true),
                    "{error}"
                );
                assert!(error.to_string().contains("40001"), "{error}");
            }
        }
        if turn == 1 {
            guarded.store.run("DELETE FROM {}").await;
        }
    }
    guarded.store.close().await;
}

#[tokio::test]
async fn who_waited_for_a_smaller_token_is_let_in() {
    let mut guarded = Guarded::new("smaller").await;
    let admission = behind(&mut guarded, "READ COMMITTED", 5, 6).await;
    assert_eq!(admission.unwrap(), Admission::Admitted);
    guarded.store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_race_of_first_inserts_what_is_written_last_has_the_greatest_token() {
    let mut guarded = Guarded::new("race").await;
    guarded
        .store
        .run("CREATE TABLE {}_log (number serial, fence bigint)")
        .await;
    for level in LEVELS {
        guarded.store.run("TRUNCATE {}, {}_log").await;
        let mut writers = JoinSet::new();
        for value in (1..=16).rev() {
            let (fences, table) = (guarded.fences.clone(), guarded.store.table.clone());
            writers.spawn(async move { write(&fences, &table, level, value).await });
        }
        let written = writers.join_all().await;
        assert!(written.iter().any(|written| *written), "{level}");
        let order = "SELECT bool_and(fence = greatest) FROM (
                         SELECT fence, max(fence) OVER (ORDER BY number) AS greatest FROM {}_log) AS log";
        assert!(guarded.store.value::<bool>(order).await, "{level}");
        let last = "SELECT max(fence) = 16 AND max(fence) = (SELECT fence FROM {}) FROM {}_log";
        assert!(guarded.store.value::<bool>(last).await, "{level}");
    }
    guarded.store.run("DROP TABLE {}_log").await;
    guarded.store.close().await;
}

/// Writes down its token, again and again while others get in its way; false if it is stale.
async fn write(fences: &Fences, table: &str, level: &str, value: u64) -> bool {
    let mut session = session().await;
    loop {
        begin(&mut session, level).await;
        let written = match fences.admit(&mut session, "stock", token(value)).await {
            Ok(Admission::Stale(_)) => false,
            Ok(Admission::Admitted) => {
                let insert = format!("INSERT INTO {table}_log (fence) VALUES ({value})");
                session.execute(AssertSqlSafe(insert)).await.unwrap();
                true
            }
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                session.execute("ROLLBACK").await.unwrap();
                continue;
            }
        };
        match session.execute("COMMIT").await {
            Ok(_) => return written,
            Err(_) => continue,
        }
    }
}

#[tokio::test]
async fn a_holder_that_lost_its_lock_writes_nothing() {
    // (C2, C3)
    let mut locks = Store::new("lost").await;
    let backend = locks.backend();
    let guarded = Guarded::new("holder").await;
    let (frozen, old) = acquire(&backend, "job").await;
    locks
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    let (_, new) = acquire(&backend, "job").await;
    assert_eq!(guarded.commit(new).await, Admission::Admitted);
    let admission = guarded.commit(old).await;
    assert_eq!(admission, stale(old, new));
    assert!(admission.admitted().is_err());
    backend
        .release(&frozen.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    guarded.store.close().await;
    locks.close().await;
}

#[tokio::test]
async fn outside_of_a_transaction_nobody_is_let_in() {
    let mut guarded = Guarded::new("outside").await;
    for _ in 0..2 {
        let error = guarded.admit(&mut session().await, 1).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Config, Effect::None)
        );
        assert!(error.to_string().contains("begin one"), "{error}");
    }
    assert_eq!(
        guarded.store.value::<i64>("SELECT count(*) FROM {}").await,
        0
    );
    guarded.store.close().await;
}

#[tokio::test]
async fn a_missing_table_and_a_token_that_is_none_are_told_as_such() {
    let guarded = Guarded::new("bad").await;
    let mut session = session().await;
    let mut transaction = session.begin().await.unwrap();
    let error = guarded.admit(&mut transaction, u64::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    let table = unique("nowhere");
    let fences = Fences::in_table(Table::new(&table).unwrap());
    let error = fences
        .admit(&mut transaction, "stock", token(1))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::SchemaMissing, Effect::None)
    );
    let text = format!("the table \"{table}\" is missing: apply what Fences::schema_sql gives");
    assert_eq!(error.message(), text);
    guarded.store.close().await;
}

#[tokio::test]
async fn the_recipe_with_a_column_refuses_a_stale_token() {
    let mut store = Store::without_table("recipe").await;
    store
        .run("CREATE TABLE {} (id int PRIMARY KEY, quantity int, fence bigint NOT NULL DEFAULT 0); INSERT INTO {} VALUES (1, 0)")
        .await;
    let recipe = "UPDATE stock SET quantity = $2, fence = $3 WHERE id = $1 AND fence <= $3";
    let recipe = recipe.replace("stock", &store.table);
    for (quantity, fence, rows) in [(5, 7_i64, 1), (6, 7, 1), (7, 6, 0), (8, 8, 1)] {
        let update = sqlx::query(AssertSqlSafe(recipe.clone()))
            .bind(1)
            .bind(quantity);
        let done = update
            .bind(fence)
            .execute(&mut store.session)
            .await
            .unwrap();
        assert_eq!(done.rows_affected(), rows, "{fence}");
    }
    assert_eq!(store.value::<i32>("SELECT quantity FROM {}").await, 8);
    store.close().await;
}

#[tokio::test]
async fn fences_work_in_a_transaction_behind_a_pooler() {
    let guarded = Guarded::new("bouncer").await;
    let mut session = PgConnection::connect_with(&common::pooler_options())
        .await
        .unwrap();
    for (value, expected) in [(5, Admission::Admitted), (4, stale(4, 5))] {
        let mut transaction = session.begin().await.unwrap();
        let admission = guarded.admit(&mut transaction, value).await.unwrap();
        assert_eq!(admission, expected);
        transaction.commit().await.unwrap();
    }
    let done = clock::timeout(Duration::from_secs(60), guarded.commit(6)).await;
    assert_eq!(done, Some(Admission::Admitted));
    guarded.store.close().await;
}
