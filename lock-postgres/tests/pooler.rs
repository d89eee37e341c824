//! A pooler between the backend and the server: found out, and passed without anybody's answers getting mixed up.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Store, acquire, granted, name, pooler_options, request};
use distlock_api::{
    Attempt, Effect, ErrorKind, LeaseId, LockAdmin, LockBackend, LockState, Release, Renewal,
};
use distlock_postgres::PostgresBackend;

/// A backend behind PgBouncer, and the wire to it.
async fn pooled(store: &Store) -> (Proxy, PostgresBackend) {
    let proxy = Proxy::before(pooler_options()).await;
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    (proxy, backend)
}

async fn release(backend: &PostgresBackend, lease: &LeaseId) {
    let release = backend.release(lease, Duration::ZERO).await.unwrap();
    assert_eq!(release, Release::Released);
}

/// Takes a lock, is refused, renews and releases.
async fn every_call(backend: &PostgresBackend) {
    let (held, _) = acquire(backend, "job").await;
    let refused = backend.try_acquire(&request("job")).await.unwrap();
    assert!(matches!(&refused, Attempt::Held(held) if held.by.as_deref() == Some("test")));
    let renewed = backend.renew(&[(held.lease_id(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    release(backend, &held.lease_id()).await;
}

#[tokio::test]
async fn a_pooler_that_refuses_session_settings_is_found_out() {
    // (F8)
    let store = Store::new("refuses").await;
    let (proxy, backend) = pooled(&store).await;
    every_call(&backend).await;
    assert_eq!((proxy.connections(), proxy.prepared()), (2, 0));
    store.close().await;
}

#[tokio::test]
async fn a_pooler_that_swallows_session_settings_is_found_out() {
    // (F8)
    let store = Store::new("swallows").await;
    let proxy = Proxy::new().await;
    proxy.drop_options();
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    every_call(&backend).await;
    assert_eq!((proxy.connections(), proxy.prepared()), (1, 0));
    store.close().await;
}

#[tokio::test]
async fn a_pooler_that_is_put_in_between_later_is_found_out_by_the_next_connection() {
    let store = Store::new("later").await;
    let proxy = Proxy::new().await;
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    every_call(&backend).await;
    assert!(proxy.prepared() > 0);
    proxy.drop_options();
    // Ends the connection that is kept.
    proxy.lose_reply();
    backend.list().await.unwrap();
    proxy.prepared();
    every_call(&backend).await;
    assert_eq!(proxy.prepared(), 0);
    store.close().await;
}

#[tokio::test]
async fn what_is_said_of_the_pooler_is_not_found_out() {
    let store = Store::new("said").await;
    let proxy = Proxy::before(pooler_options()).await;
    let builder = store.builder().pooler(true);
    every_call(&builder.for_options(proxy.options.clone()).unwrap()).await;
    assert_eq!((proxy.connections(), proxy.prepared()), (1, 0));
    let proxy = Proxy::new().await;
    proxy.drop_options();
    let builder = store.builder().pooler(false);
    every_call(&builder.for_options(proxy.options.clone()).unwrap()).await;
    assert!(proxy.prepared() > 0);
    store.close().await;
}

#[tokio::test]
async fn a_url_can_say_that_there_is_a_pooler() {
    let store = Store::new("url").await;
    for says in ["true", "false"] {
        let (url, table) = (common::pooler_url(), &store.table);
        let url = format!("{url}?lock_table={table}&lock_pooler={says}");
        let backend = PostgresBackend::connect(&url).await;
        match says {
            "true" => every_call(&backend.unwrap()).await,
            _ => {
                let error = backend.unwrap_err();
                assert_eq!(error.effect(), Effect::None, "{error}");
                assert!(
                    error.to_string().contains("unsupported startup parameter"),
                    "{error}"
                );
            }
        }
    }
    let twice = PostgresBackend::builder().pooler(true);
    let error = twice
        .connect("postgres://h/db?lock_pooler=true")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("leave one"), "{error}");
    store.close().await;
}

#[tokio::test]
async fn session_settings_of_the_caller_are_refused_behind_a_pooler() {
    let store = Store::new("callers").await;
    let swallowing = Proxy::new().await;
    swallowing.drop_options();
    for options in [pooler_options(), swallowing.options.clone()] {
        let options = options.options([("search_path", "elsewhere")]);
        let backend = store.builder().for_options(options).unwrap();
        let error = backend.try_acquire(&request("job")).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Config, Effect::None),
            "{error}"
        );
        assert!(
            error.to_string().contains("leave options out of the URL"),
            "{error}"
        );
    }
    store.close().await;
}

#[tokio::test]
async fn every_operation_is_one_round_trip() {
    let store = Store::new("trips").await;
    let (proxy, backend) = pooled(&store).await;
    every_call(&backend).await;
    proxy.round_trips();
    let (held, _) = acquire(&backend, "job").await;
    assert_eq!(proxy.round_trips(), 1, "a grant");
    backend.try_acquire(&request("job")).await.unwrap();
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
async fn many_leases_are_renewed_in_one_round_trip_and_answered_in_order() {
    let store = Store::new("batch").await;
    let (proxy, backend) = pooled(&store).await;
    let mut leases = vec![(request("unknown").lease_id(), LEASE)];
    for number in 0..100 {
        let (held, _) = acquire(&backend, &format!("job-{number}")).await;
        leases.push((held.lease_id(), LEASE * 2));
    }
    leases.push((request("job-7").lease_id(), LEASE));
    proxy.round_trips();
    let answers = backend.renew(&leases).await;
    assert_eq!(proxy.round_trips(), 1);
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[0], Renewal::Lost { to: None });
    assert!(
        answers[1..=100]
            .iter()
            .all(|answer| *answer == Renewal::Renewed)
    );
    let to = Some("test".to_owned());
    assert_eq!(answers[101..], [Renewal::Lost { to }]);
    store.close().await;
}

#[tokio::test]
async fn names_and_owners_full_of_sql_are_only_text() {
    let store = Store::new("text").await;
    let (_, backend) = pooled(&store).await;
    for text in [
        r"it's",
        r"\'; DROP TABLE x; --",
        "$1 $2",
        r#"a"b\"#,
        "jöb 🔒",
        "/* $$ */",
    ] {
        let mut request = request(text);
        request.owner = format!("{text}/{text}");
        let attempt = backend.try_acquire(&request).await.unwrap();
        assert!(granted(&attempt).is_some(), "{text}");
        let record = backend.inspect(&name(text)).await.unwrap().unwrap();
        assert_eq!(
            (record.name, record.owner),
            (name(text), Some(request.owner.clone()))
        );
        assert_eq!(record.state, LockState::Held);
        release(&backend, &request.lease_id()).await;
    }
    let mut request = request("zero");
    request.owner = "a\0b".to_owned();
    let error = backend.try_acquire(&request).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::InvalidOption, Effect::None)
    );
    store.close().await;
}

#[tokio::test]
async fn ticks_of_any_size_and_long_leases_pass() {
    let store = Store::new("ticks").await;
    let (_, backend) = pooled(&store).await;
    let mut planned = request("job");
    for tick in [i64::MIN, -1, 0, i64::MAX] {
        planned = request("job");
        planned.tick = Some(tick);
        let attempt = backend.try_acquire(&planned).await.unwrap();
        assert!(granted(&attempt).is_some(), "{tick}");
        release(&backend, &planned.lease_id()).await;
    }
    planned = request(planned.name.as_str());
    planned.tick = Some(7);
    let done = backend.try_acquire(&planned).await.unwrap();
    assert_eq!(done, Attempt::TickDone { last: i64::MAX });
    store.close().await;
}

#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_granted_again() {
    // (D2)
    let store = Store::new("lost").await;
    let (proxy, backend) = pooled(&store).await;
    every_call(&backend).await;
    proxy.lose_reply();
    acquire(&backend, "job").await;
    store.close().await;
}
