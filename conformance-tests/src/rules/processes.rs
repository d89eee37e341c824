//! Holders that are frozen or killed, each in a process of its own (promises 3 and 7, and what only the fence saves).

use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{Attempt, Fenced, FencingToken, LockName};

use crate::context::Context;
use crate::failure::{Checked, Failure, ensure, must_be};
use crate::process::{Remote, Setting};
use crate::rule::rules;

rules! {
    "P.1" frozen_holder_knows_at_once [Processes Fencing]
        "A holder that was frozen past its lease finds its lock invalid when it looks next, and the fence refuses it (C2).";
    "P.2" short_freeze_costs_no_lock [Processes]
        "A holder that is frozen for less than its lease still has its lock afterwards (C4).";
    "P.3" killed_watchdog [Processes]
        "A lock that was renewed far beyond its first lease is free one lease after its holder was killed (C1).";
}

async fn frozen_holder_knows_at_once(cx: Context) -> Checked {
    let resource = Fenced::new(0);
    let holder = cx.holder(Setting::default()).await?;
    let other = cx.client().await?;
    let name = cx.name()?;
    let stale = hold(&holder, &name, cx.lease(1000)).await?;
    let read = *enter(&resource, stale)?;
    holder.freeze()?;
    let request = cx.request(&name, cx.lease(30_000));
    let successor = other.take_when_free(&request).await;
    holder.thaw()?;
    let successor = successor?;
    let look = holder.look().await?;
    ensure!(
        look.remaining.is_zero() && look.lost.is_some(),
        "another holds the lock, and a holder that was frozen says {look:?}"
    );
    let fence = successor.fence.ok_or_else(|| no_fence(&name))?;
    *enter(&resource, fence)? += 1;
    // Half-way through its step, the holder that was frozen goes on to write what it had read, plus one.
    ensure!(
        resource.enter(stale).is_err(),
        "a write over that of the successor was let in: {}, again",
        read + 1
    );
    ensure!(resource.into_inner() == 1, "the successor's write is lost");
    other.free(&successor).await
}

async fn short_freeze_costs_no_lock(cx: Context) -> Checked {
    let holder = cx.holder(Setting::default()).await?;
    let beside = cx.client().await?;
    let (name, ttl) = (cx.name()?, cx.lease(3000));
    granted(holder.hold(&name, ttl).await?)?;
    for _ in 0..3 {
        let left = holder.look().await?.remaining;
        let since = Instant::now();
        holder.freeze()?;
        clock::sleep(ttl / 3).await;
        holder.thaw()?;
        let look = holder.look().await?;
        if look.lost.is_some() && since.elapsed() >= left {
            return Err(Failure::stalled("the freeze was longer than the lease"));
        }
        ensure!(look.lost.is_none(), "a short freeze, and {look:?}");
        let asked = cx.request(&name, cx.lease(1000));
        let answer = beside.attempt(&asked).await?;
        must_be!(answer, Attempt::Held(_) => (), "the holder lives, and another was told");
    }
    Ok(())
}

async fn killed_watchdog(cx: Context) -> Checked {
    let holder = cx.holder(Setting::default()).await?;
    let waiter = cx.client().await?;
    let (name, ttl) = (cx.name()?, cx.lease(1000));
    granted(holder.hold(&name, ttl).await?)?;
    clock::sleep(ttl * 5 / 2).await;
    let look = holder.look().await?;
    if look.lost.is_some() {
        return Err(Failure::stalled(format!("{look:?}")));
    }
    let killed = Instant::now();
    holder.kill().await?;
    let grant = waiter.take_when_free(&cx.request(&name, ttl)).await?;
    let waited = grant.answered.since(&killed);
    ensure!(
        waited < ttl + cx.patience,
        "the holder was killed, and its lock was free {waited:.1?} later"
    );
    Ok(())
}

async fn hold(holder: &Remote, name: &LockName, ttl: Duration) -> Checked<FencingToken> {
    let fence = granted(holder.hold(name, ttl).await?)?;
    fence.ok_or_else(|| no_fence(name))
}

fn granted(attempt: Attempt) -> Checked<Option<FencingToken>> {
    must_be!(attempt, Attempt::Acquired { fencing_token } => Ok(fencing_token), "a free lock was not granted")
}

fn enter(
    resource: &Fenced<u64>,
    fence: FencingToken,
) -> Checked<distlock_api::FencedGuard<'_, u64>> {
    let entered = resource.enter(fence);
    entered.map_err(|error| Failure::broken(error.to_string()))
}

fn no_fence(name: &LockName) -> Failure {
    Failure::broken(format!("{name} was granted without a fencing token"))
}
