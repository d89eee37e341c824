//! Writes to Redis that refuse holders whose lock has been granted to somebody else since.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::sync::LazyLock;

use common::{Server, Space, acquire, request};
use distlock_api::{FencingToken, LockAdmin, StaleToken};
use distlock_redis::FencedScript;
use distlock_redis::redis::{FromRedisValue, RedisResult};

static SET: LazyLock<FencedScript> = LazyLock::new(FencedScript::set);

const fn token(value: u64) -> FencingToken {
    FencingToken::new(value)
}

impl Space {
    /// Sets the key of `item` for the holder of a token.
    async fn set(&mut self, token: FencingToken, value: &str) -> Result<(), StaleToken> {
        let call = SET
            .call(self.key("item") + ":f", token)
            .key(self.key("item"));
        call.arg(value).run(&mut self.raw).await.unwrap()
    }

    async fn item(&mut self) -> Option<String> {
        self.run("GET KEY:item").await
    }

    /// What a body returns to the holder of token 1.
    async fn body<T: FromRedisValue>(&mut self, body: &str) -> RedisResult<T> {
        let script = FencedScript::new(body);
        let call = script.call(self.key("body") + ":f", token(1));
        let call = call.key("{x}1").key("{x}2").arg("a").arg("b");
        call.run(&mut self.raw).await.map(Result::unwrap)
    }
}

#[tokio::test]
async fn a_stale_token_changes_nothing_and_the_same_one_may_come_again() {
    let mut space = Space::new().await;
    for (fence, value) in [(7, "one"), (7, "two"), (9, "three")] {
        space.set(token(fence), value).await.unwrap();
        assert_eq!(space.item().await.as_deref(), Some(value));
    }
    let stale = space.set(token(8), "late").await.unwrap_err();
    assert_eq!((stale.token, stale.seen), (token(8), token(9)));
    assert_eq!(space.item().await.as_deref(), Some("three"));
    space.set(token(9), "four").await.unwrap();
}

/// A number of Lua is exact to 2^53, and "10" is less than "9" as text.
#[tokio::test]
async fn tokens_are_compared_exactly_whatever_their_size() {
    let mut space = Space::new().await;
    let big = 1 << 53;
    let tokens = [
        0,
        1,
        9,
        10,
        99,
        100,
        big,
        big + 1,
        big + 2,
        i64::MAX as u64,
        u64::MAX,
    ];
    space.set(token(0), "none").await.unwrap();
    for pair in tokens.windows(2) {
        space.set(token(pair[1]), "new").await.unwrap();
        let stale = space.set(token(pair[0]), "late").await.unwrap_err();
        assert_eq!(
            (stale.token.value(), stale.seen.value()),
            (pair[0], pair[1])
        );
        assert_eq!(space.item().await.as_deref(), Some("new"));
    }
}

/// Where the fence ends, a stale holder comes in.
#[tokio::test]
async fn a_fence_has_no_end() {
    let mut space = Space::new().await;
    space.set(token(7), "x").await.unwrap();
    assert_eq!(space.run::<i64>("PTTL KEY:item:f").await, -1);
}

/// A frozen holder's write arrives when another has the lock (C3).
#[tokio::test]
async fn the_write_of_a_holder_who_lost_the_lock_is_refused() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let (frozen, next) = (request("of-item"), request("of-item"));
    let old = acquire(&backend, &frozen).await;
    backend.force_release(&frozen.name, None).await.unwrap();
    let new = acquire(&backend, &next).await;
    space.set(new, "new").await.unwrap();
    let stale = space.set(old, "old").await.unwrap_err();
    assert_eq!((stale.token, stale.seen), (old, new));
    assert_eq!(space.item().await.as_deref(), Some("new"));
}

#[tokio::test]
async fn of_many_writers_at_once_the_one_with_the_greatest_token_is_last() {
    let mut space = Space::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for i in 0..50 {
        // Each connection once, and the tokens in no order.
        let fence = i * 7 % 50 + 1;
        let call = SET.call(space.key("item") + ":f", token(fence));
        let call = call.key(space.key("item")).arg(fence);
        let url = space.url.clone();
        writers.spawn(async move {
            let mut raw = common::connection(&url).await;
            call.run::<()>(&mut raw).await.unwrap().is_ok()
        });
    }
    let admitted = writers.join_all().await;
    assert!(admitted.contains(&true));
    assert_eq!(space.item().await.as_deref(), Some("50"));
}

#[tokio::test]
async fn a_body_sees_its_own_keys_and_arguments() {
    let mut space = Space::new().await;
    let own = "return { #KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], ARGV[2] } -- to the end";
    let own: (u8, String, String, u8, String, String) = space.body(own).await.unwrap();
    let text = |text: &str| text.to_owned();
    assert_eq!(
        own,
        (2, text("{x}1"), text("{x}2"), 2, text("a"), text("b"))
    );
}

#[tokio::test]
async fn the_value_of_a_body_comes_back_in_either_protocol() {
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?protocol={protocol}", common::given_url());
        let mut space = Space::at(&url).await;
        for (body, value) in [
            ("", None),
            ("return nil", None),
            ("return false", None),
            ("return 7, 8", Some("7")),
            ("return redis.status_reply('DONE')", Some("DONE")),
            ("return ARGV[1]", Some("a")),
        ] {
            let found: Option<String> = space.body(body).await.unwrap();
            assert_eq!(found.as_deref(), value, "{body} {protocol}");
        }
        let list: (u8, (u8, String)) = space.body("return { 1, { 2, 'x' } }").await.unwrap();
        assert_eq!(list, (1, (2, "x".to_owned())));
    }
}

#[tokio::test]
async fn an_error_of_the_body_is_told_and_its_token_is_remembered() {
    let mut space = Space::new().await;
    for body in [
        "return redis.error_reply('MINE went wrong')",
        "error('MINE went wrong')",
        "return redis.call('INCRBY', KEYS[1], 'MINE went wrong')",
    ] {
        let error = space.body::<()>(body).await.unwrap_err();
        let is_told = error.to_string().contains("MINE") || error.to_string().contains("integer");
        assert!(is_told, "{error}");
    }
    assert_eq!(space.run::<u64>("GET KEY:body:f").await, 1);
}

#[tokio::test]
async fn what_is_no_fence_is_an_error_and_lets_nobody_in() {
    let mut space = Space::new().await;
    for bad in [
        "SET KEY:item:f x",
        "SET KEY:item:f 07",
        "SET KEY:item:f -1",
        "SET KEY:item:f 1.5",
        "SET KEY:item:f 18446744073709551616",
        "SET KEY:item:f 99999999999999999999999",
    ] {
        let () = space.run(bad).await;
        let call = SET.call(space.key("item") + ":f", token(u64::MAX));
        let call = call.key(space.key("item")).arg("x");
        let error = call.run::<()>(&mut space.raw).await.unwrap_err();
        assert!(
            error.to_string().contains("holds no fencing token"),
            "{error}"
        );
    }
    let () = space.run("DEL KEY:item:f").await;
    let () = space.run("LPUSH KEY:item:f 1").await;
    let call = SET
        .call(space.key("item") + ":f", token(1))
        .key(space.key("item"));
    let error = call.arg("x").run::<()>(&mut space.raw).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    assert_eq!(space.item().await, None);
}

/// (E1), with no right but those that are documented.
#[tokio::test]
async fn a_server_that_forgot_the_script_is_sent_it_again() {
    let server = Server::start(&[]).await;
    let mut admin = Space::at(&server.url()).await;
    let () = admin
        .run("ACL SETUSER u on >x ~* +evalsha +eval +get +set")
        .await;
    let url = format!("redis://u:x@127.0.0.1:{}", server.port);
    let mut space = Space::at(&url).await;
    for fence in [1, 2, 3] {
        let () = admin.run("SCRIPT FLUSH").await;
        space.set(token(fence), "x").await.unwrap();
    }
    let () = admin.run("CONFIG RESETSTAT").await;
    space.set(token(3), "x").await.unwrap();
    let stats: String = admin.run("INFO commandstats").await;
    assert!(stats.contains("cmdstat_evalsha:calls=1,"), "{stats}");
    assert!(!stats.contains("cmdstat_eval:"), "{stats}");
}

#[tokio::test]
async fn in_a_cluster_the_fence_shares_the_hash_tag() {
    let server = Server::start(&["--cluster-enabled", "yes"]).await;
    let mut space = Space::at(&server.url()).await;
    common::give_all_slots(&mut space).await;
    for (fence, key, allowed) in [
        ("{stock:42}:fence", "{stock:42}", true),
        ("fence", "stock", false),
    ] {
        let call = SET.call(fence, token(1)).key(key).arg("x");
        let answer = call.run::<()>(&mut space.raw).await;
        assert_eq!(answer.is_ok(), allowed, "{answer:?}");
    }
}
