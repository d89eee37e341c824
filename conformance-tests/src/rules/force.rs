//! The operators' tools that act: a forced release and a purge do what they say, and no more.

use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{FencingToken, ForceRelease, LockState, Release, Renewal};

use crate::context::{Context, PURGE_AGE, ensure_young};
use crate::failure::{Checked, Failure, ensure, ensure_while, must_be};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "A.9" force [Admin]
        "A forced release frees the lock, and the old holder is told at its next call.";
    "A.10" force_with_a_fence [Admin Fencing]
        "A forced release for a fencing token frees no other grant.";
    "A.11" force_of_a_free_lock [Admin]
        "A forced release of a lock that nobody has says so.";
    "A.12" purge_keeps [Admin Records]
        "A purge keeps locks that are held, resting, or free for a short time only.";
    "A.13" purge_deletes [Admin Records]
        "A purge deletes locks that have been free for long enough, and says how many.";
}

async fn force(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let old = one.take(&cx.request(&cx.name()?, cx.lease(60_000))).await?;
    let freed = two.admin()?.force_release(old.name(), None).await?;
    let was = old.request.owner.clone();
    ensure_while!(
        old,
        freed == ForceRelease::Freed { was },
        "a held lock was freed: {freed:?}"
    );
    let new = old
        .request
        .with_owner("the new holder")
        .with_lease(cx.lease(600));
    let new = two.take(&new).await?;
    let renewal = one.renew(old.lease(), cx.lease(60_000)).await?;
    must_be!(renewal, Renewal::Lost { .. } => (), "a lease that was ended by force was renewed");
    let release = one.release(&old.lease(), Duration::ZERO).await?;
    must_be!(release, Release::NotHeld { .. } => (), "a lease that was ended by force");
    let later = one.take_when_free(&old.request.with_new_token()).await?;
    new.kept_others_out(&later, new.request.lease)
}

async fn force_with_a_fence(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = one.take(&cx.request(&cx.name()?, cx.lease(3000))).await?;
    let current = grant
        .fence
        .ok_or_else(|| Failure::broken("no fencing token"))?;
    for other in [current.value() - 1, current.value() + 1] {
        let other = Some(FencingToken::new(other));
        let answer = two.admin()?.force_release(grant.name(), other).await?;
        let expected = ForceRelease::OtherFence {
            current: Some(current),
        };
        ensure_while!(
            grant,
            answer == expected,
            "the fencing token is {current}, and a forced release for {other:?} answered {answer:?}"
        );
    }
    two.refused(&grant.request.with_new_token(), &grant).await?;
    let answer = two
        .admin()?
        .force_release(grant.name(), Some(current))
        .await?;
    ensure_while!(
        grant,
        matches!(answer, ForceRelease::Freed { .. }),
        "a forced release for the right fencing token answered {answer:?}"
    );
    two.take(&grant.request.with_new_token()).await?;
    Ok(())
}

async fn force_of_a_free_lock(cx: Context) -> Checked {
    let client = cx.client().await?;
    let name = cx.name()?;
    let unknown = client.admin()?.force_release(&name, None).await?;
    must_be!(unknown, ForceRelease::NotHeld => (), "a lock that nobody ever took");
    let grant = client.take(&cx.request(&name, cx.lease(5000))).await?;
    client.free(&grant).await?;
    let free = client.admin()?.force_release(&name, None).await?;
    must_be!(free, ForceRelease::NotHeld => (), "a free lock");
    Ok(())
}

async fn purge_keeps(cx: Context) -> Checked {
    let client = cx.client().await?;
    let held = client
        .take(&cx.request(&cx.name()?, cx.lease(20_000)))
        .await?;
    let rest = client
        .take(&cx.request(&cx.name()?, cx.lease(20_000)))
        .await?;
    let rest = client.rest(&rest, cx.lease(20_000)).await?;
    clock::sleep(PURGE_AGE + Duration::from_millis(100)).await;
    let young = client
        .take(&cx.request(&cx.name()?, cx.lease(5000)))
        .await?;
    let free_since = Instant::now();
    client.free(&young).await?;
    client.admin()?.purge(PURGE_AGE).await?;
    let kept = client.admin()?.inspect(young.name()).await?.is_some();
    if !kept {
        ensure_young(&free_since)?;
    }
    ensure!(kept, "a lock that has just become free was purged");
    for (grant, state) in [(&held, LockState::Held), (&rest, LockState::Resting)] {
        let now = client.state(grant.name()).await?;
        ensure_while!(grant, now == state, "a {state} lock is {now} after a purge");
    }
    client.admin()?.force_release(rest.name(), None).await?;
    client.free(&held).await
}

async fn purge_deletes(cx: Context) -> Checked {
    let client = cx.client().await?;
    let released = client
        .take(&cx.request(&cx.name()?, cx.lease(5000)))
        .await?;
    client.free(&released).await?;
    let expired = client.take(&cx.request(&cx.name()?, cx.lease(20))).await?;
    expired.run_out().await;
    clock::sleep(PURGE_AGE + Duration::from_millis(100)).await;
    let known = client.admin()?.list().await?;
    let count = client.admin()?.purge(PURGE_AGE).await?;
    for grant in [&released, &expired] {
        let record = client.admin()?.inspect(grant.name()).await?;
        ensure!(
            record.is_none(),
            "a lock that was free for long is still known: {record:?}"
        );
    }
    let deleted = [&released, &expired].map(|grant| known.iter().any(|r| r.name == *grant.name()));
    if deleted == [true, true] && count < 2 {
        return Err(Failure::stalled(format!(
            "two locks were purged and {count} counted; another rule's purge may have come in between"
        )));
    }
    Ok(())
}
