//! Users, passwords and rights.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{SECRET, Server, Space, acquire, name, not_acquired, refused, request};
use distlock_api::{Effect, ErrorKind, LockAdmin, LockBackend, Release};
use distlock_redis::RedisBackend;

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

/// (U7)
#[tokio::test]
async fn a_missing_right_is_denied_and_named() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let all = [
        "evalsha",
        "eval",
        "set",
        "get",
        "del",
        "incr",
        "incrby",
        "pttl",
        "pexpire",
        "pexpireat",
        "time",
    ];
    for missing in all {
        let rights = all.iter().filter(|right| **right != missing);
        let rights: Vec<String> = rights.map(|right| format!("+{right}")).collect();
        let rights = rights.join(" ");
        let () = space
            .run(&format!("ACL SETUSER u reset on >{SECRET} ~* {rights}"))
            .await;
        let url = format!("redis://u:{SECRET}@127.0.0.1:{}", server.port);
        let backend = RedisBackend::connect(&url).await.unwrap();
        let error = not_acquired(&backend).await;
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Denied, Effect::None),
            "{error}"
        );
        let text = error.to_string().to_lowercase();
        assert!(
            text.contains(missing) && !text.contains(SECRET),
            "{missing}: {text}"
        );
    }
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let docs = include_str!("../src/lib.rs").replace("\n//!", "");
    let rights = docs
        .split("~lock:* ")
        .nth(1)
        .unwrap()
        .split('`')
        .next()
        .unwrap();
    let rights = match space
        .run::<String>("INFO server")
        .await
        .contains("redis_version:6")
    {
        true => rights.replace("+pexpiretime ", ""),
        false => rights.to_owned(),
    };
    let () = space
        .run(&format!("ACL SETUSER u reset on >x ~lock:* {rights} +scan"))
        .await;
    let backend = RedisBackend::connect(&format!("redis://u:x@127.0.0.1:{}", server.port))
        .await
        .unwrap();
    let mut request = request("a");
    request.tick = Some(1);
    acquire(&backend, &request).await;
    acquire(&backend, &request).await;
    backend
        .renew(&[(request.lease_id(), common::LEASE * 2)])
        .await
        .remove(0)
        .unwrap();
    assert_eq!(backend.list().await.unwrap().len(), 1);
    let linger = Duration::from_secs(1);
    assert_eq!(
        backend.release(&request.lease_id(), linger).await.unwrap(),
        Release::Released
    );
    backend.force_release(&name("a"), None).await.unwrap();
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
