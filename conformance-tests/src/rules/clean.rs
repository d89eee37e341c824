//! Nothing is left behind (I14).

use std::time::Duration;

use distlock_api::LockState;

use crate::context::Context;
use crate::failure::{Checked, ensure};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "L.1" nothing_left_held [Admin]
        "After locks were released, refused, renewed, lost and forced, none is held.";
    "L.2" one_record_per_name [Admin]
        "A hundred uses of one lock leave at most one record.";
}

async fn nothing_left_held(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let mut names = Vec::new();
    for turn in 0..20 {
        let mut grant = one.take(&cx.request(&cx.name()?, cx.lease(5000))).await?;
        names.push(grant.name().clone());
        two.refused(&grant.request.with_new_token(), &grant).await?;
        one.prolong(&mut grant, cx.lease(10_000)).await?;
        match turn % 2 {
            0 => one.free(&grant).await?,
            _ => drop(two.admin()?.force_release(grant.name(), None).await?),
        }
        one.renew(grant.lease(), cx.lease(60_000)).await?;
        one.release(&grant.lease(), Duration::ZERO).await?;
        one.release(&grant.request.with_new_token().lease_id(), cx.lease(60_000))
            .await?;
    }
    for record in two.admin()?.list().await? {
        let left = names.contains(&record.name) && record.state != LockState::Free;
        ensure!(!left, "nobody holds it any more: {record:?}");
    }
    Ok(())
}

async fn one_record_per_name(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx.request(&cx.name()?, cx.lease(5000));
    for _ in 0..100 {
        let grant = client.take(&request.with_new_token()).await?;
        client.free(&grant).await?;
    }
    let stem = request.name.as_str();
    let list = client.admin()?.list().await?;
    let records = list
        .iter()
        .filter(|record| record.name.as_str().contains(stem));
    let records = records.count();
    ensure!(records <= 1, "one lock left {records} records");
    Ok(())
}
