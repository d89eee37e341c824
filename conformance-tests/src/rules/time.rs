//! Promise 2: leases count on the server's clock, and on no other.

use distlock_api::Held;
use distlock_api::clock::{self, Instant};

use crate::client::{Client, Grant};
use crate::context::Context;
use crate::failure::Checked;
use crate::process::Setting;
use crate::request::Like as _;
use crate::rule::rules;
use crate::rules::fence::ensure_grew;

rules! {
    "2.1" lease_is_as_long_as_asked []
        "A lock whose holder does nothing is free when its lease is over, and not before.";
    "2.2" time_left_is_told []
        "Who is refused is told how much of the lease is left.";
    "2.3" clock_an_hour_behind [Processes Faketime]
        "A process whose wall clock is an hour behind shares locks with others as any process does.";
    "2.4" clock_an_hour_ahead [Processes Faketime]
        "A process whose wall clock is an hour ahead shares locks with others as any process does.";
}

async fn lease_is_as_long_as_asked(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    for millis in [150, 600] {
        let request = cx.request(&cx.name()?, cx.lease(millis));
        let grant = one.take(&request).await?;
        let later = two.take_when_free(&request.with_new_token()).await?;
        grant.kept_others_out(&later, request.lease)?;
    }
    Ok(())
}

async fn time_left_is_told(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let request = cx.request(&cx.name()?, cx.lease(3000));
    let grant = one.take(&request).await?;
    time_left(&two, &grant).await?;
    clock::sleep(cx.lease(200)).await;
    time_left(&two, &grant).await?;
    one.free(&grant).await
}

async fn clock_an_hour_behind(cx: Context) -> Checked {
    clock_off(&cx, "-1h").await
}

async fn clock_an_hour_ahead(cx: Context) -> Checked {
    clock_off(&cx, "+1h").await
}

async fn clock_off(cx: &Context, offset: &str) -> Checked {
    let here = cx.client().await?;
    let setting = Setting {
        clock_offset: Some(offset),
        ..Setting::default()
    };
    let (there, _process) = cx.process(setting).await?;
    let name = cx.name()?;
    let mut last = None;
    for (holder, other) in [(&here, &there), (&there, &here)] {
        let request = cx.request(&name, cx.lease(1000));
        let grant = holder.take_when_free(&request).await?;
        ensure_grew(last, grant.fence)?;
        time_left(other, &grant).await?;
        let later = other.take_when_free(&request.with_new_token()).await?;
        grant.kept_others_out(&later, request.lease)?;
        ensure_grew(grant.fence, later.fence)?;
        last = later.fence;
        other.free(&later).await?;
    }
    Ok(())
}

/// Asks for a held lock, and checks what is said to be left of its lease.
async fn time_left(client: &Client, grant: &Grant) -> Checked {
    let asked = Instant::now();
    let Held { remaining, .. } = client
        .refused(&grant.request.with_new_token(), grant)
        .await?;
    grant.ensure_remaining(remaining, &asked)
}
