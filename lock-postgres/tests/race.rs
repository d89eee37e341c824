//! Many at once for one lock: one grant, and no error for the others.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;

use common::{Store, granted, request};
use distlock_api::{Attempt, LockBackend, Release};
use distlock_postgres::PostgresBackend;
use sqlx::postgres::PgConnectOptions;
use std::time::Duration;
use tokio::task::JoinSet;

const CONTENDERS: usize = 32;
const ROUNDS: usize = 300;

/// Eight processes' worth of backends with four connections each, which are open, so that nobody is late for the race.
/// Their time is not what is tested.
async fn backends(store: &Store, options: &PgConnectOptions) -> Vec<Arc<PostgresBackend>> {
    let one = || store.builder().operation_limit(Duration::from_secs(60));
    let one = || one().for_options(options.clone()).unwrap();
    let all: Vec<_> = (0..CONTENDERS / 4).map(|_| Arc::new(one())).collect();
    let mut opening = JoinSet::new();
    for number in 0..CONTENDERS {
        let backend = Arc::clone(&all[number % all.len()]);
        opening.spawn(async move { common::acquire(&backend, &format!("open-{number}")).await });
    }
    opening.join_all().await;
    all
}

/// Lets all try at once and gives the winner's fencing token.
async fn round(backends: &[Arc<PostgresBackend>], name: &str) -> u64 {
    let mut tries = JoinSet::new();
    for contender in 0..CONTENDERS {
        let backend = Arc::clone(&backends[contender % backends.len()]);
        let request = request(name);
        tries.spawn(async move { backend.try_acquire(&request).await });
    }
    let answers: Vec<Attempt> = tries
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let winners: Vec<u64> = answers.iter().filter_map(granted).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    for answer in &answers {
        if let Attempt::Held(held) = answer {
            let left = held.remaining.unwrap_or(common::LEASE);
            assert!(
                left > Duration::from_secs(1),
                "an outdated holder: {held:?}"
            );
            assert!(!held.resting);
        }
    }
    winners[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_race_for_a_fresh_name_has_one_winner() {
    // (A1, I15)
    let store = Store::new("fresh").await;
    let backends = backends(&store, &common::options()).await;
    for number in 0..ROUNDS {
        round(&backends, &format!("fresh-{number}")).await;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_race_for_an_expired_row_has_one_winner_and_the_fence_grows() {
    // (A2, I3, I15)
    let mut store = Store::new("expired").await;
    let backends = backends(&store, &common::options()).await;
    let mut last = round(&backends, "job").await;
    for _ in 0..ROUNDS {
        store
            .run("UPDATE {} SET lock_until = clock_timestamp() - interval '1 hour'")
            .await;
        let fence = round(&backends, "job").await;
        assert!(fence > last);
        last = fence;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_is_serializable_by_default_changes_nothing() {
    // (F3)
    let mut store = Store::new("serializable").await;
    let (role, options) = store.role().await;
    store
        .run(&format!(
            "ALTER ROLE {role} SET default_transaction_isolation = serializable"
        ))
        .await;
    let backends = backends(&store, &options).await;
    round(&backends, "job").await;
    for _ in 0..ROUNDS / 10 {
        store
            .run("UPDATE {} SET lock_until = clock_timestamp() - interval '1 hour'")
            .await;
        round(&backends, "job").await;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_passed_on_quickly_never_has_two_holders() {
    let store = Store::new("relay").await;
    let backends = backends(&store, &common::options()).await;
    let held = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut workers = JoinSet::new();
    for backend in backends {
        let held = Arc::clone(&held);
        workers.spawn(async move {
            let mut grants = 0;
            for _ in 0..300 {
                let request = request("job");
                if granted(&backend.try_acquire(&request).await.unwrap()).is_some() {
                    assert!(!held.swap(true, std::sync::atomic::Ordering::SeqCst));
                    tokio::task::yield_now().await;
                    assert!(held.swap(false, std::sync::atomic::Ordering::SeqCst));
                    let lease = request.lease_id();
                    let release = backend.release(&lease, Duration::ZERO).await.unwrap();
                    assert_eq!(release, Release::Released);
                    grants += 1;
                }
            }
            grants
        });
    }
    let grants: Vec<u32> = workers.join_all().await;
    assert!(grants.iter().sum::<u32>() > 0, "{grants:?}");
    store.close().await;
}
