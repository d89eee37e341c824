//! Connections that break, or come from elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{LEASE, Server, Space, acquire, connection, given_url, name, request};
use distlock_api::{
    AcquireRequest, Attempt, Effect, ErrorKind, LockAdmin, LockBackend, Release, Renewal,
};
use distlock_redis::{RedisBackend, deadpool_redis, redis};

/// (E1)
#[tokio::test]
async fn a_flushed_script_cache_is_filled_again_unnoticed() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    for _ in 0..3 {
        let requests = [request("a"), request("b"), request("c")];
        let leases = requests
            .each_ref()
            .map(|request| (request.lease_id(), LEASE));
        for request in &requests {
            let () = space.run("SCRIPT FLUSH").await;
            acquire(&backend, request).await;
        }
        let () = space.run("SCRIPT FLUSH").await;
        for renewal in backend.renew(&leases).await {
            assert_eq!(renewal.unwrap(), Renewal::Renewed);
        }
        for (lease, _) in &leases {
            let () = space.run("SCRIPT FLUSH").await;
            let released = backend.release(lease, Duration::ZERO).await.unwrap();
            assert_eq!(released, Release::Released);
        }
    }
}

/// Kills all connections but the one that asks for it.
async fn kill_others(space: &mut Space) {
    let killed: u64 = space.run("CLIENT KILL TYPE normal SKIPME yes").await;
    assert!(killed > 0);
}

#[tokio::test]
async fn a_connection_that_died_meanwhile_is_replaced_within_the_call() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    let request = request("a");
    let fence = acquire(&backend, &request).await;
    kill_others(&mut space).await;
    assert_eq!(acquire(&backend, &request).await, fence);
    kill_others(&mut space).await;
    let renewed = backend
        .renew(&[(request.lease_id(), LEASE)])
        .await
        .remove(0);
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
    kill_others(&mut space).await;
    assert!(backend.inspect(&name("a")).await.unwrap().is_some());
    kill_others(&mut space).await;
    let released = backend.release(&request.lease_id(), Duration::ZERO).await;
    assert_eq!(released.unwrap(), Release::Released);
}

/// The first try may be under way still, and take the lock for nobody once it is free.
#[tokio::test]
async fn a_refusal_after_a_broken_connection_is_in_doubt() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    acquire(&backend, &request("a")).await;
    kill_others(&mut space).await;
    let asked = request("a");
    let error = backend.try_acquire(&asked).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown)
    );
    let settled = backend.try_acquire(&asked).await.unwrap();
    assert!(matches!(settled, Attempt::Held(_)), "{settled:?}");
}

/// The first try may have released it, so that "not held" would say too much.
#[tokio::test]
async fn a_release_that_finds_nothing_after_a_broken_connection_is_in_doubt() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    let request = request("a");
    acquire(&backend, &request).await;
    let () = space.run("DEL KEY:a").await;
    kill_others(&mut space).await;
    let error = backend
        .release(&request.lease_id(), Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown)
    );
    let settled = backend.release(&request.lease_id(), Duration::ZERO).await;
    assert_eq!(settled.unwrap(), Release::NotHeld { by: None });
    kill_others(&mut space).await;
    let error = backend.force_release(&name("a"), None).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
}

/// (E6)
#[tokio::test]
async fn a_server_that_was_restarted_is_found_again_by_the_next_call() {
    let mut server = Server::start(&[]).await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    acquire(&backend, &request("a")).await;
    server.kill();
    let error = backend.try_acquire(&request("b")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::Unknown)
    );
    let error = backend.try_acquire(&request("b")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::None)
    );
    server.start_again().await;
    acquire(&backend, &request("b")).await;
}

#[tokio::test]
async fn calls_share_one_connection() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = Arc::new(space.client().await);
    let tasks: Vec<_> = (0..100)
        .map(|i| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move { acquire(&backend, &request(&format!("{i}"))).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let clients: String = space.run("CLIENT LIST").await;
    assert_eq!(clients.lines().count(), 2, "{clients}");
}

/// A backend outlives the runtime that its connection was opened in.
#[test]
fn another_runtime_opens_a_connection_of_its_own() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (space, backend) = runtime().block_on(async {
        let space = Space::new().await;
        let backend = space.client().await;
        acquire(&backend, &request("a")).await;
        (space, backend)
    });
    runtime().block_on(async {
        acquire(&backend, &request("b")).await;
        drop(space);
    });
}

#[tokio::test]
async fn resp3_works_as_resp2_does() {
    let mut space = Space::new().await;
    space.url.push_str("?protocol=3");
    let backend = space.client().await;
    let mut request = request("a");
    request.tick = Some(1);
    acquire(&backend, &request).await;
    let other = AcquireRequest::new(name("a"), "other", LEASE);
    assert!(matches!(
        backend.try_acquire(&other).await.unwrap(),
        Attempt::Held(_)
    ));
    let record = backend.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!(
        (record.last_tick, record.owner.as_deref()),
        (Some(1), Some("tester/1"))
    );
    assert_eq!(
        backend.list().await.unwrap()[0].fencing_token,
        record.fencing_token
    );
    let released = backend.release(&request.lease_id(), Duration::ZERO).await;
    assert_eq!(released.unwrap(), Release::Released);
    let gone = backend.release(&request.lease_id(), Duration::ZERO).await;
    assert_eq!(gone.unwrap(), Release::NotHeld { by: None });
}

#[tokio::test]
async fn a_pool_that_is_used_up_holds_up_nothing() {
    let space = Space::new().await;
    let config = deadpool_redis::Config::from_url(given_url());
    let pool = config.builder().unwrap().max_size(1).build().unwrap();
    let _all_of_it = pool.get().await.unwrap();
    let builder = RedisBackend::builder().prefix(&space.prefix);
    let backend = builder.from_pool(pool.clone()).unwrap();
    assert!(backend.capabilities().own_connections);
    acquire(&backend, &request("a")).await;
    assert_eq!(pool.status().size, 1);
}

#[tokio::test]
async fn a_given_connection_is_used_and_not_replaced() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = RedisBackend::from_connection(connection(&server.url()).await);
    assert!(!backend.capabilities().own_connections);
    acquire(&backend, &request("a")).await;
    kill_others(&mut space).await;
    for _ in 0..2 {
        let error = backend.try_acquire(&request("b")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("given"), "{error}");
    }
}

#[tokio::test]
async fn a_client_is_connected_when_it_is_needed() {
    let space = Space::new().await;
    let client = redis::Client::open(given_url()).unwrap();
    let builder = RedisBackend::builder().prefix(&space.prefix);
    acquire(&builder.from_client(client).unwrap(), &request("a")).await;
    let nobody = redis::Client::open(format!("redis://127.0.0.1:{}", common::free_port()));
    let backend = RedisBackend::from_client(nobody.unwrap());
    let error = backend.try_acquire(&request("a")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::None)
    );
}
