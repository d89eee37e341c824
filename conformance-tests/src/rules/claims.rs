//! What a backend claims of itself is so. The claims that have rules of their own: the scope in 1.6, 2.3, 2.4 and 3.1,
//! the unit in every rule that measures a lease, the length of names in N.2 and N.3.

use std::time::Duration;

use distlock_api::clock::Instant;
use distlock_api::{ErrorKind, LockName};

use crate::context::{Context, ensure_young};
use crate::failure::{Checked, Failure, ensure};
use crate::rule::rules;

rules! {
    "C.1" constant_and_sane []
        "The claims are the same on every client, before and after use, and within their ranges.";
    "C.2" fencing []
        "Grants carry fencing tokens if the backend says so, and only then.";
    "C.3" ticks []
        "Ticks are taken if the backend says so, and refused as unsupported if not.";
    "C.4" records_stay [Admin Records]
        "The record of a free lock stays, with who had it last and its fencing token.";
}

async fn constant_and_sane(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let before = one.capabilities();
    let grant = one.take(&cx.request(&cx.name()?, cx.lease(5000))).await?;
    one.free(&grant).await?;
    for now in [one.capabilities(), two.capabilities()] {
        ensure!(now == before, "the claims were {before:?}, and are {now:?}");
    }
    ensure!(
        !before.backend.is_empty()
            && (1..=LockName::MAX_BYTES).contains(&before.max_name_bytes)
            && before.granularity <= Duration::from_secs(1)
            && !before.operation_limit.is_zero(),
        "out of range: {before:?}"
    );
    Ok(())
}

async fn fencing(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = client
        .take(&cx.request(&cx.name()?, cx.lease(5000)))
        .await?;
    client.free(&grant).await?;
    let claimed = client.capabilities().fencing;
    ensure!(
        grant.fence.is_some() == claimed,
        "fencing is claimed: {claimed}, and a grant came with {:?}",
        grant.fence
    );
    Ok(())
}

async fn ticks(cx: Context) -> Checked {
    let client = cx.client().await?;
    let lock = client.locks().lock(cx.name()?)?;
    let lock = lock.at_most_for(cx.lease(5000)).tick(1);
    let claimed = client.capabilities().ticks;
    match lock.try_acquire().await {
        Ok(_) if claimed => Ok(()),
        Err(error) if !claimed && error.kind() == ErrorKind::Unsupported => Ok(()),
        other => Err(Failure::broken(format!(
            "ticks are claimed: {claimed}, and {other:?}"
        ))),
    }
}

async fn records_stay(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = client
        .take(&cx.request(&cx.name()?, cx.lease(5000)))
        .await?;
    let free_since = Instant::now();
    client.free(&grant).await?;
    let record = client.admin()?.inspect(grant.name()).await?;
    let right = record.as_ref().is_some_and(|record| {
        record.owner.as_ref() == Some(&grant.request.owner) && record.fencing_token == grant.fence
    });
    if !right {
        ensure_young(&free_since)?;
    }
    ensure!(
        right,
        "records are said to stay, and of a released lock is left {record:?}"
    );
    Ok(())
}
