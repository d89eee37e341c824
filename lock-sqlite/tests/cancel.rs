//! Futures that are dropped at any await point: no write lock, no transaction and no lock stays (J1).
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use common::{LEASE, Store, granted, request};
use distlock_api::clock::timeout;
use distlock_api::{Attempt, LockAdmin, LockBackend};
use distlock_sqlite::SqliteBackend;
use sqlx::{Executor, SqliteConnection};

/// The future's output, or `None` where it was dropped because it was still pending after this many polls.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(move |context| match (future.as_mut().poll(context), left) {
        (Poll::Ready(output), _) => Poll::Ready(Some(output)),
        (Poll::Pending, 0 | 1) => Poll::Ready(None),
        (Poll::Pending, _) => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Another program can write at once: well before the longest time that a connection waits.
async fn assert_writable(connection: &mut SqliteConnection) {
    let write = async {
        connection.execute("BEGIN IMMEDIATE").await?;
        connection.execute("COMMIT").await
    };
    let written = timeout(Duration::from_secs(3), write).await;
    written.expect("the write lock is stuck").unwrap();
}

/// Drops the operation at every await point, again and again, until it runs to its end.
async fn at_every_point<F, T>(
    times: usize,
    mut operation: impl FnMut() -> F,
    mut after: impl AsyncFnMut(),
) where
    F: Future<Output = T>,
{
    let mut points = 0;
    for _ in 0..times {
        for polls in 1.. {
            let finished = polled(operation(), polls).await.is_some();
            after().await;
            if finished {
                break;
            }
            points = points.max(polls);
        }
    }
    assert!(
        points >= 3,
        "the operation was never dropped in its middle: {points}"
    );
}

#[tokio::test]
async fn a_dropped_acquire_leaves_no_write_lock_and_at_most_its_own_lease() {
    let store = Store::migrated().await;
    let (backend, other) = (store.backend(), store.backend());
    let mut looker_on = store.connection().await;
    let asked = request("a");
    let after = async || {
        assert_writable(&mut looker_on).await;
        // Whatever became of it, the token that asked is all that is needed to clean up.
        other
            .release(&asked.lease_id(), Duration::ZERO)
            .await
            .unwrap();
        let next = request("a");
        granted(&other, &next).await;
        other
            .release(&next.lease_id(), Duration::ZERO)
            .await
            .unwrap();
    };
    at_every_point(50, || backend.try_acquire(&asked), after).await;
}

#[tokio::test]
async fn a_dropped_release_or_renewal_leaves_no_write_lock() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let mut looker_on = store.connection().await;
    let asked = request("a");
    let (lease, leases) = (asked.lease_id(), [(asked.lease_id(), LEASE)]);
    granted(&backend, &asked).await;
    at_every_point(
        50,
        || backend.renew(&leases),
        async || assert_writable(&mut looker_on).await,
    )
    .await;
    at_every_point(
        50,
        || backend.release(&lease, Duration::ZERO),
        async || assert_writable(&mut looker_on).await,
    )
    .await;
    assert!(granted(&store.backend(), &request("a")).await > 0);
}

#[tokio::test]
async fn an_acquire_dropped_while_it_waits_for_a_writer_takes_nothing() {
    let store = Store::migrated().await;
    let backend = store.backend();
    granted(&backend, &request("warm")).await;
    let mut writer = store.connection().await;
    for _ in 0..10 {
        writer.execute("BEGIN IMMEDIATE").await.unwrap();
        let asked = request("a");
        let waiting = timeout(Duration::from_millis(20), backend.try_acquire(&asked)).await;
        assert!(waiting.is_none(), "there was nothing to wait for");
        writer.execute("COMMIT").await.unwrap();
        assert_writable(&mut writer).await;
        assert!(
            backend.inspect(&asked.name).await.unwrap().is_none(),
            "taken after it was dropped"
        );
    }
}

#[tokio::test]
async fn a_hundred_calls_at_once_take_turns() {
    let store = Store::migrated().await;
    let backend = std::sync::Arc::new(store.backend());
    let mut tasks = Vec::new();
    for _ in 0..100 {
        let backend = backend.clone();
        tasks.push(tokio::spawn(async move { winner(&backend).await }));
    }
    let mut winners = 0;
    for task in tasks {
        winners += usize::from(task.await.unwrap());
    }
    assert_eq!(winners, 1);
}

async fn winner(backend: &SqliteBackend) -> bool {
    let attempt = backend.try_acquire(&request("a")).await.unwrap();
    matches!(attempt, Attempt::Acquired { .. })
}
