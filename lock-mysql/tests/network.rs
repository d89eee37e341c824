//! Lost answers, sessions that end in mid-statement, and what the server rolled back.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Server, Store, acquire, granted, name, request};
use distlock_api::{
    Attempt, Effect, ErrorKind, ForceRelease, LockAdmin, LockBackend, Release, Renewal, clock,
};
use distlock_mysql::MySqlBackend;

/// A backend whose connection is kept and good, until the proxy is told otherwise.
async fn behind_proxy(store: &Store) -> (Proxy, MySqlBackend) {
    let proxy = Proxy::new(store.options()).await;
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    acquire(&backend, "warm").await;
    let lease = request("warm").lease_id();
    backend.renew(&[(lease.clone(), LEASE)]).await;
    backend.release(&lease, Duration::ZERO).await.unwrap();
    backend.force_release(&name("warm"), None).await.unwrap();
    (proxy, backend)
}

async fn a_grant_whose_answer_is_lost_is_granted_again(server: Server) {
    // (D2)
    let store = Store::new(server, "lostgrant").await;
    let (proxy, backend) = behind_proxy(&store).await;
    proxy.lose_reply();
    let (held, _) = acquire(&backend, "warm").await;
    proxy.lose_reply();
    let renewed = backend.renew(&[(held.lease_id(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    store.close().await;
}

async fn a_release_whose_answer_is_lost_is_never_reported_as_not_held(server: Server) {
    let store = Store::new(server, "lostrelease").await;
    let (proxy, backend) = behind_proxy(&store).await;
    let (held, _) = acquire(&backend, "warm").await;
    let lease = held.lease_id();
    backend.renew(&[(lease.clone(), LEASE)]).await;
    proxy.lose_reply();
    let error = backend.release(&lease, Duration::ZERO).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown)
    );
    // With a linger the second try finds the lock resting, and so knows.
    let (held, _) = acquire(&backend, "warm").await;
    proxy.lose_reply();
    let release = backend.release(&held.lease_id(), LEASE).await;
    assert_eq!(release.unwrap(), Release::Released);
    store.close().await;
}

async fn a_forced_release_whose_answer_is_lost_is_in_doubt(server: Server) {
    let store = Store::new(server, "lostforce").await;
    let (proxy, backend) = behind_proxy(&store).await;
    // So that the statement that frees is prepared, and it is its answer that is lost: the one before is a look.
    acquire(&backend, "warm").await;
    backend.force_release(&name("warm"), None).await.unwrap();
    acquire(&backend, "warm").await;
    proxy.lose_reply_after(1);
    let error = backend
        .force_release(&name("warm"), None)
        .await
        .unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    let again = backend.force_release(&name("warm"), None).await.unwrap();
    assert_eq!(again, ForceRelease::NotHeld);
    store.close().await;
}

async fn a_refusal_after_a_lost_answer_is_in_doubt(server: Server) {
    // The lost one may still be under way, and granted once the holder is gone.
    let store = Store::new(server, "lostrefusal").await;
    let (proxy, backend) = behind_proxy(&store).await;
    let mut planned = request("warm");
    planned.tick = Some(1);
    let done = backend.try_acquire(&planned).await.unwrap();
    assert!(granted(&done).is_some());
    let mut again = request("warm");
    for tick in [None, Some(1)] {
        again.tick = tick;
        proxy.lose_reply();
        let error = backend.try_acquire(&again).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect(), error.lock_name()),
            (ErrorKind::Unavailable, Effect::Unknown, Some("warm"))
        );
        let refused = backend.try_acquire(&again).await.unwrap();
        assert_eq!(granted(&refused), None);
    }
    store.close().await;
}

async fn after_a_call_that_met_silence_the_next_ones_use_new_connections(server: Server) {
    // (D12)
    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(60);
    let store = Store::new(server, "silence").await;
    let (proxy, backend) = behind_proxy(&store).await;
    let ((held, _), _) = tokio::join!(acquire(&backend, "one"), acquire(&backend, "two"));
    proxy.fall_silent();
    let job = request("job");
    let met = clock::timeout(SHORT, backend.try_acquire(&job)).await;
    assert!(met.is_none(), "{met:?}");
    let next = clock::timeout(LONG, backend.try_acquire(&job)).await;
    assert!(granted(&next.expect("silence again").unwrap()).is_some());
    let lease = held.lease_id();
    proxy.fall_silent();
    let met = clock::timeout(SHORT, backend.release(&lease, Duration::ZERO)).await;
    assert!(met.is_none(), "{met:?}");
    let next = clock::timeout(LONG, backend.release(&lease, Duration::ZERO)).await;
    assert_eq!(next.expect("silence again").unwrap(), Release::Released);
    store.close().await;
}

async fn a_session_that_is_ended_in_mid_statement_is_replaced(server: Server) {
    // (F1)
    let mut store = Store::new(server, "ended").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6)")
        .await;
    let mut locker = server.session().await;
    let lock = format!("BEGIN; SELECT * FROM {} FOR UPDATE", store.table);
    execute(&mut locker, &lock).await;
    let request = request("job");
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), async {
        store.until_waiting(1).await;
        store.end_sessions().await;
        execute(&mut locker, "ROLLBACK").await;
    });
    assert!(granted(&attempt.unwrap()).is_some());
    store.close().await;
}

async fn a_refusal_after_a_session_was_ended_in_mid_statement_is_in_doubt_and_then_stands(
    server: Server,
) {
    // (F1) The servers close it without a word, so that nobody can tell it from a wire that broke.
    let mut store = Store::new(server, "stands").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6)")
        .await;
    let mut winner = server.session().await;
    let win = format!(
        "BEGIN; UPDATE {} SET lock_until = '9999-12-31', token = 'x', locked_by = 'winner'",
        store.table
    );
    execute(&mut winner, &win).await;
    let request = request("job");
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), async {
        store.until_waiting(1).await;
        store.end_sessions().await;
        execute(&mut winner, "COMMIT").await;
    });
    let error = attempt.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown)
    );
    let Attempt::Held(held) = backend.try_acquire(&request).await.unwrap() else {
        panic!("granted twice");
    };
    assert_eq!(held.by.as_deref(), Some("winner"));
    store.close().await;
}

async fn a_deadlock_is_sent_again_and_never_seen(server: Server) {
    // (trap 6)
    let mut store = Store::new(server, "deadlock").await;
    let backend = store.backend();
    for name in ["a", "b"] {
        acquire(&backend, name).await;
    }
    store
        .run("UPDATE {} SET lock_until = '2020-01-01', fence = 1")
        .await;
    // A user's transaction that takes the rows in the other order, and has more to lose.
    let mut other = server.session().await;
    let table = store.table.clone();
    store
        .run("CREATE TABLE {}_bulk (n INT) ENGINE = InnoDB")
        .await;
    let rows = vec!["(1)"; 500].join(", ");
    execute(&mut other, &format!("BEGIN; INSERT INTO {table}_bulk VALUES {rows}; UPDATE {table} SET locked_by = 'x' WHERE name = 'b'")).await;
    let (purged, ()) = tokio::join!(backend.purge(LEASE), async {
        store.until_waiting(1).await;
        execute(
            &mut other,
            &format!("UPDATE {table} SET locked_by = 'x' WHERE name = 'a'; COMMIT"),
        )
        .await;
    });
    assert_eq!(purged.unwrap(), 2);
    store.run("DROP TABLE {}_bulk").await;
    store.close().await;
}

async fn the_flag_for_found_rows_makes_no_difference(server: Server) {
    // (F6, trap 5)
    let store = Store::new(server, "flag").await;
    let proxy = Proxy::new(store.options()).await;
    proxy.drop_found_rows();
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    let (held, _) = acquire(&backend, "job").await;
    let refused = backend.try_acquire(&request("job")).await.unwrap();
    assert_eq!(granted(&refused), None);
    let lease = held.lease_id();
    // The second changes nothing.
    for ttl in [LEASE * 2, LEASE] {
        let renewed = backend.renew(&[(lease.clone(), ttl)]).await.remove(0);
        assert_eq!(renewed.unwrap(), Renewal::Renewed);
    }
    assert!(granted(&backend.try_acquire(&held).await.unwrap()).is_some());
    let released = backend.release(&lease, Duration::ZERO).await.unwrap();
    assert_eq!(released, Release::Released);
    store.close().await;
}

async fn execute(session: &mut sqlx::MySqlConnection, sql: &str) {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(session).await.unwrap();
}

on_both![
    a_grant_whose_answer_is_lost_is_granted_again,
    a_release_whose_answer_is_lost_is_never_reported_as_not_held,
    a_forced_release_whose_answer_is_lost_is_in_doubt,
    a_refusal_after_a_lost_answer_is_in_doubt,
    after_a_call_that_met_silence_the_next_ones_use_new_connections,
    a_session_that_is_ended_in_mid_statement_is_replaced,
    a_refusal_after_a_session_was_ended_in_mid_statement_is_in_doubt_and_then_stands,
    a_deadlock_is_sent_again_and_never_seen,
    the_flag_for_found_rows_makes_no_difference,
];
