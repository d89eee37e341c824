//! What the operations cost, by counters of the wire and of the server.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Store, acquire, granted, request};
use distlock_api::clock::Instant;
use distlock_api::{Attempt, LeaseId, LockBackend, Release, Renewal};
use distlock_postgres::PostgresBackend;
use tokio::sync::{Mutex, MutexGuard};

/// The server's counters of WAL are one for all, so that the tests of this file take turns. Other programs may be at
/// work all the same: they only add, so that what is to be little is counted again until it is.
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
    let _alone = alone().await;
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
    let _alone = alone().await;
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

/// Where the WAL ends, in bytes.
const POSITION: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";

/// Counts again until it is little, for a minute at most; the least.
async fn least(little: i64, mut count: impl AsyncFnMut() -> i64) -> i64 {
    let start = Instant::now();
    let mut least = i64::MAX;
    while least >= little && start.elapsed() < Duration::from_secs(60) {
        least = least.min(count().await);
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
    let bytes = least(1000, async || {
        let before: i64 = store.value(POSITION).await;
        for _ in 0..200 {
            let refused = backend.try_acquire(&request("job")).await.unwrap();
            assert_eq!(granted(&refused), None);
        }
        store.value::<i64>(POSITION).await - before
    })
    .await;
    assert!(bytes < 1000, "{bytes} bytes of WAL in 200 refusals");
    let locker: String = store.value("SELECT xmax::text FROM {}").await;
    assert_eq!(locker, "0");
    store.close().await;
}

/// Whether the disk has what came after this position of the WAL, at least its beginning.
async fn is_flushed_beyond(store: &mut Store, position: i64) -> bool {
    let flushed = "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint";
    store.value::<i64>(flushed).await > position
}

#[tokio::test]
async fn a_grant_and_a_renewal_are_on_disk_when_they_are_answered() {
    let _alone = alone().await;
    let mut store = Store::new("flushed").await;
    let backend = store.backend();
    for more in 1..=100 {
        let before: i64 = store.value(POSITION).await;
        let (held, _) = acquire(&backend, "job").await;
        assert!(is_flushed_beyond(&mut store, before).await, "a grant");
        let lease = held.lease_id();
        let before: i64 = store.value(POSITION).await;
        let renewed = backend.renew(&[(lease.clone(), LEASE * (more + 1))]).await;
        assert_eq!(renewed[0].as_ref().unwrap(), &Renewal::Renewed);
        assert!(is_flushed_beyond(&mut store, before).await, "a renewal");
        release(&backend, &lease).await;
    }
    store.close().await;
}

#[tokio::test]
async fn a_release_does_not_wait_for_the_disk() {
    let _alone = alone().await;
    let mut store = Store::new("release").await;
    let backend = store.backend();
    // Others may flush in the same moment, and the server does so after a while.
    let waited = least(1, async || {
        let (held, _) = acquire(&backend, "job").await;
        let before: i64 = store.value(POSITION).await;
        release(&backend, &held.lease_id()).await;
        i64::from(is_flushed_beyond(&mut store, before).await)
    })
    .await;
    assert_eq!(waited, 0, "every release was flushed");
    store.close().await;
}

#[tokio::test]
async fn only_a_release_is_committed_without_a_flush() {
    // The same by what the sessions themselves say: nobody else's flushes can hide that one is missing.
    let _alone = alone().await;
    let mut store = Store::new("commits").await;
    store
        .run(
            "CREATE TABLE {}_seen (number serial, setting text);
             CREATE FUNCTION {}_spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO {}_seen (setting) VALUES (current_setting('synchronous_commit'));
                 RETURN NULL;
             END $$;
             CREATE CONSTRAINT TRIGGER spy AFTER INSERT OR UPDATE ON {} DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION {}_spy()",
        )
        .await;
    let backend = store.backend();
    for _ in 0..2 {
        let (held, _) = acquire(&backend, "job").await;
        backend.renew(&[(held.lease_id(), LEASE * 2)]).await;
        release(&backend, &held.lease_id()).await;
    }
    let seen = "SELECT string_agg(setting, ' ' ORDER BY number) FROM {}_seen";
    let seen: String = store.value(seen).await;
    assert_eq!(seen, "on on off on on off");
    store
        .run("DROP TABLE {}, {}_seen; DROP FUNCTION {}_spy")
        .await;
    store.close().await;
}
