//! Rows that people made or changed.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::{LEASE, Server, Store, acquire, name, request};
use distlock_api::options::MAX_LEASE;
use distlock_api::{
    Attempt, Effect, Error, ErrorKind, ForceRelease, Held, LockAdmin, LockBackend, LockState,
    Release, Renewal,
};

fn assert_is(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!(
        (error.kind(), error.effect()),
        (kind, Effect::None),
        "{error}"
    );
    assert!(error.to_string().contains(text), "{error}");
    assert!(!error.is_retryable());
}

async fn a_lock_that_is_held_for_ever_is_held_and_listed(server: Server) {
    let mut store = Store::new(server, "forever").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    for until in ["9999-12-31 23:59:59.999999", "9999-12-31"] {
        store
            .run(&format!("UPDATE {{}} SET lock_until = '{until}'"))
            .await;
        let held = backend.try_acquire(&request("job")).await.unwrap();
        let paused = Held {
            by: Some("test".to_owned()),
            remaining: Some(MAX_LEASE),
            resting: false,
        };
        assert_eq!(held, Attempt::Held(paused), "{until}");
        let record = backend.inspect(&name("job")).await.unwrap().unwrap();
        assert_eq!(record.state, LockState::Held);
        assert_eq!(record.remaining, MAX_LEASE);
        assert!(record.lock_until.is_some());
        assert_eq!(backend.list().await.unwrap(), [record]);
    }
    store.close().await;
}

async fn a_lock_that_is_held_for_ever_can_be_renewed_released_and_freed(server: Server) {
    let mut store = Store::new(server, "ever").await;
    let backend = store.backend();
    let (held, _) = acquire(&backend, "job").await;
    let lease = held.lease_id();
    let pause = "UPDATE {} SET lock_until = '9999-12-31'";
    store.run(pause).await;
    let renewed = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    let again = backend.try_acquire(&held).await.unwrap();
    assert!(common::granted(&again).is_some());
    let other = request("job").lease_id();
    let lost = backend.renew(&[(other, LEASE)]).await.remove(0);
    let to = Some("test".to_owned());
    assert_eq!(lost.unwrap(), Renewal::Lost { to });
    let released = backend.release(&lease, Duration::ZERO).await.unwrap();
    assert_eq!(released, Release::Released);
    store.run(pause).await;
    let freed = backend.force_release(&name("job"), None).await.unwrap();
    let was = "test".to_owned();
    assert_eq!(freed, ForceRelease::Freed { was });
    acquire(&backend, "job").await;
    store.close().await;
}

async fn a_lock_that_was_never_held_is_free_and_purged(server: Server) {
    let mut store = Store::new(server, "never").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store.run("SET sql_mode = ''").await;
    let never = "UPDATE {} SET lock_until = '0000-00-00', locked_at = '0000-00-00'";
    store.run(never).await;
    let record = backend.list().await.unwrap().remove(0);
    assert_eq!(record.state, LockState::Free);
    assert_eq!((record.locked_at, record.lock_until), (None, None));
    acquire(&backend, "job").await;
    store.run(never).await;
    assert_eq!(backend.purge(LEASE).await.unwrap(), 1);
    store.close().await;
}

async fn a_row_with_a_name_that_is_none_is_named(server: Server) {
    let mut store = Store::new(server, "noname").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    store
        .run("INSERT INTO {} VALUES ('bad\\nname', UTC_TIMESTAMP(), UTC_TIMESTAMP(), 'me', 'x', 1, NULL, 0)")
        .await;
    let error = backend.list().await.unwrap_err();
    assert_is(&error, ErrorKind::Config, r#""bad\nname" is no lock's"#);
    assert!(backend.inspect(&name("job")).await.unwrap().is_some());
    store.close().await;
}

async fn numbers_at_their_end_are_told_as_such(server: Server) {
    let mut store = Store::new(server, "ends").await;
    let backend = store.backend();
    let (held, _) = acquire(&backend, "job").await;
    let too_long = backend.renew(&[(held.lease_id(), Duration::MAX)]).await;
    let error = too_long[0].as_ref().unwrap_err();
    assert_is(error, ErrorKind::InvalidOption, "ask for a shorter one");
    store
        .run("UPDATE {} SET fence = 18446744073709551615, lock_until = UTC_TIMESTAMP(6)")
        .await;
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_is(&error, ErrorKind::Config, "set fence to a smaller one");
    let driver = error.driver_error().unwrap();
    let driver: &sqlx::Error = driver.downcast_ref().unwrap();
    let code = driver.as_database_error().unwrap().code();
    assert_eq!(code.as_deref(), Some("22003"));
    store.close().await;
}

on_both![
    a_lock_that_is_held_for_ever_is_held_and_listed,
    a_lock_that_is_held_for_ever_can_be_renewed_released_and_freed,
    a_lock_that_was_never_held_is_free_and_purged,
    a_row_with_a_name_that_is_none_is_named,
    numbers_at_their_end_are_told_as_such,
];
