//! What the operations cost, by counters of the wire and of the server.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Store, acquire, granted, options, request};
use distlock_api::{Attempt, LeaseId, LockBackend, Release, Renewal};
use distlock_postgres::PostgresBackend;
use tokio::sync::{Mutex, MutexGuard};

/// The server's counters of WAL are one for all, so that those who read them take turns.
async fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

async fn release(backend: &PostgresBackend, lease: &LeaseId) {
    let release = backend.release(lease, Duration::ZERO).await.unwrap();
    assert_eq!(release, Release::Released);
}

/// A backend whose statements are prepared, behind a proxy.
async fn warm(store: &Store) -> (Proxy, PostgresBackend) {
    let proxy = Proxy::new().await;
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    let (held, _) = acquire(&backend, "warm").await;
    let lease = held.lease_id();
    backend.renew(&[(lease.clone(), LEASE)]).await;
    release(&backend, &lease).await;
    proxy.round_trips();
    (proxy, backend)
}

#[tokio::test]
async fn every_operation_is_one_round_trip() {
    let store = Store::new("trips").await;
    let (proxy, backend) = warm(&store).await;
    let (held, _) = acquire(&backend, "warm").await;
    assert_eq!(proxy.round_trips(), 1, "a grant");
    let refused = backend.try_acquire(&request("warm")).await.unwrap();
    assert!(matches!(refused, Attempt::Held(_)));
    assert_eq!(proxy.round_trips(), 1, "a refusal");
    backend.renew(&[(held.lease_id(), LEASE)]).await;
    assert_eq!(proxy.round_trips(), 1, "a renewal");
    release(&backend, &held.lease_id()).await;
    assert_eq!(proxy.round_trips(), 1, "a release");
    backend
        .release(&held.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(proxy.round_trips(), 1, "a release that comes too late");
    acquire(&backend, "new").await;
    assert_eq!(proxy.round_trips(), 2, "the first grant of a name");
    store.close().await;
}

#[tokio::test]
async fn a_hundred_leases_are_renewed_in_one_round_trip_and_answered_in_order() {
    let mut store = Store::new("batch").await;
    let (proxy, backend) = warm(&store).await;
    let mut leases = Vec::new();
    for number in (0..100).rev() {
        let (held, _) = acquire(&backend, &format!("job-{number}")).await;
        leases.push((held.lease_id(), LEASE * 10));
    }
    // Twice the same lease, and one that is lost.
    leases.push(leases[0].clone());
    store
        .run("UPDATE {} SET token = 'x', locked_by = 'thief' WHERE name = 'job-50'")
        .await;
    proxy.round_trips();
    let answers = backend.renew(&leases).await;
    assert_eq!(proxy.round_trips(), 1);
    assert_eq!(answers.len(), 101);
    for ((lease, _), answer) in leases.iter().zip(answers) {
        let expected = match lease.name.as_str() {
            "job-50" => Renewal::Lost {
                to: Some("thief".to_owned()),
            },
            _ => Renewal::Renewed,
        };
        assert_eq!(answer.unwrap(), expected, "{lease:?}");
    }
    let moved =
        "SELECT count(*) FROM {} WHERE lock_until > clock_timestamp() + interval '9 minutes'";
    assert_eq!(store.value::<i64>(moved).await, 99);
    store.close().await;
}

/// Bytes of WAL that a thousand refusals leave. Others may write at the same time: the least of a few runs counts.
async fn wal_of_refusals(store: &mut Store, backend: &PostgresBackend) -> i64 {
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let mut least = i64::MAX;
    for _ in 0..5 {
        let before: i64 = store.value(position).await;
        for _ in 0..1000 {
            let refused = backend.try_acquire(&request("job")).await.unwrap();
            assert_eq!(granted(&refused), None);
        }
        let after: i64 = store.value(position).await;
        least = least.min(after - before);
    }
    least
}

#[tokio::test]
async fn a_refusal_writes_no_wal_and_locks_no_row() {
    // (F16)
    let _alone = alone().await;
    let mut store = Store::new("refusals").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    // Else the first reader may tidy the page, which is written.
    store.run("VACUUM {}").await;
    let bytes = wal_of_refusals(&mut store, &backend).await;
    assert!(bytes < 1000, "{bytes} bytes of WAL in 1000 refusals");
    let locker: String = store.value("SELECT xmax::text FROM {}").await;
    assert_eq!(locker, "0");
    store.close().await;
}

/// How often the server flushed its WAL, once the sessions that are closed have reported.
async fn flushes(store: &mut Store, work: impl AsyncFn(&PostgresBackend)) -> i64 {
    let has_io = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'pg_stat_wal'::regclass AND attname = 'wal_sync'";
    let count = match store.value::<i64>(has_io).await {
        1 => "SELECT wal_sync FROM pg_stat_wal",
        _ => "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'",
    };
    let mut least = i64::MAX;
    for _ in 0..3 {
        let before: i64 = store.value(count).await;
        let application = common::unique("flush");
        let options = options().application_name(&application);
        let backend = store.builder().for_options(options).unwrap();
        work(&backend).await;
        drop(backend);
        let open = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{application}'"
        );
        while store.value::<i64>(&open).await > 0 {
            tokio::task::yield_now().await;
        }
        let after: i64 = store.value(count).await;
        least = least.min(after - before);
    }
    least
}

#[tokio::test]
async fn a_grant_is_flushed_and_a_release_is_not() {
    let _alone = alone().await;
    let mut store = Store::new("flushes").await;
    acquire(&store.backend(), "job").await;
    store
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    let cycles = flushes(&mut store, async |backend: &PostgresBackend| {
        for _ in 0..400 {
            let (held, _) = acquire(backend, "job").await;
            release(backend, &held.lease_id()).await;
        }
    })
    .await;
    assert!(cycles >= 400, "{cycles} flushes for 400 grants");
    assert!(
        cycles < 600,
        "{cycles} flushes for 400 grants and 400 releases"
    );
    store.close().await;
}

#[tokio::test]
async fn renewals_are_flushed() {
    let _alone = alone().await;
    let mut store = Store::new("renewals").await;
    let backend = store.backend();
    let (held, _) = acquire(&backend, "job").await;
    let renewals = flushes(&mut store, async |backend: &PostgresBackend| {
        for more in 1..=100 {
            let lease = (held.lease_id(), LEASE * (more + 1));
            assert_eq!(
                backend.renew(&[lease]).await[0].as_ref().unwrap(),
                &Renewal::Renewed
            );
        }
    })
    .await;
    assert!(renewals >= 100, "{renewals} flushes for 100 renewals");
    store.close().await;
}
