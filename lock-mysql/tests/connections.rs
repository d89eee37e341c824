//! The backend's own connections: nobody's pool, nobody's transaction, and replaced when they die.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{LEASE, Server, Store, acquire, granted, name, request};
use distlock_api::{Attempt, Effect, ErrorKind, LockAdmin, LockBackend, Release, Renewal};
use sqlx::Executor;
use tokio::task::JoinSet;

async fn every_call_survives_the_death_of_its_idle_connection(server: Server) {
    // (F1)
    let mut store = Store::new(server, "killed").await;
    let backend = store.backend();
    let (warm, _) = acquire(&backend, "warm").await;
    backend.renew(&[(warm.lease_id(), LEASE)]).await;
    store.kill().await;
    let (held, _) = acquire(&backend, "job").await;
    let lease = held.lease_id();
    store.kill().await;
    let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    store.kill().await;
    assert_eq!(backend.list().await.unwrap().len(), 2);
    store.kill().await;
    let released = backend.release(&lease, Duration::ZERO).await;
    assert_eq!(released.unwrap(), Release::Released);
    store.close().await;
}

async fn a_refusal_after_a_connection_died_is_in_doubt_and_then_stands(server: Server) {
    // The servers close a session that is killed without a word, as a firewall does whose request is still under way.
    let mut store = Store::new(server, "doubt").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store.kill().await;
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown),
        "{error}"
    );
    let refused = backend.try_acquire(&request("job")).await.unwrap();
    assert!(matches!(refused, Attempt::Held(_)));
    store.close().await;
}

async fn a_busy_pool_of_one_holds_nothing_up(server: Server) {
    let store = Store::new(server, "pool").await;
    let pool = server.pool_of_one().await;
    let backend = store.builder().for_pool(&pool).unwrap();
    let _job = pool.acquire().await.unwrap();
    let (held, _) = acquire(&backend, "job").await;
    let lease = held.lease_id();
    let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    let release = backend.release(&lease, Duration::ZERO).await;
    assert_eq!(release.unwrap(), Release::Released);
    assert_eq!(pool.size(), 1);
    store.close().await;
}

async fn the_callers_transaction_is_untouched(server: Server) {
    // (U10, B12)
    let store = Store::new(server, "callers").await;
    let pool = server.pool_of_one().await;
    let backend = store.builder().for_pool(&pool).unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let mine = "CREATE TEMPORARY TABLE mine (n int) ENGINE = InnoDB";
    transaction.execute(mine).await.unwrap();
    acquire(&backend, "job").await;
    let refused = backend.try_acquire(&request("job")).await.unwrap();
    assert!(matches!(refused, Attempt::Held(_)));
    transaction
        .execute("INSERT INTO mine VALUES (1)")
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    let record = backend.inspect(&name("job")).await.unwrap().unwrap();
    assert_eq!(record.owner.as_deref(), Some("test"));
    store.close().await;
}

async fn a_table_made_anew_is_used_by_the_connections_that_knew_the_old_one(server: Server) {
    let mut store = Store::new(server, "anew").await;
    store.grant("CREATE").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store.run("ALTER TABLE {} ADD COLUMN note TEXT FIRST").await;
    assert!(matches!(
        backend.try_acquire(&request("job")).await.unwrap(),
        Attempt::Held(_)
    ));
    store.run("DROP TABLE {}").await;
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SchemaMissing, "{error}");
    backend.migrate().await.unwrap();
    acquire(&backend, "job").await;
    store.close().await;
}

async fn a_call_that_is_dropped_leaves_no_connection_in_the_middle_of_something(server: Server) {
    let store = Store::new(server, "dropped").await;
    let builder = store.builder().max_connections(1);
    let backend = builder.for_options(store.options()).unwrap();
    acquire(&backend, "warm").await;
    for number in 0..60 {
        let request = request(&format!("job-{number}"));
        tokio::select! {
            biased;
            attempt = backend.try_acquire(&request) => drop(attempt.unwrap()),
            () = moment(Duration::from_micros(number * 10)) => {}
        }
        // A connection in the middle of something would give the other question's answer, or none.
        let warm = backend.inspect(&name("warm")).await.unwrap().unwrap();
        assert_eq!(warm.name, name("warm"));
    }
    store.close().await;
}

/// Waits without a timer, which would be too coarse.
async fn moment(duration: Duration) {
    let start = distlock_api::clock::Instant::now();
    while start.elapsed() < duration {
        tokio::task::yield_now().await;
    }
}

async fn more_callers_than_connections_wait_their_turn(server: Server) {
    let mut store = Store::new(server, "turns").await;
    let builder = store.builder().max_connections(2);
    let builder = builder.operation_limit(Duration::from_secs(60));
    let backend = Arc::new(builder.for_options(store.options()).unwrap());
    acquire(&backend, "warm").await;
    // So that nobody is done before all have asked.
    store.run("LOCK TABLES {} WRITE").await;
    let mut callers = JoinSet::new();
    for number in 0..50 {
        let backend = Arc::clone(&backend);
        callers.spawn(async move { acquire(&backend, &format!("job-{number}")).await });
    }
    store.until_waiting(2).await;
    store.run("UNLOCK TABLES").await;
    assert_eq!(callers.join_all().await.len(), 50);
    assert_eq!(store.sessions().await, 2);
    store.close().await;
}

async fn one_who_takes_renews_and_releases_needs_one_connection(server: Server) {
    let mut store = Store::new(server, "one").await;
    let backend = store.backend();
    for name in ["a", "b", "c"] {
        let (held, _) = acquire(&backend, name).await;
        let lease = held.lease_id();
        let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
        assert_eq!(renewed.unwrap(), Renewal::Renewed);
        let released = backend.release(&lease, Duration::ZERO).await.unwrap();
        assert_eq!(released, Release::Released);
    }
    assert_eq!(store.sessions().await, 1);
    store.close().await;
}

async fn releases_and_renewals_do_not_wait_behind_tries_that_hang(server: Server) {
    let mut store = Store::new(server, "lanes").await;
    let builder = store.builder().operation_limit(Duration::from_secs(60));
    let backend = Arc::new(builder.for_options(store.options()).unwrap());
    let (held, _) = acquire(&backend, "job").await;
    acquire(&backend, "stuck").await;
    store
        .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6) WHERE name = 'stuck'")
        .await;
    store
        .run("BEGIN; SELECT * FROM {} WHERE name = 'stuck' FOR UPDATE")
        .await;
    let mut tries = JoinSet::new();
    for _ in 0..12 {
        let backend = Arc::clone(&backend);
        tries.spawn(async move { backend.try_acquire(&request("stuck")).await.unwrap() });
    }
    store.until_waiting(4).await;
    let lease = held.lease_id();
    let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    let released = backend.release(&lease, Duration::ZERO).await;
    assert_eq!(released.unwrap(), Release::Released);
    store.until_waiting(4).await;
    store.run("ROLLBACK").await;
    let tries = tries.join_all().await;
    assert_eq!(tries.iter().filter_map(granted).count(), 1, "{tries:?}");
    store.close().await;
}

async fn a_try_that_gets_no_connection_gives_up_before_its_lease_could_be_over(server: Server) {
    let mut store = Store::new(server, "patience").await;
    let builder = store.builder().max_connections(1);
    let builder = builder.operation_limit(Duration::from_secs(60));
    let backend = Arc::new(builder.for_options(store.options()).unwrap());
    acquire(&backend, "warm").await;
    store.run("LOCK TABLES {} WRITE").await;
    let hanging = Arc::clone(&backend);
    let hanging = tokio::spawn(async move { hanging.list().await });
    store.until_waiting(1).await;
    let mut short = request("job");
    short.lease = Duration::from_millis(200);
    let error = backend.try_acquire(&short).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::None),
        "{error}"
    );
    assert!(error.to_string().contains("in use for 100ms"), "{error}");
    store.run("UNLOCK TABLES").await;
    assert_eq!(hanging.await.unwrap().unwrap().len(), 1);
    store.close().await;
}

on_both![
    every_call_survives_the_death_of_its_idle_connection,
    a_refusal_after_a_connection_died_is_in_doubt_and_then_stands,
    a_busy_pool_of_one_holds_nothing_up,
    the_callers_transaction_is_untouched,
    a_table_made_anew_is_used_by_the_connections_that_knew_the_old_one,
    a_call_that_is_dropped_leaves_no_connection_in_the_middle_of_something,
    more_callers_than_connections_wait_their_turn,
    one_who_takes_renews_and_releases_needs_one_connection,
    releases_and_renewals_do_not_wait_behind_tries_that_hang,
    a_try_that_gets_no_connection_gives_up_before_its_lease_could_be_over,
];
