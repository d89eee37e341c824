//! Many at once for one lock: one grant, and no error for the others.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Server, Store, granted, request};
use distlock_api::{Attempt, ErrorKind, LockBackend, Release, Renewal};
use distlock_mysql::MySqlBackend;
use tokio::task::JoinSet;

const CONTENDERS: usize = 32;

/// 100, or as many as `DISTLOCK_TEST_ROUNDS` says.
fn rounds() -> usize {
    let rounds = std::env::var("DISTLOCK_TEST_ROUNDS").ok();
    rounds.map_or(100, |rounds| rounds.parse().unwrap())
}

/// Eight processes' worth of backends with four connections each, which are open, so that nobody is late for the race.
/// Their time is not what is tested.
async fn backends(store: &Store) -> Vec<Arc<MySqlBackend>> {
    let one = || store.builder().operation_limit(Duration::from_secs(60));
    let one = || one().for_options(store.options()).unwrap();
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
async fn round(backends: &[Arc<MySqlBackend>], name: &str) -> u64 {
    let mut tries = JoinSet::new();
    for contender in 0..CONTENDERS {
        let backend = Arc::clone(&backends[contender % backends.len()]);
        let request = request(name);
        tries.spawn(async move { backend.try_acquire(&request).await });
    }
    let answers = tries.join_all().await.into_iter();
    let answers: Vec<Attempt> = answers.map(Result::unwrap).collect();
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

async fn a_race_for_a_fresh_name_has_one_winner(server: Server) {
    // (A1, I15, trap 6)
    let store = Store::new(server, "fresh").await;
    let backends = backends(&store).await;
    for number in 0..rounds() {
        round(&backends, &format!("fresh-{number}")).await;
    }
    store.close().await;
}

async fn a_race_for_an_expired_row_has_one_winner_and_the_fence_grows(server: Server) {
    // (A2, I3, I15)
    let mut store = Store::new(server, "expired").await;
    let backends = backends(&store).await;
    let mut last = round(&backends, "job").await;
    for _ in 0..rounds() {
        store
            .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR")
            .await;
        let fence = round(&backends, "job").await;
        assert!(fence > last);
        last = fence;
    }
    store.close().await;
}

async fn a_lock_that_is_passed_on_quickly_never_has_two_holders(server: Server) {
    let store = Store::new(server, "relay").await;
    let held = Arc::new(AtomicBool::new(false));
    let mut workers = JoinSet::new();
    for backend in backends(&store).await {
        let held = Arc::clone(&held);
        workers.spawn(async move {
            let mut grants = 0;
            for _ in 0..200 {
                let request = request("job");
                if granted(&backend.try_acquire(&request).await.unwrap()).is_some() {
                    assert!(!held.swap(true, Ordering::SeqCst));
                    tokio::task::yield_now().await;
                    assert!(held.swap(false, Ordering::SeqCst));
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

async fn renewals_of_the_same_leases_do_not_wait_for_each_other(server: Server) {
    let store = Store::new(server, "renewals").await;
    let backends = backends(&store).await;
    let mut leases = Vec::new();
    for number in 0..60 {
        let (held, _) = common::acquire(&backends[0], &format!("job-{number}")).await;
        leases.push((held.lease_id(), common::LEASE));
    }
    let mut tasks = JoinSet::new();
    for backend in &backends {
        leases.reverse();
        let (backend, leases) = (Arc::clone(backend), leases.clone());
        tasks.spawn(async move {
            for _ in 0..20 {
                for answer in backend.renew(&leases).await {
                    match answer {
                        Ok(renewal) => assert_eq!(renewal, Renewal::Renewed),
                        // Another was at it.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    for answer in backends[0].renew(&leases).await {
        assert_eq!(answer.unwrap(), Renewal::Renewed);
    }
    store.close().await;
}

on_both![
    a_race_for_a_fresh_name_has_one_winner,
    a_race_for_an_expired_row_has_one_winner_and_the_fence_grows,
    a_lock_that_is_passed_on_quickly_never_has_two_holders,
    renewals_of_the_same_leases_do_not_wait_for_each_other,
];
