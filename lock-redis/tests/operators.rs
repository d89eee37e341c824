//! The operators' tools.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{LEASE, Space, acquire, name, request};
use distlock_api::{ForceRelease, LockAdmin, LockBackend, LockState};

#[tokio::test]
async fn a_lock_is_inspected_with_the_servers_times() {
    let space = Space::new().await;
    let backend = space.client().await;
    assert_eq!(backend.inspect(&name("a")).await.unwrap(), None);
    let request = request("a");
    let fence = acquire(&backend, &request).await;
    let held = backend.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!(held.state, LockState::Held);
    assert_eq!(held.owner.as_deref(), Some("tester/1"));
    assert_eq!(held.fencing_token, Some(fence));
    let length = held
        .lock_until
        .unwrap()
        .duration_since(held.locked_at.unwrap());
    let off_by = length.unwrap().abs_diff(LEASE);
    assert!(off_by <= Duration::from_millis(2), "{off_by:?}");
    backend
        .release(&request.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    let free = backend.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!((free.state, free.owner), (LockState::Free, None));
    assert_eq!(free.locked_at, held.locked_at);
    assert_eq!(free.remaining, Duration::ZERO);
}

#[tokio::test]
async fn all_locks_are_listed_once_by_name_and_nothing_else() {
    let mut space = Space::new().await;
    space.prefix = format!("*[{}]?", space.prefix);
    let backend = space.client().await;
    let released = request("b%{");
    let mut ticked = request("a");
    ticked.tick = Some(1);
    for request in [&released, &ticked, &request("c")] {
        acquire(&backend, request).await;
    }
    backend
        .release(&released.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    for other in ["SET KEY:d:x 1", "SET KEY: 1"] {
        let () = space.run(other).await;
    }
    let records = backend.list().await.unwrap();
    let records: Vec<_> = records.iter().map(|r| (r.name.as_str(), r.state)).collect();
    let expected = [
        ("a", LockState::Held),
        ("b%{", LockState::Free),
        ("c", LockState::Held),
    ];
    assert_eq!(records, expected);
}

#[tokio::test]
async fn more_locks_than_a_page_are_listed() {
    let mut space = Space::new().await;
    let mut sets = distlock_redis::redis::pipe();
    for i in 0..1_234 {
        sets.cmd("SET")
            .arg(space.key(&format!("{i:04}")))
            .arg("x")
            .arg("PX")
            .arg(60_000)
            .ignore();
    }
    let () = sets.query_async(&mut space.raw).await.unwrap();
    let records = space.client().await.list().await.unwrap();
    assert_eq!(records.len(), 1_234);
    assert!(records.is_sorted_by(|a, b| a.name < b.name));
}

#[tokio::test]
async fn force_release_minds_the_fencing_token_it_is_given() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let fence = acquire(&backend, &request("a")).await;
    let other = distlock_api::FencingToken::new(fence.value() - 1);
    let refused = backend
        .force_release(&name("a"), Some(other))
        .await
        .unwrap();
    assert_eq!(
        refused,
        ForceRelease::OtherFence {
            current: Some(fence)
        }
    );
    let freed = backend
        .force_release(&name("a"), Some(fence))
        .await
        .unwrap();
    assert_eq!(
        freed,
        ForceRelease::Freed {
            was: "tester/1".to_owned()
        }
    );
    let nobody = backend.force_release(&name("a"), None).await.unwrap();
    assert_eq!(nobody, ForceRelease::NotHeld);

    // The counter says nothing of a holder that it was not counted for.
    let () = space.run("SET KEY:a foreign").await;
    let refused = backend
        .force_release(&name("a"), Some(fence))
        .await
        .unwrap();
    assert_eq!(refused, ForceRelease::OtherFence { current: None });
    let freed = backend.force_release(&name("a"), None).await.unwrap();
    assert_eq!(
        freed,
        ForceRelease::Freed {
            was: "unknown".to_owned()
        }
    );
}

#[tokio::test]
async fn a_check_leaves_nothing_behind() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    backend.check().await.unwrap().usable().unwrap();
    backend.migrate().await.unwrap();
    assert_eq!(backend.purge(Duration::ZERO).await.unwrap(), 0);
    let keys: Vec<String> = space.run(&format!("KEYS {}*", space.prefix)).await;
    assert!(keys.is_empty(), "{keys:?}");
}
