//! The operators' tools: what they show is so, and what they do is no more than they say.

use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::options::MAX_OWNER_BYTES;
use distlock_api::{FencingToken, ForceRelease, LockState, Release, Renewal};

use crate::context::{Context, PURGE_AGE};
use crate::failure::{Checked, Failure, ensure, ensure_while, must_be};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "A.1" check_finds_nothing [Admin]
        "The check of a store that is set up well finds nothing.";
    "A.2" migrating_again [Admin]
        "Migrating a store that is in use changes nothing, by eight at once, too.";
    "A.3" nothing_known [Admin]
        "A lock that nobody ever took is unknown or free.";
    "A.4" held_is_shown [Admin]
        "The record of a held lock shows who has it, since and until when, and its fencing token (U29).";
    "A.5" free_is_shown [Admin]
        "The record of a released lock, and of one whose lease is over, says that it is free.";
    "A.6" list_is_ordered [Admin]
        "The list has each lock once, ordered by the bytes of the name.";
    "A.7" force [Admin]
        "A forced release frees the lock, and the old holder is told at its next call.";
    "A.8" force_with_a_fence [Admin Fencing]
        "A forced release for a fencing token frees no other grant.";
    "A.9" force_of_a_free_lock [Admin]
        "A forced release of a lock that nobody has says so.";
    "A.10" purge_keeps [Admin Records]
        "A purge keeps locks that are held, resting, or free for a short time only.";
    "A.11" purge_deletes [Admin Records]
        "A purge deletes locks that have been free for long enough, and says how many.";
    "A.12" owner_as_given [Admin]
        "The owner's text comes back as it was given.";
    "A.13" last_tick_is_shown [Admin Ticks]
        "The record shows the last tick granted.";
}

async fn check_finds_nothing(cx: Context) -> Checked {
    Ok(cx.client().await?.admin()?.check().await?)
}

async fn migrating_again(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = client
        .take(&cx.request(&cx.name()?, cx.lease(10_000)))
        .await?;
    let mut tasks = tokio::task::JoinSet::new();
    for migrator in cx.clients(8).await? {
        tasks.spawn(async move { Checked::Ok(migrator.admin()?.migrate().await?) });
    }
    while let Some(migrated) = tasks.join_next().await {
        migrated??;
    }
    client
        .refused(&grant.request.with_new_token(), &grant)
        .await?;
    client.free(&grant).await
}

async fn nothing_known(cx: Context) -> Checked {
    let state = cx.client().await?.state(&cx.name()?).await?;
    ensure!(
        state == LockState::Free,
        "a lock that nobody ever took is {state}"
    );
    Ok(())
}

async fn held_is_shown(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx
        .request(&cx.name()?, cx.lease(3000))
        .with_owner("host/17");
    let grant = client.take(&request).await?;
    let asked = Instant::now();
    let record = client.record(grant.name()).await?;
    ensure_while!(
        grant,
        record.state == LockState::Held,
        "a held lock is shown as {record:?}"
    );
    grant.ensure_remaining(Some(record.remaining), &asked)?;
    ensure!(
        record.owner.as_deref() == Some("host/17") && record.fencing_token == grant.fence,
        "held by \"host/17\" with the fencing token {:?}, and shown as {record:?}",
        grant.fence
    );
    let lasts = record.lock_until.zip(record.locked_at);
    let lasts = lasts.and_then(|(until, at)| until.duration_since(at).ok());
    let unit = client.capabilities().granularity;
    ensure!(
        lasts.is_some_and(|lasts| lasts.abs_diff(request.lease) <= unit * 2),
        "the lease is {:?}, and shown as {lasts:?}",
        request.lease
    );
    client.free(&grant).await
}

async fn free_is_shown(cx: Context) -> Checked {
    let client = cx.client().await?;
    let released = client
        .take(&cx.request(&cx.name()?, cx.lease(5000)))
        .await?;
    client.free(&released).await?;
    let expired = client.take(&cx.request(&cx.name()?, cx.lease(50))).await?;
    expired.run_out().await;
    for grant in [released, expired] {
        if let Some(record) = client.admin()?.inspect(grant.name()).await? {
            ensure!(
                record.state == LockState::Free && record.remaining.is_zero(),
                "a free lock is shown as {record:?}"
            );
        }
    }
    Ok(())
}

async fn list_is_ordered(cx: Context) -> Checked {
    let client = cx.client().await?;
    let stem = cx.name()?;
    let mut grants = Vec::new();
    for ending in ["b", "a", "B", "ä", "-", "_", "10", "9"] {
        let name = distlock_api::LockName::new(format!("{stem}{ending}"))?;
        grants.push(client.take(&cx.request(&name, cx.lease(10_000))).await?);
    }
    let names: Vec<_> = client.admin()?.list().await?;
    let names: Vec<_> = names.into_iter().map(|record| record.name).collect();
    let disorder = names.windows(2).find(|pair| pair[0] >= pair[1]);
    ensure!(
        disorder.is_none(),
        "not in order, or twice in the list: {disorder:?}"
    );
    for grant in grants {
        let listed = names.contains(grant.name());
        ensure_while!(
            grant,
            listed,
            "{:?} is held and not in the list",
            grant.name()
        );
        client.free(&grant).await?;
    }
    Ok(())
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
    if !kept && free_since.elapsed() >= PURGE_AGE {
        return Err(Failure::Stalled);
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
        // Another rule's purge may have come in between, but not every time.
        return Err(Failure::Stalled);
    }
    Ok(())
}

async fn owner_as_given(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let longest = "ö".repeat(MAX_OWNER_BYTES / 2);
    for owner in [
        "'",
        "\"\\",
        "a b  c",
        "{}:%s$1?*",
        "Ä😀 i\u{307}",
        " x ",
        "null",
        "0",
        &longest,
    ] {
        let request = cx.request(&cx.name()?, cx.lease(3000)).with_owner(owner);
        let grant = one.take(&request).await?;
        let held = two.refused(&request.with_new_token(), &grant).await?;
        let record = two.record(grant.name()).await?;
        let (told, shown) = (held.by, record.owner);
        ensure_while!(
            grant,
            told.as_deref() == Some(owner) && shown.as_deref() == Some(owner),
            "held by {owner:?}, told to be held by {told:?}, and shown as held by {shown:?}"
        );
        one.free(&grant).await?;
    }
    Ok(())
}

async fn last_tick_is_shown(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx.request(&cx.name()?, cx.lease(3000));
    let grant = client.take(&request.with_tick(-7)).await?;
    let shown = client.record(grant.name()).await?.last_tick;
    ensure_while!(
        grant,
        shown == Some(-7),
        "granted for tick -7, and shown with {shown:?}"
    );
    client.free(&grant).await
}
