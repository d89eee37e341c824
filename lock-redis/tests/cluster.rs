//! A server that is a whole cluster by itself: it refuses keys of one lock in two slots (U25, E11).

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{LEASE, Server, Space, acquire, name, request};
use distlock_api::{ErrorKind, LockAdmin, LockBackend, Release};

const NAMES: [&str; 6] = ["nightly", "{}", "a{b}c", "}{", "100%", "jöb:{x"];

async fn cluster_of_one() -> (Server, Space) {
    let server = Server::start(&["--cluster-enabled", "yes"]).await;
    let space = Space::at(&server.url()).await;
    (server, space)
}

#[tokio::test]
async fn the_keys_of_a_lock_share_a_slot() {
    let (_server, mut space) = cluster_of_one().await;
    for encoded in [
        "nightly",
        "%7B%7D",
        "a%7Bb%7Dc",
        "%7D%7B",
        "100%25",
        "jöb:%7Bx",
    ] {
        let tag = slot(&mut space, encoded).await;
        for suffix in ["", ":f", ":t"] {
            let key = space.key(encoded) + suffix;
            assert_eq!(slot(&mut space, &key).await, tag, "{key}");
        }
    }
}

async fn slot(space: &mut Space, key: &str) -> u16 {
    let mut keyslot = distlock_redis::redis::cmd("CLUSTER");
    keyslot.arg("KEYSLOT").arg(key);
    keyslot.query_async(&mut space.raw).await.unwrap()
}

#[tokio::test]
async fn a_cluster_runs_all_scripts_on_all_names() {
    let (_server, mut space) = cluster_of_one().await;
    common::give_all_slots(&mut space).await;
    let backend = space.client().await;
    for lock in NAMES {
        let mut request = request(lock);
        request.tick = Some(1);
        acquire(&backend, &request).await;
        let renewed = backend.renew(&[(request.lease_id(), LEASE)]).await;
        assert!(renewed[0].is_ok(), "{renewed:?}");
        let released = backend.release(&request.lease_id(), Duration::ZERO).await;
        assert_eq!(released.unwrap(), Release::Released);
        backend.force_release(&name(lock), None).await.unwrap();
        assert!(backend.inspect(&name(lock)).await.unwrap().is_some());
    }
    assert_eq!(backend.list().await.unwrap().len(), NAMES.len());
}

#[tokio::test]
async fn a_cluster_that_is_down_is_unavailable() {
    let (_server, space) = cluster_of_one().await;
    let error = space
        .client()
        .await
        .try_acquire(&request("a"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
