//! The backend's own connections: nobody's pool, nobody's transaction, and replaced when they die.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{LEASE, Store, acquire, granted, name, options, pool_of_one, request, until};
use distlock_api::{Attempt, Effect, ErrorKind, LockAdmin, LockBackend, Release, Renewal};
use sqlx::Executor;
use tokio::task::JoinSet;

/// Ends the sessions of an application, as an operator or a failover would.
async fn kill(store: &mut Store, application: &str) {
    let sessions = format!("FROM pg_stat_activity WHERE application_name = '{application}'");
    let killed: i64 = store
        .value(&format!(
            "SELECT count(pg_terminate_backend(pid)) {sessions}"
        ))
        .await;
    assert!(killed > 0);
    until(&format!("SELECT count(*) = 0 {sessions}")).await;
}

#[tokio::test]
async fn every_call_survives_the_death_of_its_idle_connection() {
    // (F1)
    let mut store = Store::new("killed").await;
    let application = store.table.clone();
    let backend = store.backend();
    let (warm, _) = acquire(&backend, "warm").await;
    backend.renew(&[(warm.lease_id(), LEASE)]).await;
    kill(&mut store, &application).await;
    let (held, _) = acquire(&backend, "job").await;
    let lease = held.lease_id();
    let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    kill(&mut store, &application).await;
    assert!(matches!(
        backend.try_acquire(&request("job")).await.unwrap(),
        Attempt::Held(_)
    ));
    kill(&mut store, &application).await;
    let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    kill(&mut store, &application).await;
    assert_eq!(backend.list().await.unwrap().len(), 2);
    kill(&mut store, &application).await;
    let released = backend.release(&lease, Duration::ZERO).await;
    assert_eq!(released.unwrap(), Release::Released);
    store.close().await;
}

#[tokio::test]
async fn a_busy_pool_of_one_holds_nothing_up() {
    let store = Store::new("pool").await;
    let pool = pool_of_one().await;
    let backend = store.builder().for_pool(&pool).unwrap();
    let _job = pool.acquire().await.unwrap();
    let (held, _) = acquire(&backend, "job").await;
    let release = backend.release(&held.lease_id(), Duration::ZERO).await;
    assert_eq!(release.unwrap(), Release::Released);
    assert_eq!(pool.size(), 1);
    store.close().await;
}

#[tokio::test]
async fn the_callers_transaction_is_untouched() {
    // (U10, B12)
    let store = Store::new("callers").await;
    let pool = pool_of_one().await;
    let backend = store.builder().for_pool(&pool).unwrap();
    let mut transaction = pool.begin().await.unwrap();
    transaction
        .execute("CREATE TEMPORARY TABLE mine (n int)")
        .await
        .unwrap();
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

#[tokio::test]
async fn a_table_made_anew_is_used_by_the_connections_that_knew_the_old_one() {
    let mut store = Store::new("anew").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store.run("ALTER TABLE {} ADD COLUMN note text").await;
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

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_connection_in_the_middle_of_something() {
    let store = Store::new("dropped").await;
    let backend = store.builder().max_connections(1);
    let backend = backend.for_options(options()).unwrap();
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

#[tokio::test]
async fn settings_of_the_role_do_not_reach_lock_statements() {
    // (trap 7)
    let mut store = Store::new("settings").await;
    let (role, options) = store.role().await;
    store
        .run(&format!(
            "ALTER ROLE {role} SET default_transaction_isolation = serializable;
             ALTER ROLE {role} SET synchronous_commit = off;
             ALTER ROLE {role} SET lock_timeout = 0;
             ALTER ROLE {role} SET statement_timeout = 0;
             CREATE FUNCTION {{}}_spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 NEW.locked_by := concat_ws(', ', current_setting('transaction_isolation'),
                     current_setting('synchronous_commit'), current_setting('lock_timeout'),
                     current_setting('statement_timeout'));
                 RETURN NEW;
             END $$;
             CREATE TRIGGER spy BEFORE INSERT OR UPDATE ON {{}} FOR EACH ROW EXECUTE FUNCTION {{}}_spy()"
        ))
        .await;
    let backend = store.builder().for_options(options).unwrap();
    acquire(&backend, "job").await;
    let seen: String = store.value("SELECT locked_by FROM {}").await;
    assert_eq!(seen, "read committed, on, 4s, 4500ms");
    store.run("DROP TABLE {}; DROP FUNCTION {}_spy").await;
    store.close().await;
}

#[tokio::test]
async fn more_callers_than_connections_wait_their_turn() {
    let mut store = Store::new("turns").await;
    let builder = store.builder().max_connections(2);
    let builder = builder.operation_limit(Duration::from_secs(60));
    let backend = Arc::new(builder.for_options(store.options()).unwrap());
    acquire(&backend, "warm").await;
    // So that nobody is done before all have asked.
    store.run("BEGIN; LOCK TABLE {}").await;
    let mut callers = JoinSet::new();
    for number in 0..50 {
        let backend = Arc::clone(&backend);
        callers.spawn(async move { acquire(&backend, &format!("job-{number}")).await });
    }
    store.until_waiting(2).await;
    store.run("COMMIT").await;
    assert_eq!(callers.join_all().await.len(), 50);
    let sessions = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'",
        store.table
    );
    assert_eq!(store.value::<i64>(&sessions).await, 2);
    store.close().await;
}

#[tokio::test]
async fn one_who_takes_renews_and_releases_needs_one_connection() {
    let mut store = Store::new("one").await;
    let backend = store.backend();
    for name in ["a", "b", "c"] {
        let (held, _) = acquire(&backend, name).await;
        let lease = held.lease_id();
        let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
        assert_eq!(renewed.unwrap(), Renewal::Renewed);
        let released = backend.release(&lease, Duration::ZERO).await.unwrap();
        assert_eq!(released, Release::Released);
    }
    let sessions = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'",
        store.table
    );
    assert_eq!(store.value::<i64>(&sessions).await, 1);
    store.close().await;
}

#[tokio::test]
async fn releases_and_renewals_do_not_wait_behind_tries_that_hang() {
    let mut store = Store::new("lanes").await;
    let builder = store.builder().operation_limit(Duration::from_secs(60));
    let backend = Arc::new(builder.for_options(store.options()).unwrap());
    let (held, _) = acquire(&backend, "job").await;
    acquire(&backend, "stuck").await;
    let stuck = "WHERE name = 'stuck'";
    store
        .run(&format!(
            "UPDATE {{}} SET lock_until = clock_timestamp() {stuck}"
        ))
        .await;
    store
        .run(&format!("BEGIN; SELECT FROM {{}} {stuck} FOR UPDATE"))
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

#[tokio::test]
async fn a_try_that_gets_no_connection_gives_up_before_its_lease_could_be_over() {
    let mut store = Store::new("patience").await;
    let builder = store.builder().max_connections(1);
    let builder = builder.operation_limit(Duration::from_secs(60));
    let backend = Arc::new(builder.for_options(store.options()).unwrap());
    acquire(&backend, "warm").await;
    store.run("BEGIN; LOCK TABLE {}").await;
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
    store.run("COMMIT").await;
    assert_eq!(hanging.await.unwrap().unwrap().len(), 1);
    store.close().await;
}
