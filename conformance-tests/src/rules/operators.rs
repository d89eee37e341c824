//! The operators' tools that look: what they show is so, and looking changes nothing.

use std::time::Duration;

use distlock_api::LockState;
use distlock_api::clock::Instant;
use distlock_api::options::MAX_OWNER_BYTES;

use crate::client::{Client, Grant};
use crate::context::Context;
use crate::failure::{Checked, Failure, ensure, ensure_while};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "A.1" check_finds_no_fault [Admin]
        "The check of a store that is set up well finds no fault, and each warning says what and how to mend it.";
    "A.2" migrating_again [Admin]
        "Migrating a store that is in use changes nothing, by eight at once, too.";
    "A.3" nothing_known [Admin]
        "A lock that nobody ever took is unknown or free.";
    "A.4" held_is_shown [Admin]
        "The record of a held lock shows who has it, since and until when, and its fencing token.";
    "A.5" free_is_shown [Admin]
        "The record of a released lock, and of one whose lease is over, says that it is free.";
    "A.6" list_is_ordered [Admin]
        "The list has each lock once, ordered by the bytes of the name.";
    "A.7" owner_as_given [Admin]
        "The owner's text comes back as it was given.";
    "A.8" last_tick_is_shown [Admin Ticks]
        "The record shows the last tick granted.";
}

async fn check_finds_no_fault(cx: Context) -> Checked {
    let findings = cx.client().await?.admin()?.check().await?;
    for finding in &findings {
        let says = !finding.what.trim().is_empty() && !finding.fix.trim().is_empty();
        ensure!(says, "a finding without its fix: {finding:?}");
    }
    Ok(findings.usable()?)
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
    ensure_instants(&client, &grant, cx.lease(100)).await?;
    client.free(&grant).await
}

/// That the instants in the record of a lock are as far apart as its lease is long. A store may work them out from two
/// clocks, and be held up in between: not so every time.
async fn ensure_instants(client: &Client, grant: &Grant, jitter: Duration) -> Checked {
    let lease = grant.request.lease;
    let mut shown = None;
    for _ in 0..5 {
        let record = client.record(grant.name()).await?;
        shown = record.lock_until.zip(record.locked_at);
        let lasts = shown.and_then(|(until, at)| until.duration_since(at).ok());
        if lasts.is_some_and(|lasts| lasts.abs_diff(lease) <= jitter) {
            return Ok(());
        }
    }
    Err(Failure::broken(format!(
        "a lease of {lease:?} is shown to end and to begin at {shown:?}"
    )))
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
