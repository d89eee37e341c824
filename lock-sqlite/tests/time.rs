//! Boots and clocks: what ends with a boot, and what must not.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::{Duration, SystemTime};

use common::{LEASE, Store, granted, name, refused, request};
use distlock_api::{Attempt, Held, LockAdmin, LockBackend, LockState, Release, Renewal, clock};
use sqlx::Executor;

/// Makes all leases those of another boot of the machine.
async fn reboot(store: &Store) {
    store
        .run("UPDATE distlock_locks SET boot_id = 'the boot before'")
        .await;
}

#[tokio::test]
async fn a_reboot_ends_all_leases_at_once_and_the_fence_grows_on() {
    // (G6)
    let store = Store::migrated().await;
    let backend = store.backend();
    let old = request("a");
    let before = granted(&backend, &old).await;
    reboot(&store).await;
    let record = backend.inspect(&old.name).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.remaining),
        (LockState::Free, Duration::ZERO)
    );
    let renewal = backend.renew(&[(old.lease_id(), LEASE)]).await.remove(0);
    assert_eq!(renewal.unwrap(), Renewal::Lost { to: None });
    let release = backend.release(&old.lease_id(), Duration::ZERO).await;
    assert_eq!(release.unwrap(), Release::NotHeld { by: None });
    assert!(granted(&backend, &request("a")).await > before);
    assert!(refused(&backend, "a").await);
}

#[tokio::test]
async fn a_lease_of_an_earlier_boot_lengthens_none_and_its_token_is_used_up() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let asked = request("a");
    granted(&backend, &asked).await;
    store
        .run("UPDATE distlock_locks SET boot_until = boot_until + 3600000000")
        .await;
    reboot(&store).await;
    let late = backend.try_acquire(&asked).await.unwrap();
    assert_eq!(late, Attempt::Held(Held::default()));
    granted(&backend, &request("a")).await;
    let record = backend.inspect(&asked.name).await.unwrap().unwrap();
    assert!(record.remaining <= LEASE, "{:?}", record.remaining);
}

#[tokio::test]
async fn a_reboot_ends_resting_and_keeps_the_tick() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let mut asked = request("a");
    asked.tick = Some(7);
    granted(&backend, &asked).await;
    backend.release(&asked.lease_id(), LEASE).await.unwrap();
    reboot(&store).await;
    let record = backend.inspect(&asked.name).await.unwrap().unwrap();
    assert_eq!((record.state, record.last_tick), (LockState::Free, Some(7)));
    granted(&backend, &request("a")).await;
}

#[tokio::test]
async fn a_counter_ahead_of_the_clock_still_grows() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let first = request("a");
    let fence = granted(&backend, &first).await;
    backend
        .release(&first.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    let ahead = fence + 3_600_000_000;
    store
        .run(&format!("UPDATE distlock_locks SET fence = {ahead}"))
        .await;
    // A purge would forget it: it stays.
    assert_eq!(backend.purge(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(granted(&backend, &request("a")).await, ahead + 1);
}

#[tokio::test]
async fn a_counter_that_was_deleted_begins_at_the_clock() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let before = granted(&backend, &request("a")).await;
    store.run("DELETE FROM distlock_locks").await;
    assert!(granted(&backend, &request("a")).await > before);
}

#[tokio::test]
async fn records_of_earlier_boots_are_purged_by_when_they_would_have_ended() {
    let store = Store::migrated().await;
    let backend = store.backend();
    for lock in ["held", "rebooted", "old"] {
        granted(&backend, &request(lock)).await;
    }
    let day = 24 * 3600 * 1_000_000_u64;
    for sql in [
        "UPDATE distlock_locks SET boot_id = 'before' WHERE name <> 'held'",
        &format!("UPDATE distlock_locks SET lock_until = lock_until - {day} WHERE name = 'old'"),
    ] {
        store.run(sql).await;
    }
    // Longer than this machine can have been up, so that only the wall clock can tell.
    let longer_than_up = clock::boot_time() + Duration::from_secs(60);
    let purged = backend
        .purge(longer_than_up.min(Duration::from_secs(80_000)))
        .await
        .unwrap();
    let left: Vec<_> = backend.list().await.unwrap();
    let left: Vec<_> = left.iter().map(|record| record.name.as_str()).collect();
    assert!(
        !left.contains(&"old") && left.contains(&"held"),
        "{purged}: {left:?}"
    );
    assert_eq!(backend.purge(Duration::ZERO).await.unwrap() + purged, 2);
    assert!(backend.inspect(&name("held")).await.unwrap().is_some());
}

#[tokio::test]
async fn displayed_ends_follow_the_boot_clock_and_not_what_was_noted() {
    let store = Store::migrated().await;
    let backend = store.backend();
    granted(&backend, &request("a")).await;
    store.run("UPDATE distlock_locks SET lock_until = 0").await;
    let record = backend.inspect(&name("a")).await.unwrap().unwrap();
    let until = record.lock_until.unwrap();
    let left = until.duration_since(clock::wall()).unwrap();
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
}

#[tokio::test]
async fn a_grant_that_waited_for_a_writer_counts_from_its_end() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    let asked = request("a");
    let commit = async {
        clock::sleep(Duration::from_millis(100)).await;
        let before = clock::wall();
        writer.execute("COMMIT").await.unwrap();
        before
    };
    let (_, committed) = tokio::join!(granted(&backend, &asked), commit);
    let record = backend.inspect(&asked.name).await.unwrap().unwrap();
    // Stored in microseconds.
    assert!(record.locked_at.unwrap() + Duration::from_micros(1) > committed);
}

#[tokio::test]
async fn a_lease_that_ended_while_its_release_or_renewal_waited_is_over() {
    let store = Store::migrated().await;
    let backend = store.backend();
    let mut writer = store.connection().await;
    for lock in ["renewed", "released"] {
        let mut asked = request(lock);
        asked.lease = Duration::from_millis(200);
        granted(&backend, &asked).await;
        writer.execute("BEGIN IMMEDIATE").await.unwrap();
        let commit = async {
            clock::sleep(asked.lease).await;
            writer.execute("COMMIT").await.unwrap();
        };
        let lease = asked.lease_id();
        if lock == "renewed" {
            let leases = [(lease, LEASE)];
            let (mut answers, ()) = tokio::join!(backend.renew(&leases), commit);
            assert_eq!(answers.remove(0).unwrap(), Renewal::Lost { to: None });
        } else {
            let (answer, ()) = tokio::join!(backend.release(&lease, LEASE), commit);
            assert_eq!(answer.unwrap(), Release::NotHeld { by: None });
        }
    }
}

#[tokio::test]
async fn a_fencing_token_is_never_behind_the_clock() {
    let store = Store::migrated().await;
    let backend = store.backend();
    for _ in 0..2 {
        let before = clock::wall()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let asked = request("a");
        let fence = granted(&backend, &asked).await;
        assert!(u128::from(fence) >= before.as_micros());
        backend
            .release(&asked.lease_id(), Duration::ZERO)
            .await
            .unwrap();
        clock::sleep(Duration::from_millis(5)).await;
    }
}
