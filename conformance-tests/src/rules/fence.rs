//! Promise 6: fencing tokens strictly grow per name, in the order of grants, whatever became of the record.

use std::time::Duration;

use distlock_api::{FencingToken, LockName, clock};

use crate::client::Client;
use crate::context::{Context, PURGE_AGE};
use crate::failure::{Checked, Failure, ensure};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "6.1" grows_in_quick_cycles [Fencing]
        "In two hundred quick cycles of two clients every fencing token is greater than the one before.";
    "6.2" grows_over_expiry [Fencing]
        "The fencing token grows when a lease has run out.";
    "6.3" grows_over_force [Fencing Admin]
        "The fencing token grows after a forced release.";
    "6.4" grows_over_forgetting [Fencing Forget]
        "The fencing token grows after the store forgot all about the lock.";
    "6.5" grows_over_a_flush [Fencing Flush]
        "The fencing token grows after the store was emptied.";
    "6.6" grows_over_a_purge [Fencing Admin]
        "The fencing token grows after the record was purged.";
    "6.7" grows_over_a_second_grant [Fencing]
        "After a lock was granted twice to one token, the next fencing token is greater than both.";
    "6.8" fits_a_signed_number [Fencing]
        "Fencing tokens fit 63 bits, so that every database can store them.";
}

/// Fails unless the later fencing token is greater. Where there are none, there is nothing to compare.
pub(super) fn ensure_grew(before: Option<FencingToken>, after: Option<FencingToken>) -> Checked {
    ensure!(
        before.is_none() || after > before,
        "after the fencing token {before:?} came {after:?}"
    );
    Ok(())
}

/// Takes and frees the lock, and gives the fencing token, which there must be.
async fn cycle(cx: &Context, client: &Client, name: &LockName) -> Checked<FencingToken> {
    let grant = client.take(&cx.request(name, cx.lease(10_000))).await?;
    client.free(&grant).await?;
    let missing = || Failure::broken("a grant without a fencing token");
    grant.fence.ok_or_else(missing)
}

/// Fails unless the fencing token of the next cycle is greater.
async fn next_is_greater(
    cx: &Context,
    client: &Client,
    name: &LockName,
    last: FencingToken,
) -> Checked {
    let next = cycle(cx, client, name).await?;
    ensure_grew(Some(last), Some(next))
}

async fn grows_in_quick_cycles(cx: Context) -> Checked {
    let clients = cx.clients(2).await?;
    let name = cx.name()?;
    let mut last = None;
    for client in clients.iter().cycle().take(200) {
        let next = Some(cycle(&cx, client, &name).await?);
        ensure_grew(last, next)?;
        last = next;
    }
    Ok(())
}

async fn grows_over_expiry(cx: Context) -> Checked {
    let client = cx.client().await?;
    let name = cx.name()?;
    let mut last = cycle(&cx, &client, &name).await?;
    for _ in 0..3 {
        let grant = client.take(&cx.request(&name, cx.lease(30))).await?;
        ensure_grew(Some(last), grant.fence)?;
        grant.run_out().await;
        last = grant.fence.unwrap_or(last);
    }
    next_is_greater(&cx, &client, &name, last).await
}

async fn grows_over_force(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = client
        .take(&cx.request(&cx.name()?, cx.lease(60_000)))
        .await?;
    client.admin()?.force_release(grant.name(), None).await?;
    let next = client.take(&grant.request.with_new_token()).await?;
    client.free(&next).await?;
    ensure_grew(grant.fence, next.fence)
}

async fn grows_over_forgetting(cx: Context) -> Checked {
    let client = cx.client().await?;
    let name = cx.name()?;
    for _ in 0..3 {
        let last = cycle(&cx, &client, &name).await?;
        cx.forget(&name).await?;
        next_is_greater(&cx, &client, &name, last).await?;
    }
    Ok(())
}

async fn grows_over_a_flush(cx: Context) -> Checked {
    let clients = cx.disposable_clients(2).await?;
    let name = cx.name()?;
    let mut last = cycle(&cx, &clients[0], &name).await?;
    for client in &clients {
        cx.flush().await?;
        next_is_greater(&cx, client, &name, last).await?;
        last = cycle(&cx, client, &name).await?;
    }
    Ok(())
}

async fn grows_over_a_purge(cx: Context) -> Checked {
    let client = cx.client().await?;
    let name = cx.name()?;
    let last = cycle(&cx, &client, &name).await?;
    clock::sleep(PURGE_AGE + Duration::from_millis(100)).await;
    client.admin()?.purge(PURGE_AGE).await?;
    next_is_greater(&cx, &client, &name, last).await
}

async fn grows_over_a_second_grant(cx: Context) -> Checked {
    let client = cx.client().await?;
    let first = client
        .take(&cx.request(&cx.name()?, cx.lease(10_000)))
        .await?;
    let again = client.take(&first.request).await?;
    ensure!(
        again.fence >= first.fence,
        "{:?} after {:?}",
        again.fence,
        first.fence
    );
    client.free(&again).await?;
    let next = cycle(&cx, &client, first.name()).await?;
    ensure_grew(again.fence, Some(next))
}

async fn fits_a_signed_number(cx: Context) -> Checked {
    let client = cx.client().await?;
    let fence = cycle(&cx, &client, &cx.name()?).await?;
    ensure!(
        i64::try_from(fence.value()).is_ok(),
        "the fencing token {fence} does not fit 63 bits"
    );
    Ok(())
}
