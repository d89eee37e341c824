//! Bad servers and bad set-ups: each has its kind, changed nothing, and is never told as "held".

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{SECRET, Server, Space, acquire, free_port, name, not_acquired, refused, request};
use distlock_api::clock::Instant;
use distlock_api::{Attempt, Effect, ErrorKind, LockAdmin, LockBackend};
use distlock_redis::RedisBackend;

#[tokio::test]
async fn nobody_there_is_unavailable() {
    for url in [
        format!("redis://:{SECRET}@127.0.0.1:{}", free_port()),
        format!("redis://:{SECRET}@no-such-host.invalid"),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_retryable());
    }
}

/// (D12)
#[tokio::test]
async fn a_server_that_accepts_and_hangs_is_unavailable_within_the_limit() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let limit = Duration::from_millis(300);
    let start = Instant::now();
    let connecting = RedisBackend::builder()
        .operation_limit(limit)
        .connect(&url)
        .await;
    let error = connecting.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::None)
    );
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_database_number_that_does_not_exist_is_a_config_error() {
    let server = Server::start(&["--databases", "2"]).await;
    let error = refused(&format!("{}/2", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    RedisBackend::connect(&format!("{}/1", server.url()))
        .await
        .unwrap();
}

#[tokio::test]
async fn options_out_of_range_are_config_errors_before_any_io() {
    let builders = [
        RedisBackend::builder().prefix("a{b"),
        RedisBackend::builder().operation_limit(Duration::ZERO),
    ];
    for builder in builders {
        let error = builder
            .connect("redis://no-such-host.invalid")
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
}

/// (E11), and promoted to a primary it works again (U8).
#[tokio::test]
async fn a_replica_is_read_only_until_it_is_promoted() {
    let primary = Server::start(&[]).await;
    let port = primary.port.to_string();
    for writable in ["yes", "no"] {
        let arguments = [
            "--replicaof",
            "127.0.0.1",
            &port,
            "--replica-read-only",
            writable,
        ];
        let server = Server::start(&arguments).await;
        let mut replica = Space::at(&server.url()).await;
        let backend = replica.client().await;
        let error = not_acquired(&backend).await;
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::ReadOnly, Effect::None)
        );
        let fault = backend.check().await.unwrap().usable().unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::ReadOnly);
        assert_eq!(backend.inspect(&name("a")).await.unwrap(), None);
        let () = replica.run("REPLICAOF NO ONE").await;
        acquire(&backend, &request("a")).await;
    }
}

/// A primary that becomes a replica while its locks are in use.
#[tokio::test]
async fn a_demoted_primary_is_read_only() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    let held = request("b");
    acquire(&backend, &held).await;
    let () = space
        .run(&format!("REPLICAOF 127.0.0.1 {}", free_port()))
        .await;
    assert_eq!(not_acquired(&backend).await.kind(), ErrorKind::ReadOnly);
    let error = backend
        .release(&held.lease_id(), Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::ReadOnly, Effect::None)
    );
}

#[tokio::test]
async fn a_full_server_is_unavailable() {
    for (arguments, heal) in [
        (["--maxmemory", "1"], "CONFIG SET maxmemory 0"),
        (
            ["--min-replicas-to-write", "1"],
            "CONFIG SET min-replicas-to-write 0",
        ),
    ] {
        let server = Server::start(&arguments).await;
        let mut space = Space::at(&server.url()).await;
        let backend = space.client().await;
        let error = not_acquired(&backend).await;
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Unavailable, Effect::None),
            "{error}"
        );
        let () = space.run(heal).await;
        acquire(&backend, &request("a")).await;
    }
}

#[tokio::test]
async fn too_many_clients_are_unavailable_and_not_denied() {
    let server = Server::start(&["--requirepass", "x"]).await;
    let url = format!("redis://:x@127.0.0.1:{}", server.port);
    let mut space = Space::at(&url).await;
    let () = space.run("CONFIG SET maxclients 1").await;
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let () = space.run("CONFIG SET maxclients 100").await;
    acquire(&space.client().await, &request("a")).await;
}

/// (E14)
#[tokio::test]
async fn a_server_busy_with_a_script_is_unavailable_until_it_is_done() {
    let server = Server::start(&["--lua-time-limit", "10"]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    acquire(&backend, &request("b")).await;
    let mut other = common::connection(&server.url()).await;
    let endless = tokio::spawn(async move {
        let mut eval = distlock_redis::redis::cmd("EVAL");
        eval.arg("while true do end")
            .arg(0)
            .query_async::<()>(&mut other)
            .await
    });
    let error = loop {
        match backend.try_acquire(&request("b")).await {
            Ok(held) => assert!(matches!(held, Attempt::Held(_))),
            Err(error) => break error,
        }
    };
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Unavailable, Effect::None),
        "{error}"
    );
    let () = space.run("SCRIPT KILL").await;
    endless.await.unwrap().unwrap_err();
    acquire(&backend, &request("a")).await;
}

/// (E5): the answer may yet come, so that the effect is unknown.
#[tokio::test]
async fn an_answer_that_does_not_come_is_a_timeout_with_unknown_effect() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let limit = Duration::from_millis(200);
    let builder = RedisBackend::builder().operation_limit(limit);
    let backend = builder.connect(&server.url()).await.unwrap();
    acquire(&backend, &request("b")).await;
    let () = space.run("CLIENT PAUSE 60000 ALL").await;
    let start = Instant::now();
    let error = not_acquired(&backend).await;
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Timeout, Effect::Unknown)
    );
    assert!(start.elapsed() >= limit && start.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_failed_check_is_not_remembered() {
    let server = Server::start(&["--maxmemory", "1"]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    for _ in 0..2 {
        assert_eq!(not_acquired(&backend).await.kind(), ErrorKind::Unavailable);
    }
    let () = space.run("CONFIG SET maxmemory 0").await;
    acquire(&backend, &request("a")).await;
}
