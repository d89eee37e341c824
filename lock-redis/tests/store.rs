//! What is in Redis, and what is made of what others put there.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::time::Duration;

use common::{LEASE, Space, acquire, name, request};
use distlock_api::{
    AcquireRequest, Attempt, ErrorKind, Held, LockAdmin, LockBackend, LockState, Release, Renewal,
};

#[tokio::test]
async fn a_grant_is_a_value_with_an_end_and_a_counter() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let request = AcquireRequest::new(name("a{b}"), "höst/1", Duration::from_micros(59_999_001));
    let fence = acquire(&backend, &request).await;

    let value: String = space.run("GET KEY:a%7Bb%7D").await;
    let token = u128::from_be_bytes(*request.token.as_bytes());
    assert_eq!(value, format!("{token:032x}hhöst/1"));
    let left: u64 = space.run("PTTL KEY:a%7Bb%7D").await;
    assert!((50_000..=60_000).contains(&left), "{left}");
    let counter: u64 = space.run("GET KEY:a%7Bb%7D:f").await;
    assert_eq!(counter, fence.value());
    let keys: Vec<String> = space.run(&format!("KEYS {}*", space.prefix)).await;
    assert_eq!(keys.len(), 2, "{keys:?}");
}

#[tokio::test]
async fn a_released_lock_leaves_only_its_counter() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let request = request("a");
    acquire(&backend, &request).await;
    let released = backend.release(&request.lease_id(), Duration::ZERO).await;
    assert_eq!(released.unwrap(), Release::Released);
    let keys: Vec<String> = space.run(&format!("KEYS {}*", space.prefix)).await;
    assert_eq!(keys, [space.key("a") + ":f"]);
}

#[tokio::test]
async fn a_lock_rests_for_the_linger_and_no_longer() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let request = request("a");
    acquire(&backend, &request).await;
    let linger = Duration::from_secs(20);
    backend.release(&request.lease_id(), linger).await.unwrap();
    let left: u64 = space.run("PTTL KEY:a").await;
    assert!((10_000..=20_000).contains(&left), "{left}");

    let again = backend.release(&request.lease_id(), LEASE).await.unwrap();
    assert_eq!(again, Release::Released);
    let left: u64 = space.run("PTTL KEY:a").await;
    assert!(left <= 20_000, "the second release made it longer: {left}");
    let attempt = backend.try_acquire(&request).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(Held { resting: true, .. })));
}

#[tokio::test]
async fn the_counter_outlives_the_longest_lease() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let mut request = request("a");
    request.lease = distlock_api::options::MAX_LEASE;
    acquire(&backend, &request).await;
    let lock: u64 = space.run("PTTL KEY:a").await;
    let counter: u64 = space.run("PTTL KEY:a:f").await;
    assert!(counter > lock + 24 * 3_600_000, "{counter} {lock}");
}

#[tokio::test]
async fn a_renewal_keeps_the_counter_alive() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let request = request("a");
    acquire(&backend, &request).await;
    let () = space.run("PEXPIRE KEY:a:f 1000").await;
    let renewed = backend.renew(&[(request.lease_id(), LEASE)]).await;
    assert_eq!(*renewed[0].as_ref().unwrap(), Renewal::Renewed);
    let counter: u64 = space.run("PTTL KEY:a:f").await;
    assert!(counter > 24 * 3_600_000, "{counter}");
}

#[tokio::test]
async fn many_leases_are_renewed_at_once_each_with_its_own_answer() {
    let space = Space::new().await;
    let backend = space.client().await;
    let (first, second, third) = (request("1"), request("2"), request("3"));
    acquire(&backend, &first).await;
    acquire(&backend, &third).await;
    let mut stranger = request("3");
    stranger.owner = "stranger".to_owned();
    let leases = [first, second, stranger].map(|request| (request.lease_id(), LEASE));
    let renewed: Vec<_> = backend.renew(&leases).await;
    let renewed: Vec<_> = renewed.into_iter().map(Result::unwrap).collect();
    let to = |owner: Option<&str>| Renewal::Lost {
        to: owner.map(str::to_owned),
    };
    assert_eq!(renewed, [Renewal::Renewed, to(None), to(Some("tester/1"))]);
    assert!(backend.renew(&[]).await.is_empty());
}

#[tokio::test]
async fn ticks_are_told_apart_where_floating_point_numbers_are_not() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let big = (1 << 53) + 1;
    for (tick, granted) in [
        (-5, true),
        (-6, false),
        (big, true),
        (big, false),
        (big + 1, true),
    ] {
        let mut request = request("a");
        request.tick = Some(tick);
        let attempt = backend.try_acquire(&request).await.unwrap();
        assert_eq!(
            matches!(attempt, Attempt::Acquired { .. }),
            granted,
            "{tick}: {attempt:?}"
        );
        backend
            .release(&request.lease_id(), Duration::ZERO)
            .await
            .unwrap();
    }
    let left: u64 = space.run("PTTL KEY:a:t").await;
    assert!(left > 31 * 24 * 3_600_000, "{left}");
    let record = backend.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!(record.last_tick, Some(big + 1));
}

#[tokio::test]
async fn the_holder_asking_again_keeps_its_fence_and_its_end() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let mut request = request("a");
    request.tick = Some(7);
    let fence = acquire(&backend, &request).await;
    request.lease = LEASE / 2;
    assert_eq!(acquire(&backend, &request).await, fence);
    let left: u64 = space.run("PTTL KEY:a").await;
    assert!(left > 40_000, "{left}");
    request.lease = LEASE * 2;
    assert_eq!(acquire(&backend, &request).await, fence);
    let left: u64 = space.run("PTTL KEY:a").await;
    assert!(left > 100_000, "{left}");
}

#[tokio::test]
async fn a_plain_key_of_others_is_a_held_lock() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let () = space.run("SET KEY:a my-random-value NX PX 30000").await;
    let Attempt::Held(held) = backend.try_acquire(&request("a")).await.unwrap() else {
        panic!("not held");
    };
    assert_eq!((held.by, held.resting), (None, false));
    assert!(held.remaining.unwrap() <= Duration::from_secs(30));
    let () = space.run("PERSIST KEY:a").await;
    let attempt = backend.try_acquire(&request("a")).await.unwrap();
    assert_eq!(attempt, Attempt::Held(Held::default()));
    let record = backend.inspect(&name("a")).await.unwrap().unwrap();
    assert_eq!((record.state, record.lock_until), (LockState::Held, None));
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_never_held() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    let () = space.run("RPUSH KEY:a 1").await;
    let error = backend.try_acquire(&request("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains(&space.key("a")), "{error}");
    let error = backend.inspect(&name("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_counter_that_is_none_leaves_no_lock_behind() {
    let mut space = Space::new().await;
    let backend = space.client().await;
    for bad in ["SET KEY:a:f text", "LPUSH KEY:b:f 1"] {
        let () = space.run(bad).await;
    }
    for lock in ["a", "b"] {
        let error = backend.try_acquire(&request(lock)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        let left: bool = space.run(&format!("EXISTS KEY:{lock}")).await;
        assert!(!left, "{lock}");
    }
}
