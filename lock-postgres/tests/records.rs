//! What becomes of a record: of its token, its fence, its state, and when it goes.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::{Store, name, request};
use distlock_api::{Attempt, FencingToken, ForceRelease, Held, LockAdmin, LockBackend};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_token_whose_lease_is_over_is_never_granted_again() {
    let mut store = Store::new("over").await;
    let backend = store.backend();
    for how in ["released", "rested", "forced", "expired"] {
        let (request, _) = common::acquire(&backend, how).await;
        let end = "lock_until = clock_timestamp() WHERE name";
        match how {
            "released" => drop(backend.release(&request.lease_id(), Duration::ZERO).await),
            "rested" => drop(backend.release(&request.lease_id(), HOUR).await),
            "forced" => drop(backend.force_release(&request.name, None).await),
            _ => {}
        }
        if matches!(how, "rested" | "expired") {
            store.run(&format!("UPDATE {{}} SET {end} = '{how}'")).await;
        }
        let again = backend.try_acquire(&request).await.unwrap();
        assert_eq!(again, Attempt::Held(Held::default()), "{how}");
        let other = backend.try_acquire(&self::request(how)).await.unwrap();
        assert!(common::granted(&other).is_some(), "{how}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_fence_ahead_of_the_clock_grows_by_one() {
    let mut store = Store::new("ahead").await;
    let backend = store.backend();
    let (_, fence) = common::acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET fence = fence + 3600000000, lock_until = clock_timestamp()")
        .await;
    let (_, next) = common::acquire(&backend, "job").await;
    assert_eq!(next, fence + 3_600_000_001);
    store.close().await;
}

#[tokio::test]
async fn a_forced_release_under_another_fence_changes_nothing() {
    let store = Store::new("fence").await;
    let backend = store.backend();
    let (_, fence) = common::acquire(&backend, "job").await;
    for other in [fence - 1, u64::MAX] {
        let answer = backend
            .force_release(&name("job"), Some(FencingToken::new(other)))
            .await;
        let current = Some(FencingToken::new(fence));
        assert_eq!(answer.unwrap(), ForceRelease::OtherFence { current });
    }
    let answer = backend
        .force_release(&name("job"), Some(FencingToken::new(fence)))
        .await;
    assert_eq!(
        answer.unwrap(),
        ForceRelease::Freed {
            was: "test".to_owned()
        }
    );
    store.close().await;
}

#[tokio::test]
async fn purge_keeps_what_is_held_recent_or_ahead_of_the_clock() {
    let mut store = Store::new("purge").await;
    let backend = store.backend();
    for lock in ["held", "recent", "old", "ahead"] {
        common::acquire(&backend, lock).await;
    }
    let past = "UPDATE {} SET lock_until = clock_timestamp() - interval";
    store
        .run(&format!("{past} '1 hour' WHERE name = 'recent'"))
        .await;
    store
        .run(&format!("{past} '3 hours' WHERE name IN ('old', 'ahead')"))
        .await;
    store
        .run("UPDATE {} SET fence = fence + 3600000000 WHERE name = 'ahead'")
        .await;
    assert_eq!(backend.purge(Duration::MAX).await.unwrap(), 0);
    assert_eq!(backend.purge(Duration::from_secs(7200)).await.unwrap(), 1);
    let left = backend.list().await.unwrap();
    let left: Vec<_> = left.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(left, ["ahead", "held", "recent"]);
    store.close().await;
}

#[tokio::test]
async fn purge_goes_on_until_nothing_is_left_to_delete() {
    // (U9)
    let mut store = Store::new("many").await;
    store
        .run(
            "INSERT INTO {} SELECT 'job-' || n, now() - interval '1 day', now(), 'test', 'x', n
             FROM generate_series(1, 20001) AS n",
        )
        .await;
    let purged = store.backend().purge(Duration::from_secs(3600)).await;
    assert_eq!(purged.unwrap(), 20_001);
    store.close().await;
}
