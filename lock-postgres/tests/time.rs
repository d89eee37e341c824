//! Leases are counted on the server's clock, whatever the session believes, and however long a statement waits.

mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Store, acquire, granted, request};
use distlock_api::{Attempt, Effect, ErrorKind, LockAdmin, LockBackend, clock};

#[tokio::test]
async fn time_zones_of_sessions_change_nothing() {
    // (B10)
    let mut store = Store::new("zones").await;
    let (role, options) = store.role().await;
    let (held, _) = acquire(&store.backend(), "job").await;
    for zone in ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"] {
        store
            .run(&format!("ALTER ROLE {role} SET timezone = '{zone}'"))
            .await;
        // The driver asks for UTC; a zone in the connect options comes after it.
        let options = options.clone().options([("timezone", zone)]);
        let backend = store.builder().for_options(options).unwrap();
        let Attempt::Held(other) = backend.try_acquire(&request("job")).await.unwrap() else {
            panic!("{zone}: granted twice");
        };
        let left = other.remaining.unwrap();
        assert!(left <= LEASE && left > LEASE / 2, "{zone}: {left:?}");
        let record = backend.inspect(&held.name).await.unwrap().unwrap();
        let age = clock::wall()
            .duration_since(record.locked_at.unwrap())
            .unwrap();
        assert!(age < LEASE, "{zone}: {age:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn the_lease_is_never_shorter_than_asked_for() {
    let mut store = Store::new("lease").await;
    let backend = store.backend();
    for lease in [
        Duration::from_millis(10),
        Duration::from_nanos(60_000_000_001),
        LEASE * 60 * 24 * 3650,
    ] {
        let mut request = request(&format!("{lease:?}"));
        request.lease = lease;
        let before: f64 = store
            .value("SELECT date_part('epoch', clock_timestamp())")
            .await;
        assert!(granted(&backend.try_acquire(&request).await.unwrap()).is_some());
        let sql = format!(
            "SELECT date_part('epoch', lock_until) FROM {{}} WHERE name = '{}'",
            request.name
        );
        let until: f64 = store.value(&sql).await;
        assert!(until - before >= lease.as_secs_f64(), "{lease:?}");
        assert!(until - before < lease.as_secs_f64() + 30.0, "{lease:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_lock_freed_while_the_statement_waits_for_its_row_is_granted() {
    // (B13)
    let mut store = Store::new("freed").await;
    let proxy = Proxy::new().await;
    let options = proxy.options.clone().application_name(&store.table);
    let backend = store.builder().for_options(options).unwrap();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    store
        .run("BEGIN; UPDATE {} SET lock_until = 'infinity'")
        .await;
    let request = request("job");
    proxy.round_trips();
    let attempt = backend.try_acquire(&request);
    let (attempt, ()) = tokio::join!(attempt, async {
        store.until_waiting(1).await;
        // Later than the statement's beginning.
        store
            .run("UPDATE {} SET lock_until = clock_timestamp(); COMMIT")
            .await;
    });
    assert!(granted(&attempt.unwrap()).is_some());
    assert_eq!(proxy.round_trips(), 1, "by the same statement");
    store.close().await;
}

#[tokio::test]
async fn a_lock_taken_while_the_statement_waits_for_its_row_is_refused_with_the_new_holder() {
    let mut store = Store::new("taken").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    store
        .run("BEGIN; UPDATE {} SET lock_until = clock_timestamp() + interval '1 hour', token = 'x', locked_by = 'winner'")
        .await;
    let request = request("job");
    let attempt = backend.try_acquire(&request);
    let (attempt, ()) = tokio::join!(attempt, async {
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

#[tokio::test]
async fn a_row_that_stays_locked_is_a_timeout_that_leaves_nothing() {
    // (B13, U11)
    let mut store = Store::new("stuck").await;
    let backend = store
        .builder()
        .operation_limit(Duration::from_secs(2))
        .for_options(common::options())
        .unwrap();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    store.run("BEGIN; SELECT FROM {} FOR UPDATE").await;
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Timeout, Effect::None),
        "{error}"
    );
    assert!(error.is_retryable());
    store.run("ROLLBACK").await;
    let free = "SELECT count(*) FROM {} WHERE lock_until < clock_timestamp()";
    assert_eq!(store.value::<i64>(free).await, 1);
    acquire(&backend, "job").await;
    store.close().await;
}
