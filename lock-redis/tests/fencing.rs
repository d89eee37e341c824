//! Fencing tokens grow, whatever happens to what is stored.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::{Duration, SystemTime};

use common::{Server, Space, acquire, name, request};
use distlock_api::{FencingToken, LockAdmin, LockBackend, clock};
use distlock_redis::RedisBackend;

async fn grant_and_release(backend: &RedisBackend) -> FencingToken {
    let request = request("a");
    let fence = acquire(backend, &request).await;
    let released = backend.release(&request.lease_id(), Duration::ZERO).await;
    released.unwrap();
    fence
}

/// The clock of this machine, on which the server runs, too.
fn micros() -> u64 {
    let now = clock::wall().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_micros()).unwrap()
}

#[tokio::test]
async fn a_fence_is_the_servers_time_in_microseconds() {
    let space = Space::new().await;
    let backend = space.client().await;
    let before = micros();
    let fence = grant_and_release(&backend).await.value();
    let off_by = fence.abs_diff(before);
    assert!(off_by < 30_000_000, "{fence} at {before}");
}

#[tokio::test]
async fn fences_grow_from_grant_to_grant() {
    let space = Space::new().await;
    let backend = space.client().await;
    let mut last = FencingToken::new(0);
    for _ in 0..500 {
        let fence = grant_and_release(&backend).await;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
}

/// Many times in one millisecond, the unit of most of the server's times.
#[tokio::test]
async fn fences_grow_over_deleted_keys() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let mut last = FencingToken::new(0);
    for _ in 0..200 {
        let fence = acquire(&backend, &request("a")).await;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        let () = space.run("DEL KEY:a KEY:a:f KEY:a:t").await;
    }
}

/// A counter ahead of the clock, as after a step back of the clock, counts on by one.
#[tokio::test]
async fn a_counter_ahead_of_the_clock_counts_on_and_is_kept_until_the_clock_is_past_it() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let ten_days = 10 * 24 * 3_600 * 1_000_000;
    let ahead = micros() + ten_days;
    let () = space.run(&format!("SET KEY:a:f {ahead} PX 100000")).await;
    let mut request = request("a");
    request.lease = Duration::from_secs(2 * 3_600);
    assert_eq!(acquire(&backend, &request).await.value(), ahead + 1);
    let left: u64 = space.run("PTTL KEY:a:f").await;
    assert!(left * 1_000 > ten_days, "{left}");
    let record = backend.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!(record.locked_at, None);
}

#[tokio::test]
async fn a_counter_behind_the_clock_catches_up() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let () = space.run("SET KEY:a:f 41").await;
    let before = micros();
    let fence = grant_and_release(&backend).await.value();
    assert!(fence.abs_diff(before) < 30_000_000, "{fence} at {before}");
}

#[tokio::test]
async fn a_lost_counter_is_made_again_for_the_holder_who_asks() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let request = request("a");
    let first = acquire(&backend, &request).await;
    let () = space.run("DEL KEY:a:f").await;
    let again = acquire(&backend, &request).await;
    assert!(again > first, "{again} after {first}");
    let left: i64 = space.run("PTTL KEY:a:f").await;
    assert!(left > 24 * 3_600_000, "{left}");
}

/// The store forgets a lock that is held: two have it, and the fence tells who came later (E2).
#[tokio::test]
async fn fences_grow_over_a_flushed_server() {
    let server = Server::start(&[]).await;
    let mut space = Space::at(&server.url()).await;
    let backend = space.client().await;
    let first = acquire(&backend, &request("a")).await;
    let () = space.run("FLUSHALL").await;
    let second = acquire(&backend, &request("a")).await;
    assert!(second > first, "{second} after {first}");
}

/// As after a crash of a server without persistence (E6).
#[tokio::test]
async fn fences_grow_over_a_crash_of_the_server() {
    let mut server = Server::start(&[]).await;
    let backend = RedisBackend::connect(&server.url()).await.unwrap();
    let first = acquire(&backend, &request("a")).await;
    server.kill();
    server.start_again().await;
    let second = acquire(&backend, &request("a")).await;
    assert!(second > first, "{second} after {first}");
}
