//! Stale holders are refused at the data, in the caller's own transaction.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use common::proxy::Proxy;
use common::{Server, Store, connect};
use distlock_api::{Admission, Effect, Error, ErrorKind, FencingToken, StaleToken};
use distlock_mysql::{Fences, Table};
use sqlx::{Connection, MySqlConnection};
use tokio::task::JoinSet;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn token(value: u64) -> FencingToken {
    FencingToken::new(value)
}

fn stale(ours: u64, seen: u64) -> Admission {
    Admission::Stale(StaleToken {
        token: token(ours),
        seen: token(seen),
    })
}

/// Fences, and a user who may do with them what they need.
async fn fences(server: Server, label: &str) -> (Store, Fences) {
    let mut store = Store::new(server, label).await;
    store.run("DROP TABLE {}").await;
    let fences = Fences::in_table(Table::new(&store.table).unwrap());
    store.run(&fences.schema_sql()).await;
    store.run(&fences.schema_sql()).await;
    store
        .run(
            "REVOKE ALL PRIVILEGES, GRANT OPTION FROM $USER; GRANT SELECT, INSERT, UPDATE ON {} TO $USER",
        )
        .await;
    (store, fences)
}

/// A transaction of the caller's.
async fn begin(store: &Store, level: &str) -> MySqlConnection {
    let mut session = connect(&store.options()).await;
    let begin = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}; BEGIN");
    execute(&mut session, &begin).await;
    session
}

async fn execute(session: &mut MySqlConnection, sql: &str) {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(session).await.unwrap();
}

async fn smaller_tokens_are_refused_and_the_same_one_may_come_again(server: Server) {
    let (store, fences) = fences(server, "smaller").await;
    let mut session = begin(&store, "REPEATABLE READ").await;
    for (value, expected) in [
        (5, Admission::Admitted),
        (5, Admission::Admitted),
        (4, stale(4, 5)),
        (u64::MAX, Admission::Admitted),
        (u64::MAX - 1, stale(u64::MAX - 1, u64::MAX)),
        (0, stale(0, u64::MAX)),
    ] {
        let answer = fences.admit(&mut session, "stock", token(value)).await;
        assert_eq!(answer.unwrap(), expected);
    }
    // Byte for byte another resource.
    for other in ["Stock", "stöck", "stock ", "😀"] {
        let answer = fences.admit(&mut session, other, token(1)).await;
        assert_eq!(answer.unwrap(), Admission::Admitted, "{other}");
    }
    session.close().await.unwrap();
    store.close().await;
}

async fn the_flag_for_found_rows_makes_no_difference(server: Server) {
    let (store, fences) = fences(server, "flag").await;
    let proxy = Proxy::new(store.options()).await;
    proxy.drop_found_rows();
    let mut session = connect(&proxy.options).await;
    execute(&mut session, "BEGIN").await;
    for (value, expected) in [
        (5, Admission::Admitted),
        (5, Admission::Admitted),
        (4, stale(4, 5)),
        (4, stale(4, 5)),
        (6, Admission::Admitted),
    ] {
        let answer = fences.admit(&mut session, "stock", token(value)).await;
        assert_eq!(answer.unwrap(), expected);
    }
    // The proxy did what it should: an update that changes nothing counts nothing.
    let same = format!("UPDATE {} SET fence = fence", store.table);
    let same = sqlx::raw_sql(sqlx::AssertSqlSafe(same))
        .execute(&mut session)
        .await;
    assert_eq!(same.unwrap().rows_affected(), 0);
    session.close().await.unwrap();
    store.close().await;
}

async fn who_is_in_keeps_others_out_until_the_commit(server: Server) {
    for level in LEVELS {
        let (mut store, fences) = fences(server, "keeps").await;
        let mut first = begin(&store, level).await;
        let mut second = begin(&store, level).await;
        let answer = fences.admit(&mut first, "stock", token(7)).await;
        assert_eq!(answer.unwrap(), Admission::Admitted);
        let waiting = fences.admit(&mut second, "stock", token(6));
        let (answer, ()) = tokio::join!(waiting, async {
            store.until_waiting(1).await;
            execute(&mut first, "COMMIT").await;
        });
        match answer {
            Ok(answer) => assert_eq!(answer, stale(6, 7), "{level}"),
            // Its snapshot is older than the commit.
            Err(error) => assert!(is_refused_by_snapshot(server, level, &error), "{error}"),
        }
        let fence: u64 = store.value("SELECT fence FROM {}").await;
        assert_eq!(fence, 7);
        drop(second);
        store.close().await;
    }
}

/// As MariaDB may do where `innodb_snapshot_isolation` is on.
fn is_refused_by_snapshot(server: Server, level: &str, error: &Error) -> bool {
    let told = (error.kind(), error.effect(), error.is_retryable());
    server == Server::MariaDb
        && level == "SERIALIZABLE"
        && told == (ErrorKind::Unavailable, Effect::None, true)
        && error.to_string().contains("[1020]")
}

async fn a_snapshot_that_is_too_old_ends_the_whole_transaction(server: Server) {
    let (mut store, fences) = fences(server, "old").await;
    store
        .run("CREATE TABLE {}_data (n INT) ENGINE = InnoDB; GRANT SELECT, INSERT ON {}_data TO $USER")
        .await;
    let data = format!("{}_data", store.table);
    let mut late = begin(&store, "REPEATABLE READ").await;
    if server == Server::MariaDb {
        execute(&mut late, "SET innodb_snapshot_isolation = ON").await;
    }
    let before = format!("INSERT INTO {data} VALUES (1); SELECT * FROM {data}");
    execute(&mut late, &before).await;
    let mut other = begin(&store, "REPEATABLE READ").await;
    let answer = fences.admit(&mut other, "stock", token(1)).await;
    assert_eq!(answer.unwrap(), Admission::Admitted);
    execute(&mut other, "COMMIT").await;
    let answer = fences.admit(&mut late, "stock", token(2)).await;
    match server {
        Server::MySql => assert_eq!(answer.unwrap(), Admission::Admitted),
        Server::MariaDb => {
            let error = answer.unwrap_err();
            let told = (error.kind(), error.effect(), error.is_retryable());
            assert_eq!(told, (ErrorKind::Unavailable, Effect::None, true));
            assert!(error.to_string().contains("[1020]"), "{error}");
            // What it wrote before is gone, and no transaction is open any more.
            let mine: i64 = store.value("SELECT COUNT(*) FROM {}_data").await;
            let open = sqlx::query_scalar("SELECT @@in_transaction");
            let open: u64 = open.fetch_one(&mut late).await.unwrap();
            assert_eq!((mine, open), (0, 0));
        }
    }
    late.close().await.unwrap();
    store.run("DROP TABLE {}_data").await;
    store.close().await;
}

async fn a_stale_holder_inside_waits_for_nobody_and_is_not_overtaken(server: Server) {
    // It was let in before its successor: until it ends, the successor waits.
    for level in LEVELS {
        let (store, fences) = fences(server, "inside").await;
        let mut session = begin(&store, level).await;
        let known = fences.admit(&mut session, "stock", token(6)).await;
        assert_eq!(known.unwrap(), Admission::Admitted);
        execute(&mut session, "COMMIT").await;
        let mut old = begin(&store, level).await;
        let again = fences.admit(&mut old, "stock", token(6)).await;
        assert_eq!(again.unwrap(), Admission::Admitted);
        let mut new = begin(&store, level).await;
        let waiting = fences.admit(&mut new, "stock", token(7));
        let (answer, ()) = tokio::join!(waiting, async {
            store.until_waiting(1).await;
            execute(&mut old, "COMMIT").await;
        });
        assert_eq!(answer.unwrap(), Admission::Admitted, "{level}");
        drop(new);
        store.close().await;
    }
}

async fn what_is_read_after_it_is_what_the_last_holder_wrote(server: Server) {
    let (mut store, fences) = fences(server, "snapshot").await;
    store.run("CREATE TABLE {}_data (n INT) ENGINE = InnoDB; INSERT INTO {}_data VALUES (1); GRANT SELECT, UPDATE ON {}_data TO $USER").await;
    let data = format!("{}_data", store.table);
    let mut first = begin(&store, "REPEATABLE READ").await;
    let mut second = begin(&store, "REPEATABLE READ").await;
    let answer = fences.admit(&mut first, "stock", token(1)).await;
    assert_eq!(answer.unwrap(), Admission::Admitted);
    let waiting = fences.admit(&mut second, "stock", token(2));
    let (answer, ()) = tokio::join!(waiting, async {
        store.until_waiting(1).await;
        execute(&mut first, &format!("UPDATE {data} SET n = 2; COMMIT")).await;
    });
    assert_eq!(answer.unwrap(), Admission::Admitted);
    let read = sqlx::AssertSqlSafe(format!("SELECT n FROM {data}"));
    let n: i32 = sqlx::query_scalar(read)
        .fetch_one(&mut second)
        .await
        .unwrap();
    assert_eq!(n, 2);
    second.close().await.unwrap();
    store.run("DROP TABLE {}_data").await;
    store.close().await;
}

async fn a_transaction_that_is_rolled_back_is_not_remembered(server: Server) {
    let (store, fences) = fences(server, "rolledback").await;
    let mut session = begin(&store, "REPEATABLE READ").await;
    let answer = fences.admit(&mut session, "stock", token(9)).await;
    assert_eq!(answer.unwrap(), Admission::Admitted);
    execute(&mut session, "ROLLBACK; BEGIN").await;
    let answer = fences.admit(&mut session, "stock", token(8)).await;
    assert_eq!(answer.unwrap(), Admission::Admitted);
    session.close().await.unwrap();
    store.close().await;
}

async fn first_comers_at_once_neither_fail_nor_pass_the_greatest(server: Server) {
    // (trap 6)
    for level in LEVELS {
        let (mut store, fences) = fences(server, "first").await;
        for round in 0..20 {
            let mut tasks = JoinSet::new();
            for value in 1..=8 {
                let mut session = begin(&store, level).await;
                let fences = fences.clone();
                tasks.spawn(async move {
                    let resource = format!("stock-{round}");
                    let answer = fences.admit(&mut session, &resource, token(value)).await;
                    execute(&mut session, "COMMIT").await;
                    (value, answer.unwrap())
                });
            }
            let answers = tasks.join_all().await;
            let (_, greatest) = answers.iter().max_by_key(|(value, _)| *value).unwrap();
            assert_eq!(*greatest, Admission::Admitted, "{level}");
        }
        let kept: i64 = store.value("SELECT COUNT(*) FROM {} WHERE fence = 8").await;
        assert_eq!(kept, 20, "{level}");
        store.close().await;
    }
}

async fn first_comers_behind_one_that_rolls_back_are_let_in_or_told_to_begin_anew(server: Server) {
    for level in LEVELS {
        let (store, fences) = fences(server, "behind").await;
        let mut first = begin(&store, level).await;
        let answer = fences.admit(&mut first, "stock", token(1)).await;
        assert_eq!(answer.unwrap(), Admission::Admitted);
        let mut tasks = JoinSet::new();
        for value in [2, 3] {
            let mut session = begin(&store, level).await;
            let fences = fences.clone();
            tasks.spawn(async move {
                let answer = fences.admit(&mut session, "stock", token(value)).await;
                let end = if answer.is_ok() { "COMMIT" } else { "ROLLBACK" };
                execute(&mut session, end).await;
                answer
            });
        }
        store.until_waiting(2).await;
        execute(&mut first, "ROLLBACK").await;
        let answers = tasks.join_all().await;
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            let told = (error.kind(), error.effect(), error.is_retryable());
            assert_eq!(
                told,
                (ErrorKind::Unavailable, Effect::None, true),
                "{error}"
            );
        }
        assert!(answers.iter().any(Result::is_ok), "{level}: {answers:?}");
        drop(first);
        store.close().await;
    }
}

async fn a_resource_that_would_be_cut_is_refused(server: Server) {
    let (store, fences) = fences(server, "cut").await;
    let mut session = connect(&store.options()).await;
    execute(&mut session, "SET sql_mode = ''; BEGIN").await;
    let error = fences.admit(&mut session, &"x".repeat(256), token(1)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidOption);
    let longest = fences
        .admit(&mut session, &"😀".repeat(255), token(1))
        .await;
    assert_eq!(longest.unwrap(), Admission::Admitted);
    session.close().await.unwrap();
    store.close().await;
}

async fn a_missing_table_is_told(server: Server) {
    let (mut store, fences) = fences(server, "missing").await;
    let mut session = begin(&store, "REPEATABLE READ").await;
    store.run("DROP TABLE {}").await;
    let error = fences.admit(&mut session, "stock", token(1)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SchemaMissing);
    assert!(error.to_string().contains("Fences::schema_sql"), "{error}");
    store.close().await;
}

async fn outside_of_a_transaction_it_refuses_and_remembers_nothing(server: Server) {
    let (mut store, fences) = fences(server, "outside").await;
    let mut session = connect(&store.options()).await;
    for before in ["DO 0", "BEGIN; COMMIT"] {
        execute(&mut session, before).await;
        let error = fences.admit(&mut session, "stock", token(1)).await;
        let error = error.unwrap_err();
        let told = (error.kind(), error.effect());
        assert_eq!(told, (ErrorKind::Config, Effect::None), "{error}");
        assert!(error.to_string().contains("outside of a transaction"));
    }
    assert_eq!(store.value::<i64>("SELECT COUNT(*) FROM {}").await, 0);
    // Each statement is in a transaction, and the first one begins it.
    execute(&mut session, "SET autocommit = 0").await;
    let answer = fences.admit(&mut session, "stock", token(1)).await;
    assert_eq!(answer.unwrap(), Admission::Admitted);
    execute(&mut session, "ROLLBACK").await;
    assert_eq!(store.value::<i64>("SELECT COUNT(*) FROM {}").await, 0);
    store.close().await;
}

async fn a_table_that_forgets_tokens_lets_nobody_in(server: Server) {
    for columns in [
        "resource VARCHAR(255), fence BIGINT UNSIGNED",
        "resource VARCHAR(255), fence BIGINT UNSIGNED, id INT AUTO_INCREMENT PRIMARY KEY",
        "resource VARCHAR(255) PRIMARY KEY, fence INT",
        "resource VARCHAR(255) PRIMARY KEY, fence INT UNSIGNED",
        "resource VARCHAR(255) PRIMARY KEY, fence DOUBLE",
        "resource VARCHAR(255) PRIMARY KEY, fence VARCHAR(9)",
        "resource VARCHAR(2) PRIMARY KEY, fence BIGINT UNSIGNED",
        "resource VARCHAR(255), fence BIGINT UNSIGNED PRIMARY KEY",
    ] {
        let (mut store, fences) = fences(server, "forgets").await;
        let table = format!("DROP TABLE {{}}; CREATE TABLE {{}} ({columns}) ENGINE = InnoDB");
        store.run(&table).await;
        let mut session = begin(&store, "REPEATABLE READ").await;
        execute(&mut session, "SET sql_mode = ''").await;
        let error = fences.admit(&mut session, "stock", token(1 << 50)).await;
        let error = error.expect_err(columns);
        let told = (error.kind(), error.effect());
        assert_eq!(told, (ErrorKind::Config, Effect::None), "{error}");
        assert!(error.to_string().contains("Fences::schema_sql"), "{error}");
        // Nor where it is committed all the same.
        execute(&mut session, "COMMIT; BEGIN").await;
        let answer = fences.admit(&mut session, "stock", token(1)).await;
        assert_ne!(answer.ok(), Some(Admission::Admitted), "{columns}");
        session.close().await.unwrap();
        store.close().await;
    }
}

on_both![
    outside_of_a_transaction_it_refuses_and_remembers_nothing,
    a_table_that_forgets_tokens_lets_nobody_in,
    smaller_tokens_are_refused_and_the_same_one_may_come_again,
    the_flag_for_found_rows_makes_no_difference,
    who_is_in_keeps_others_out_until_the_commit,
    a_snapshot_that_is_too_old_ends_the_whole_transaction,
    a_stale_holder_inside_waits_for_nobody_and_is_not_overtaken,
    what_is_read_after_it_is_what_the_last_holder_wrote,
    a_transaction_that_is_rolled_back_is_not_remembered,
    first_comers_at_once_neither_fail_nor_pass_the_greatest,
    first_comers_behind_one_that_rolls_back_are_let_in_or_told_to_begin_anew,
    a_resource_that_would_be_cut_is_refused,
    a_missing_table_is_told,
];
