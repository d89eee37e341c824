//! Leases are counted on the server's clock in UTC, whatever the session's zone, and however long a statement waits.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Server, Store, acquire, granted, name, request};
use distlock_api::{Attempt, Effect, ErrorKind, LockAdmin, LockBackend, Renewal, clock};
use sqlx::{AssertSqlSafe, MySqlConnection};

/// A statement of the backend's, as it is in its file.
fn statement(sql: &str, table: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(sql.replace("{table}", table))
}

/// A session in this zone, which lives at this instant, in seconds since 1970.
async fn session(store: &Store, zone: &str, instant: u64) -> MySqlConnection {
    let mut session = store.server.session().await;
    let set = format!("SET time_zone = '{zone}', timestamp = {instant}");
    let set = sqlx::raw_sql(AssertSqlSafe(set));
    set.execute(&mut session).await.unwrap();
    session
}

/// The backend's own statement, in a session of ours. The fencing token, if granted.
async fn try_acquire(session: &mut MySqlConnection, table: &str, token: u8) -> Option<u64> {
    let sql = include_str!("../src/statements/acquire.sql");
    let token = [token; 16];
    let two_hours = 7_200_000_000_i64;
    let done = sqlx::query(statement(sql, table))
        .bind(two_hours)
        .bind("test")
        .bind(&token[..])
        .bind(None::<i64>)
        .bind("job")
        .bind(&token[..])
        .bind(&token[..])
        .bind(None::<i64>)
        .execute(session)
        .await
        .unwrap();
    (done.rows_affected() > 0).then(|| done.last_insert_id())
}

/// Microseconds that are left of it, by the backend's own statement.
async fn remaining(session: &mut MySqlConnection, table: &str) -> i64 {
    let sql = include_str!("../src/statements/holder.sql");
    let row = sqlx::query(statement(sql, table)).bind("job");
    let row = row.fetch_one(session).await.unwrap();
    sqlx::Row::get(&row, "remaining")
}

/// New Year's Eve, then an hour before Berlin loses one and before it has one twice.
const INSTANTS: [u64; 3] = [1_767_225_600, 1_774_746_000, 1_792_886_400];

const ZONES: [&str; 4] = ["+00:00", "+09:00", "-05:00", "Europe/Berlin"];

async fn the_statements_mean_the_same_in_every_zone_in_the_gap_and_in_the_fold(server: Server) {
    // (B10, traps 1 and 2)
    let mut store = Store::new(server, "zones").await;
    let table = store.table.clone();
    for start in INSTANTS {
        for one in ZONES {
            for other in ZONES {
                store.run("TRUNCATE {}; INSERT INTO {} VALUES ('job', '2020-01-01', '2020-01-01', '', '', 0, NULL, 0)").await;
                let mut holder = session(&store, one, start).await;
                let first = try_acquire(&mut holder, &table, 1).await.unwrap();
                assert_eq!(first, start * 1_000_000, "{one}");
                let mut later = session(&store, other, start + 3600).await;
                assert_eq!(
                    try_acquire(&mut later, &table, 2).await,
                    None,
                    "{one} {other}"
                );
                assert_eq!(remaining(&mut later, &table).await, 3_600_000_000);
                let mut over = session(&store, other, start + 7200).await;
                let next = try_acquire(&mut over, &table, 2).await.unwrap();
                assert_eq!(next, first + 7_200_000_000, "{one} {other}");
            }
        }
    }
    store.close().await;
}

async fn a_first_grant_in_a_gap_is_no_error_in_any_zone(server: Server) {
    // (trap 2)
    let mut store = Store::new(server, "gap").await;
    let table = store.table.clone();
    for (number, zone) in ZONES.into_iter().enumerate() {
        // A lease that ends at 02:30 in Berlin, which is not.
        let start = 1_774_746_000 - 1800;
        let mut session = session(&store, zone, start).await;
        let insert = statement(include_str!("../src/statements/insert.sql"), &table);
        let done = sqlx::query(insert)
            .bind(format!("job-{number}"))
            .bind(5_400_000_000_i64)
            .bind("test")
            .bind(&[1; 16][..])
            .bind(None::<i64>)
            .execute(&mut session);
        assert_eq!(done.await.unwrap().last_insert_id(), start * 1_000_000);
    }
    let ends: i64 = store
        .value("SELECT COUNT(DISTINCT lock_until) FROM {}")
        .await;
    assert_eq!(ends, 1);
    store.close().await;
}

async fn sessions_of_ours_are_in_utc_whatever_the_options_say(server: Server) {
    // (B10)
    let store = Store::new(server, "options").await;
    let (held, _) = acquire(&store.backend(), "job").await;
    for zone in ["+13:00", "-11:00"] {
        let options = store.options().timezone(Some(zone.to_owned()));
        let backend = store.builder().for_options(options).unwrap();
        let Attempt::Held(other) = backend.try_acquire(&request("job")).await.unwrap() else {
            panic!("{zone}: granted twice");
        };
        let left = other.remaining.unwrap();
        assert!(left <= LEASE && left > LEASE / 2, "{zone}: {left:?}");
        let record = backend.inspect(&held.name).await.unwrap().unwrap();
        let age = clock::wall().duration_since(record.locked_at.unwrap());
        assert!(age.unwrap() < LEASE, "{zone}");
    }
    store.close().await;
}

async fn the_lease_is_never_shorter_than_asked_for(server: Server) {
    let mut store = Store::new(server, "lease").await;
    let backend = store.backend();
    for lease in [
        Duration::from_millis(10),
        Duration::from_nanos(60_000_000_001),
        LEASE * 60 * 24 * 3650,
    ] {
        let mut request = request(&format!("{lease:?}"));
        request.lease = lease;
        let now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
        let before: i64 = store.value(now).await;
        assert!(granted(&backend.try_acquire(&request).await.unwrap()).is_some());
        let until = format!(
            "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until) FROM {{}} WHERE name = '{}'",
            request.name
        );
        let lasts = u128::try_from(store.value::<i64>(&until).await - before).unwrap();
        assert!(lasts * 1000 >= lease.as_nanos(), "{lease:?}");
        assert!(lasts < lease.as_micros() + 30_000_000, "{lease:?}");
    }
    store.close().await;
}

async fn an_end_beyond_2038_is_kept(server: Server) {
    // (trap 3)
    let store = Store::new(server, "far").await;
    let backend = store.backend();
    let (held, _) = acquire(&backend, "job").await;
    let twenty_years = LEASE * 60 * 24 * 365 * 20;
    let renewed = backend
        .renew(&[(held.lease_id(), twenty_years)])
        .await
        .remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    let record = backend.inspect(&name("job")).await.unwrap().unwrap();
    let left = record.lock_until.unwrap().duration_since(clock::wall());
    assert!(left.unwrap() > twenty_years - LEASE);
    store.close().await;
}

async fn a_lock_freed_while_the_statement_waits_for_its_row_is_granted_by_a_second_one(
    server: Server,
) {
    // (B13, trap 8)
    let mut store = Store::new(server, "freed").await;
    let proxy = Proxy::new(store.options()).await;
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    let (held, _) = acquire(&backend, "job").await;
    backend
        .release(&held.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    acquire(&backend, "job").await;
    store
        .run("BEGIN; UPDATE {} SET lock_until = '9999-12-31'")
        .await;
    let request = request("job");
    proxy.round_trips();
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), async {
        store.until_waiting(1).await;
        // Later than the statement's beginning.
        store
            .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6); COMMIT")
            .await;
    });
    assert!(granted(&attempt.unwrap()).is_some());
    assert_eq!(proxy.round_trips(), 3, "refused, looked, asked again");
    store.close().await;
}

async fn a_lock_taken_while_the_statement_waits_for_its_row_is_refused_with_the_new_holder(
    server: Server,
) {
    let mut store = Store::new(server, "taken").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6)")
        .await;
    store
        .run("BEGIN; UPDATE {} SET lock_until = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, token = 'x', locked_by = 'winner'")
        .await;
    let request = request("job");
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), async {
        store.until_waiting(1).await;
        store.run("COMMIT").await;
    });
    let Attempt::Held(held) = attempt.unwrap() else {
        panic!("granted twice");
    };
    assert_eq!(held.by.as_deref(), Some("winner"));
    assert!(held.remaining > Some(LEASE));
    store.close().await;
}

async fn a_row_that_stays_locked_is_a_timeout_that_leaves_nothing(server: Server) {
    // (B13, U11)
    let mut store = Store::new(server, "stuck").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6)")
        .await;
    store.run("BEGIN; SELECT * FROM {} FOR UPDATE").await;
    let limit = backend.capabilities().operation_limit;
    let request = request("job");
    let error = clock::timeout(limit, backend.try_acquire(&request)).await;
    let error = error.expect("within the limit").unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Timeout, Effect::None),
        "{error}"
    );
    assert!(error.is_retryable());
    store.run("ROLLBACK").await;
    let free = "SELECT COUNT(*) FROM {} WHERE lock_until < UTC_TIMESTAMP(6)";
    assert_eq!(store.value::<i64>(free).await, 1);
    acquire(&backend, "job").await;
    store.close().await;
}

on_both![
    the_statements_mean_the_same_in_every_zone_in_the_gap_and_in_the_fold,
    a_first_grant_in_a_gap_is_no_error_in_any_zone,
    sessions_of_ours_are_in_utc_whatever_the_options_say,
    the_lease_is_never_shorter_than_asked_for,
    an_end_beyond_2038_is_kept,
    a_lock_freed_while_the_statement_waits_for_its_row_is_granted_by_a_second_one,
    a_lock_taken_while_the_statement_waits_for_its_row_is_refused_with_the_new_holder,
    a_row_that_stays_locked_is_a_timeout_that_leaves_nothing,
];
