//! Lost answers, and sessions that end in mid-statement.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Store, acquire, granted, name, options, request, unique};
use distlock_api::{
    Attempt, Effect, ErrorKind, ForceRelease, LockAdmin, LockBackend, Release, Renewal, clock,
};
use distlock_postgres::PostgresBackend;

/// A backend whose connection is kept and good, until the proxy is told otherwise.
async fn behind_proxy(store: &Store) -> (Proxy, PostgresBackend) {
    let proxy = Proxy::new().await;
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    acquire(&backend, "warm").await;
    let lease = request("warm").lease_id();
    backend.renew(&[(lease.clone(), LEASE)]).await;
    backend.release(&lease, Duration::ZERO).await.unwrap();
    backend.force_release(&name("warm"), None).await.unwrap();
    (proxy, backend)
}

#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_granted_again() {
    // (D2)
    let store = Store::new("lostgrant").await;
    let (proxy, backend) = behind_proxy(&store).await;
    proxy.lose_reply();
    let (held, _) = acquire(&backend, "warm").await;
    proxy.lose_reply();
    let renewed = backend.renew(&[(held.lease_id(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    store.close().await;
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_is_never_reported_as_not_held() {
    let store = Store::new("lostrelease").await;
    let (proxy, backend) = behind_proxy(&store).await;
    let (held, _) = acquire(&backend, "warm").await;
    proxy.lose_reply();
    let error = backend
        .release(&held.lease_id(), Duration::ZERO)
        .await
        .unwrap_err();
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

#[tokio::test]
async fn a_forced_release_whose_answer_is_lost_is_in_doubt() {
    let store = Store::new("lostforce").await;
    let (proxy, backend) = behind_proxy(&store).await;
    acquire(&backend, "warm").await;
    proxy.lose_reply();
    let error = backend
        .force_release(&name("warm"), None)
        .await
        .unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    let again = backend.force_release(&name("warm"), None).await.unwrap();
    assert_eq!(again, ForceRelease::NotHeld);
    store.close().await;
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_in_doubt() {
    // The lost one may still be under way, and granted once the holder is gone.
    let store = Store::new("lostrefusal").await;
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

#[tokio::test]
async fn after_a_call_that_met_silence_the_next_ones_use_new_connections() {
    // (D12)
    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(60);
    let store = Store::new("silence").await;
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

/// Ends a session that waits for a row, as soon as it does.
async fn kill_waiting(application: &str) {
    common::until(&format!(
        "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
         WHERE application_name = '{application}' AND wait_event_type = 'Lock'"
    ))
    .await;
}

#[tokio::test]
async fn a_refusal_after_the_server_ended_the_session_stands() {
    // (F1)
    let mut store = Store::new("stands").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    store
        .run("BEGIN; UPDATE {} SET lock_until = 'infinity', token = 'x', locked_by = 'winner'")
        .await;
    let request = request("job");
    let application = store.table.clone();
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), async {
        kill_waiting(&application).await;
        store.run("COMMIT").await;
    });
    let Attempt::Held(held) = attempt.unwrap() else {
        panic!("granted twice");
    };
    assert_eq!(held.by.as_deref(), Some("winner"));
    store.close().await;
}

#[tokio::test]
async fn a_session_that_is_ended_in_mid_statement_is_replaced() {
    // (F1)
    let mut store = Store::new("ended").await;
    let application = unique("ended");
    let options = options().application_name(&application);
    let backend = store.builder().for_options(options).unwrap();
    acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    store.run("BEGIN; SELECT FROM {} FOR UPDATE").await;
    let request = request("job");
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), async {
        kill_waiting(&application).await;
        store.run("ROLLBACK").await;
    });
    assert!(granted(&attempt.unwrap()).is_some());
    store.close().await;
}

#[tokio::test]
async fn a_new_session_that_is_ended_in_mid_statement_leaves_the_effect_unknown() {
    // (F1)
    let mut store = Store::new("unknown").await;
    acquire(&store.backend(), "job").await;
    store
        .run("UPDATE {} SET lock_until = clock_timestamp()")
        .await;
    store.run("BEGIN; SELECT FROM {} FOR UPDATE").await;
    let application = unique("unknown");
    let options = options().application_name(&application);
    let backend = store.builder().for_options(options).unwrap();
    let request = request("job");
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), kill_waiting(&application));
    let error = attempt.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown)
    );
    store.run("ROLLBACK").await;
    store.close().await;
}
