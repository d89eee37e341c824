//! Durations: those out of range are refused before anything is sent, those in range are kept to the unit.

use std::time::Duration;

use distlock_api::clock::Instant;
use distlock_api::options::{MAX_LEASE, MIN_LEASE};
use distlock_api::{ErrorKind, Scope};

use crate::context::Context;
use crate::failure::{Checked, ensure, must_be};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "D.1" out_of_range []
        "Durations out of range are typed errors, and no lock is touched (A6, A10).";
    "D.2" shortest_lease []
        "The shortest lease is granted, and over after its time.";
    "D.3" longest_lease []
        "The longest lease is granted, and shown in full.";
    "D.4" odd_lease []
        "A lease that is no multiple of the store's unit is never shorter than asked.";
}

async fn out_of_range(cx: Context) -> Checked {
    let client = cx.client().await?;
    let name = cx.name()?;
    let lock = client.locks().lock(&name)?;
    let second = Duration::from_secs(1);
    let mut bad = vec![
        lock.clone().at_most_for(second).at_least_for(second * 2),
        lock.clone()
            .at_most_for(second)
            .at_least_for(Duration::ZERO),
        lock.clone()
            .at_most_for(second)
            .at_least_for(Duration::from_nanos(1)),
    ];
    for at_most in [
        Duration::ZERO,
        Duration::from_nanos(1),
        MIN_LEASE - Duration::from_nanos(1),
        MAX_LEASE + Duration::from_nanos(1),
        Duration::from_millis(i64::MAX as u64),
        Duration::MAX,
    ] {
        bad.push(lock.clone().at_most_for(at_most));
    }
    if client.capabilities().scope != Scope::Process {
        bad.push(lock);
    }
    for lock in bad {
        let error = must_be!(lock.try_acquire().await, Err(error) => error, "{lock:?}");
        ensure!(
            error.kind() == ErrorKind::InvalidOption,
            "{lock:?}: {error}"
        );
    }
    client.take(&cx.request(&name, cx.lease(1000))).await?;
    Ok(())
}

async fn shortest_lease(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = one.take(&cx.request(&cx.name()?, MIN_LEASE)).await?;
    let later = two.take_when_free(&grant.request.with_new_token()).await?;
    grant.kept_others_out(&later, MIN_LEASE)
}

async fn longest_lease(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = one.take(&cx.request(&cx.name()?, MAX_LEASE)).await?;
    let asked = Instant::now();
    let held = two.refused(&grant.request.with_new_token(), &grant).await?;
    one.free(&grant).await?;
    grant.ensure_remaining(held.remaining, &asked)
}

async fn odd_lease(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    for nanos in [33_333_333, 100_999_999, 250_000_001] {
        let lease = Duration::from_nanos(nanos) * cx.stretch;
        let grant = one.take(&cx.request(&cx.name()?, lease)).await?;
        let later = two.take_when_free(&grant.request.with_new_token()).await?;
        grant.kept_others_out(&later, lease)?;
    }
    Ok(())
}
