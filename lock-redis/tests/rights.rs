//! Users, passwords and rights.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{SECRET, Server, Space, acquire, name, not_acquired, refused, request};
use distlock_api::{Effect, ErrorKind, Findings, LockAdmin, LockBackend, Release};
use distlock_redis::RedisBackend;
use distlock_redis::redis::Value;

#[tokio::test]
async fn a_wrong_password_is_denied() {
    let server = Server::start(&["--requirepass", "right"]).await;
    let port = server.port;
    for (user, query) in [
        (format!(":{SECRET}@"), ""),
        (format!("nobody:{SECRET}@"), ""),
        (format!(":{SECRET}@"), "?protocol=resp3"),
        (String::new(), ""),
    ] {
        let error = refused(&format!("redis://{user}127.0.0.1:{port}/{query}")).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    let url = format!("redis://:right@127.0.0.1:{port}");
    acquire(&RedisBackend::connect(&url).await.unwrap(), &request("a")).await;
}

#[tokio::test]
async fn debug_shows_no_password() {
    let server = Server::start(&["--requirepass", SECRET]).await;
    let url = format!("redis://:{SECRET}@127.0.0.1:{}", server.port);
    let backend = RedisBackend::connect(&url).await.unwrap();
    let text = format!("{backend:?}");
    assert!(
        text.contains("127.0.0.1") && !text.contains(SECRET),
        "{text}"
    );
}

/// Each is needed, for locks or for what the documentation says (U7).
#[tokio::test]
async fn a_missing_right_is_denied_or_told_and_named() {
    let server = Server::start(&["--appendonly", "yes"]).await;
    let mut space = Space::at(&server.url()).await;
    let all = common::documented_rights(&mut space.raw).await;
    for missing in &all {
        let rights = all.iter().filter(|right| *right != missing);
        let rights: Vec<_> = rights.map(String::as_str).collect();
        let backend = least(&server, &mut space, &rights.join(" ")).await;
        let text = match &missing[1..] {
            "scan" => backend.list().await.unwrap_err().to_string(),
            "info" | "pexpiretime" => {
                let found = backend.check().await.unwrap();
                acquire(&backend, &request(missing)).await;
                found.iter().map(ToString::to_string).collect()
            }
            _ => {
                let error = not_acquired(&backend).await;
                let (kind, effect) = (error.kind(), error.effect());
                assert_eq!((kind, effect), (ErrorKind::Denied, Effect::None));
                error.to_string()
            }
        };
        let is_named = text.to_lowercase().contains(&missing[1..]);
        assert!(is_named && !text.contains(SECRET), "{missing}: {text}");
    }
}

/// A client whose user has these rights and the keys of locks, and no more.
async fn least(server: &Server, space: &mut Space, rights: &str) -> RedisBackend {
    let () = space
        .run(&format!(
            "ACL SETUSER u reset on >{SECRET} ~lock:* {rights}"
        ))
        .await;
    let url = format!("redis://u:{SECRET}@127.0.0.1:{}", server.port);
    RedisBackend::connect(&url).await.unwrap()
}

/// With RESP3 the driver sends more when it connects.
#[tokio::test]
async fn the_documented_rights_are_enough_for_either_protocol() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let rights = common::documented_rights(&mut space.raw).await.join(" ");
    let () = space
        .run(&format!("ACL SETUSER u reset on >x ~lock:* {rights}"))
        .await;
    for protocol in ["resp2", "resp3"] {
        let address = format!("redis://u:x@127.0.0.1:{}", server.port);
        let url = format!("{address}?protocol={protocol}");
        let backend = RedisBackend::connect(&url).await.unwrap();
        let request = request(protocol);
        acquire(&backend, &request).await;
        let released = backend.release(&request.lease_id(), Duration::ZERO).await;
        assert_eq!(released.unwrap(), Release::Released);
    }
}

/// A denied command that was not to be sent would fill the log that tells of attacks.
#[tokio::test]
async fn the_documented_rights_leave_the_acl_log_empty() {
    let server = Server::start(&["--appendonly", "yes"]).await;
    let mut space = Space::at(&server.url()).await;
    let rights = common::documented_rights(&mut space.raw).await.join(" ");
    let backend = least(&server, &mut space, &rights).await;
    let () = space.run("ACL LOG RESET").await;
    assert_eq!(backend.check().await.unwrap(), Findings::default());
    let mut request = request("a");
    request.tick = Some(1);
    for _ in 0..2 {
        acquire(&backend, &request).await;
    }
    let lease = (request.lease_id(), common::LEASE * 2);
    assert!(backend.renew(&[lease]).await[0].is_ok());
    backend.inspect(&name("a")).await.unwrap();
    assert_eq!(backend.list().await.unwrap().len(), 1);
    let linger = Duration::from_secs(1);
    let released = backend.release(&request.lease_id(), linger).await;
    assert_eq!(released.unwrap(), Release::Released);
    backend.force_release(&name("a"), None).await.unwrap();
    let log: Vec<Value> = space.run("ACL LOG").await;
    // PING, by which a connection finds out whether somebody answers, is not among the rights that locks need.
    assert!(
        log.iter()
            .all(|entry| format!("{entry:?}").contains("ping")),
        "{log:?}"
    );
}

/// Locks in another database than the one that was asked for would exclude nobody.
#[tokio::test]
async fn a_database_that_may_not_be_selected_is_denied() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let () = space
        .run("ACL SETUSER u on >x ~* +@all -select -ping")
        .await;
    for query in ["", "?protocol=3"] {
        let address = format!("redis://u:x@127.0.0.1:{}", server.port);
        let error = refused(&format!("{address}/1{query}")).await;
        assert!(!error.is_retryable(), "{error}");
        RedisBackend::connect(&format!("{address}/0{query}"))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn keys_that_may_not_be_touched_are_denied() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let () = space.run("ACL SETUSER u on >x ~other:* +@all").await;
    let url = format!("redis://u:x@127.0.0.1:{}", server.port);
    let backend = RedisBackend::connect(&url).await.unwrap();
    assert_eq!(not_acquired(&backend).await.kind(), ErrorKind::Denied);
    let url = format!("{url}?lock_prefix=other:");
    acquire(&RedisBackend::connect(&url).await.unwrap(), &request("a")).await;
}
