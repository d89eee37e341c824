//! The same calls to this backend and to the memory backend, the reference, get the same answers.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::{Store, name, request};
use distlock_api::{
    AcquireRequest, Attempt, FencingToken, ForceRelease, Held, LeaseId, LockAdmin, LockBackend,
    MemoryBackend, Token,
};
use distlock_postgres::PostgresBackend;

/// Times are whole hours, and compared by the nearest hour: what passes meanwhile makes no difference.
const HOUR: Duration = Duration::from_secs(3600);

fn hours(duration: Duration) -> u64 {
    (duration + HOUR / 2).as_secs() / HOUR.as_secs()
}

/// A small generator, so that a failure can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn lease(dice: &mut Dice) -> LeaseId {
    let token = u8::try_from(dice.roll(3)).unwrap();
    LeaseId {
        name: name(["a", "b"][usize::try_from(dice.roll(2)).unwrap()]),
        token: Token::from_bytes([token; 16]),
    }
}

/// One random call; its answer as text, without what depends on the moment.
async fn step(backend: &dyn LockAdmin, dice: &mut Dice) -> String {
    let lease = lease(dice);
    let long = HOUR * u32::try_from(dice.roll(2)).unwrap();
    match dice.roll(8) {
        0..=2 => {
            let owner = format!("{:?}", lease.token);
            let mut request = AcquireRequest::new(
                lease.name,
                owner,
                HOUR * u32::try_from(1 + dice.roll(2)).unwrap(),
            );
            request.token = lease.token;
            request.tick = (dice.roll(2) == 0).then(|| i64::try_from(dice.roll(40)).unwrap() - 20);
            match backend.try_acquire(&request).await.unwrap() {
                Attempt::Acquired { fencing_token } => format!("{}", fencing_token.is_some()),
                Attempt::Held(held) => format!(
                    "{:?} {} {:?}",
                    held.by,
                    held.resting,
                    held.remaining.map(hours)
                ),
                done => format!("{done:?}"),
            }
        }
        3 | 4 => format!("{:?}", backend.release(&lease, long).await.unwrap()),
        5 | 6 => {
            let leases = [
                (lease.clone(), long),
                (self::lease(dice), long),
                (lease, HOUR * 3),
            ];
            format!("{:?}", backend.renew(&leases).await)
        }
        _ => match backend.force_release(&lease.name, None).await.unwrap() {
            ForceRelease::OtherFence { .. } => unreachable!("none was given"),
            other => format!("{other:?}"),
        },
    }
}

async fn records(backend: &dyn LockAdmin) -> String {
    let mut records = backend.list().await.unwrap();
    for record in &mut records {
        record.locked_at = None;
        record.lock_until = None;
        record.remaining = HOUR * u32::try_from(hours(record.remaining)).unwrap();
        record.fencing_token = None;
    }
    format!("{records:?}")
}

#[tokio::test]
async fn random_calls_get_the_answers_of_the_reference() {
    let store = Store::new("reference").await;
    compare(&store.backend()).await;
    store.close().await;
}

#[tokio::test]
async fn random_calls_get_them_through_a_pooler_too() {
    let store = Store::new("pooled").await;
    let backend = store.builder().for_options(common::pooler_options());
    compare(&backend.unwrap()).await;
    store.close().await;
}

async fn compare(postgres: &PostgresBackend) {
    let memory = MemoryBackend::new();
    let (mut one, mut other) = (Dice(7), Dice(7));
    for number in 0..2000 {
        let ours = step(postgres, &mut one).await;
        let theirs = step(&memory, &mut other).await;
        assert_eq!(ours, theirs, "step {number}");
        assert_eq!(
            records(postgres).await,
            records(&memory).await,
            "after step {number}"
        );
    }
}

#[tokio::test]
async fn a_token_whose_lease_is_over_is_never_granted_again() {
    let mut store = Store::new("over").await;
    let backend = store.backend();
    for how in ["released", "rested", "forced", "expired"] {
        let (request, _) = common::acquire(&backend, how).await;
        let end = "lock_until = clock_timestamp() WHERE name";
        match how {
            "released" => drop(backend.release(&request.lease_id(), Duration::ZERO).await),
            "rested" => drop(backend.release(&request.lease_id(), HOUR).await),
            "forced" => drop(backend.force_release(&request.name, None).await),
            _ => {}
        }
        if matches!(how, "rested" | "expired") {
            store.run(&format!("UPDATE {{}} SET {end} = '{how}'")).await;
        }
        let again = backend.try_acquire(&request).await.unwrap();
        assert_eq!(again, Attempt::Held(Held::default()), "{how}");
        let other = backend.try_acquire(&self::request(how)).await.unwrap();
        assert!(common::granted(&other).is_some(), "{how}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_fence_ahead_of_the_clock_grows_by_one() {
    let mut store = Store::new("ahead").await;
    let backend = store.backend();
    let (_, fence) = common::acquire(&backend, "job").await;
    store
        .run("UPDATE {} SET fence = fence + 3600000000, lock_until = clock_timestamp()")
        .await;
    let (_, next) = common::acquire(&backend, "job").await;
    assert_eq!(next, fence + 3_600_000_001);
    store.close().await;
}

#[tokio::test]
async fn a_forced_release_under_another_fence_changes_nothing() {
    let store = Store::new("fence").await;
    let backend = store.backend();
    let (_, fence) = common::acquire(&backend, "job").await;
    for other in [fence - 1, u64::MAX] {
        let answer = backend
            .force_release(&name("job"), Some(FencingToken::new(other)))
            .await;
        let current = Some(FencingToken::new(fence));
        assert_eq!(answer.unwrap(), ForceRelease::OtherFence { current });
    }
    let answer = backend
        .force_release(&name("job"), Some(FencingToken::new(fence)))
        .await;
    assert_eq!(
        answer.unwrap(),
        ForceRelease::Freed {
            was: "test".to_owned()
        }
    );
    store.close().await;
}

#[tokio::test]
async fn purge_keeps_what_is_held_recent_or_ahead_of_the_clock() {
    let mut store = Store::new("purge").await;
    let backend = store.backend();
    for lock in ["held", "recent", "old", "ahead"] {
        common::acquire(&backend, lock).await;
    }
    let past = "UPDATE {} SET lock_until = clock_timestamp() - interval";
    store
        .run(&format!("{past} '1 hour' WHERE name = 'recent'"))
        .await;
    store
        .run(&format!("{past} '3 hours' WHERE name IN ('old', 'ahead')"))
        .await;
    store
        .run("UPDATE {} SET fence = fence + 3600000000 WHERE name = 'ahead'")
        .await;
    assert_eq!(backend.purge(Duration::MAX).await.unwrap(), 0);
    assert_eq!(backend.purge(Duration::from_secs(7200)).await.unwrap(), 1);
    let left = backend.list().await.unwrap();
    let left: Vec<_> = left.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(left, ["ahead", "held", "recent"]);
    store.close().await;
}

#[tokio::test]
async fn purge_goes_on_until_nothing_is_left_to_delete() {
    // (U9)
    let mut store = Store::new("many").await;
    store
        .run(
            "INSERT INTO {} SELECT 'job-' || n, now() - interval '1 day', now(), 'test', 'x', n
             FROM generate_series(1, 20001) AS n",
        )
        .await;
    let purged = store.backend().purge(Duration::from_secs(3600)).await;
    assert_eq!(purged.unwrap(), 20_001);
    store.close().await;
}
