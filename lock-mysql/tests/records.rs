//! What becomes of a record: of its token, its fence, its state, and when it goes.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::{Server, Store, name, request};
use distlock_api::{
    Attempt, FencingToken, ForceRelease, Held, LockAdmin, LockBackend, LockState, Release, Renewal,
};

const HOUR: Duration = Duration::from_secs(3600);

async fn a_token_whose_lease_is_over_is_never_granted_again(server: Server) {
    let mut store = Store::new(server, "over").await;
    let backend = store.backend();
    for how in ["released", "rested", "forced", "expired"] {
        let (request, _) = common::acquire(&backend, how).await;
        let end = "lock_until = UTC_TIMESTAMP(6) WHERE name";
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

async fn the_fencing_token_is_the_one_in_the_row(server: Server) {
    let mut store = Store::new(server, "same").await;
    let backend = store.backend();
    let (held, first) = common::acquire(&backend, "job").await;
    let stored = "SELECT fence FROM {}";
    assert_eq!(store.value::<u64>(stored).await, first, "a new name");
    let again = backend.try_acquire(&held).await.unwrap();
    let again = common::granted(&again).unwrap();
    assert_eq!(store.value::<u64>(stored).await, again, "the same token");
    let _ = backend.release(&held.lease_id(), Duration::ZERO).await;
    let (_, next) = common::acquire(&backend, "job").await;
    assert_eq!(store.value::<u64>(stored).await, next, "a free lock");
    assert!(first < again && again < next);
    store.close().await;
}

async fn who_comes_after_a_rest_holds_the_lock_and_does_not_rest(server: Server) {
    let mut store = Store::new(server, "after").await;
    let backend = store.backend();
    let (first, _) = common::acquire(&backend, "job").await;
    let rested = backend.release(&first.lease_id(), HOUR).await.unwrap();
    assert_eq!(rested, Release::Released);
    store
        .run("UPDATE {} SET lock_until = UTC_TIMESTAMP(6)")
        .await;
    let (next, _) = common::acquire(&backend, "job").await;
    let record = backend.inspect(&next.name).await.unwrap().unwrap();
    assert_eq!(record.state, LockState::Held);
    let renewed = backend.renew(&[(next.lease_id(), HOUR)]).await.remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    store.close().await;
}

async fn a_fence_ahead_of_the_clock_grows_by_one(server: Server) {
    let mut store = Store::new(server, "ahead").await;
    let backend = store.backend();
    let (_, fence) = common::acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET fence = fence + 3600000000, lock_until = UTC_TIMESTAMP(6)")
        .await;
    let (_, next) = common::acquire(&backend, "job").await;
    assert_eq!(next, fence + 3_600_000_001);
    store.close().await;
}

async fn a_forced_release_under_another_fence_changes_nothing(server: Server) {
    let store = Store::new(server, "fence").await;
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

/// What a forced release under the fence of the last grant answers, when the row is changed between its look and its
/// update.
async fn forced_meanwhile(store: &mut Store, change: &str) -> ForceRelease {
    let builder = store.builder().operation_limit(Duration::from_secs(60));
    let backend = builder.for_options(store.options()).unwrap();
    let (_, fence) = common::acquire(&backend, "job").await;
    store.run("BEGIN; SELECT * FROM {} FOR UPDATE").await;
    let name = name("job");
    let forcing = backend.force_release(&name, Some(FencingToken::new(fence)));
    // Its look waits for nobody, its update for us.
    let waiting = async {
        store.until_waiting(1).await;
        store
            .run(&format!("UPDATE {{}} SET {change}; COMMIT"))
            .await;
    };
    tokio::join!(forcing, waiting).0.unwrap()
}

async fn a_forced_release_frees_nobody_who_came_meanwhile(server: Server) {
    let mut store = Store::new(server, "came").await;
    let change = "fence = 18000000000000000000, token = 'new', locked_by = 'new'";
    let answer = forced_meanwhile(&mut store, change).await;
    let current = Some(FencingToken::new(18_000_000_000_000_000_000));
    assert_eq!(answer, ForceRelease::OtherFence { current });
    let held = "SELECT COUNT(*) FROM {} WHERE lock_until > UTC_TIMESTAMP(6)";
    assert_eq!(store.value::<i64>(held).await, 1);
    store.close().await;
}

async fn a_forced_release_takes_no_credit_for_a_lock_that_ended_meanwhile(server: Server) {
    let mut store = Store::new(server, "ended").await;
    let answer = forced_meanwhile(&mut store, "lock_until = '2020-01-01'").await;
    assert_eq!(answer, ForceRelease::NotHeld);
    store.close().await;
}

async fn purge_keeps_what_is_held_recent_or_ahead_of_the_clock(server: Server) {
    let mut store = Store::new(server, "purge").await;
    let backend = store.backend();
    for lock in ["held", "recent", "old", "ahead"] {
        common::acquire(&backend, lock).await;
    }
    let past = "UPDATE {} SET lock_until = UTC_TIMESTAMP(6) - INTERVAL";
    store
        .run(&format!("{past} 1 HOUR WHERE name = 'recent'"))
        .await;
    store
        .run(&format!("{past} 3 HOUR WHERE name IN ('old', 'ahead')"))
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

async fn purge_goes_on_until_nothing_is_left_to_delete(server: Server) {
    // (U9)
    let mut store = Store::new(server, "many").await;
    store
        .run(
            "INSERT INTO {}
             WITH RECURSIVE digits (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digits WHERE n < 149)
             SELECT CONCAT('job-', a.n, '-', b.n), UTC_TIMESTAMP() - INTERVAL 1 DAY, UTC_TIMESTAMP(), 'test', 'x', 1, NULL, 0
             FROM digits AS a CROSS JOIN digits AS b",
        )
        .await;
    let purged = store.backend().purge(Duration::from_secs(3600)).await;
    assert_eq!(purged.unwrap(), 22_500);
    store.close().await;
}

on_both![
    a_token_whose_lease_is_over_is_never_granted_again,
    the_fencing_token_is_the_one_in_the_row,
    who_comes_after_a_rest_holds_the_lock_and_does_not_rest,
    a_fence_ahead_of_the_clock_grows_by_one,
    a_forced_release_under_another_fence_changes_nothing,
    a_forced_release_frees_nobody_who_came_meanwhile,
    a_forced_release_takes_no_credit_for_a_lock_that_ended_meanwhile,
    purge_keeps_what_is_held_recent_or_ahead_of_the_clock,
    purge_goes_on_until_nothing_is_left_to_delete,
];
