//! Promise 5: only the current token releases and renews, renewal never revives and never shortens.

use std::time::{Duration, SystemTime};

use distlock_api::{LeaseId, LockRecord, Release, Renewal, Token, clock};

use crate::client::{Client, Grant};
use crate::context::Context;
use crate::failure::{Checked, Failure, ensure, ensure_while, must_be};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "5.1" release_by_another []
        "A release with another token changes nothing and says who holds the lock.";
    "5.2" renewal_by_another []
        "A renewal with another token changes nothing and says who holds the lock.";
    "5.3" record_unchanged [Admin]
        "A release and a renewal with another token leave the record as it was.";
    "5.4" renewal_extends []
        "A renewed lease lasts for the renewal's time, from the renewal on.";
    "5.5" renewal_never_shortens []
        "A renewal for less than what is left leaves the end of the lease where it was.";
    "5.6" renewal_after_the_end []
        "A lease that is over cannot be renewed, even if nobody took the lock.";
    "5.7" renewal_after_release []
        "A lease that was released cannot be renewed.";
    "5.8" renewal_after_takeover []
        "A lease that is over cannot be renewed while another holds the lock, who is not touched.";
    "5.9" renewal_after_forgetting [Forget]
        "A lease that the store forgot cannot be renewed, and the renewal creates nothing.";
    "5.10" release_twice []
        "A second release says that the lock is not held.";
    "5.11" release_after_the_end []
        "A release of a lease that is over says that the lock is not held (A3, U24).";
    "5.12" release_after_takeover []
        "A late release says who holds the lock now, and does not touch the new holder (A3, U2).";
    "5.13" unknown_lease []
        "A release and a renewal of a lock that nobody ever took create nothing.";
}

async fn release_by_another(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = one.take(&cx.request(&cx.name()?, cx.lease(600))).await?;
    for (client, linger) in [(&one, 0), (&two, 0), (&one, 60_000), (&two, 60_000)] {
        let release = client.release(&strange(&grant), cx.lease(linger)).await?;
        ensure_while!(
            grant,
            release == Release::NotHeld { by: grant.owner() },
            "a release by another than the holder answered {release:?}"
        );
    }
    untouched(&two, &grant).await
}

async fn renewal_by_another(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = one.take(&cx.request(&cx.name()?, cx.lease(600))).await?;
    for client in [&one, &two] {
        let renewal = client.renew(strange(&grant), cx.lease(60_000)).await?;
        ensure_while!(
            grant,
            renewal == Renewal::Lost { to: grant.owner() },
            "a renewal by another than the holder answered {renewal:?}"
        );
    }
    untouched(&two, &grant).await
}

async fn record_unchanged(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = client
        .take(&cx.request(&cx.name()?, cx.lease(3000)))
        .await?;
    let before = client.record(grant.name()).await?;
    clock::sleep(cx.lease(200)).await;
    client.release(&strange(&grant), Duration::ZERO).await?;
    client.renew(strange(&grant), cx.lease(60_000)).await?;
    // A store may work its instants out from two clocks, and be held up in between: not so every time.
    for _ in 0..5 {
        if alike(&before, &client.record(grant.name()).await?, cx.lease(100)) {
            return client.free(&grant).await;
        }
    }
    let after = client.record(grant.name()).await?;
    grant.ensure_running()?;
    Err(Failure::broken(format!(
        "another than the holder changed the record from {before:?} to {after:?}"
    )))
}

/// Whether two records say the same, save for what is left, and instants up to a jitter.
fn alike(one: &LockRecord, two: &LockRecord, jitter: Duration) -> bool {
    let near = |one: Option<SystemTime>, two: Option<SystemTime>| match (one, two) {
        (Some(one), Some(two)) => one < two + jitter && two < one + jitter,
        (one, two) => one == two,
    };
    let mut timeless = two.clone();
    timeless.remaining = one.remaining;
    (timeless.locked_at, timeless.lock_until) = (one.locked_at, one.lock_until);
    timeless == *one && near(one.locked_at, two.locked_at) && near(one.lock_until, two.lock_until)
}

async fn renewal_extends(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let mut grant = one.take(&cx.request(&cx.name()?, cx.lease(400))).await?;
    one.prolong(&mut grant, cx.lease(900)).await?;
    let later = two.take_when_free(&grant.request.with_new_token()).await?;
    grant.kept_others_out(&later, cx.lease(900))
}

async fn renewal_never_shortens(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let mut grant = one.take(&cx.request(&cx.name()?, cx.lease(700))).await?;
    one.prolong(&mut grant, cx.lease(20)).await?;
    untouched(&two, &grant).await
}

async fn renewal_after_the_end(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = over(&cx, &one).await?;
    lost_to(&one, &grant, None).await?;
    two.take(&grant.request.with_new_token()).await?;
    Ok(())
}

async fn renewal_after_release(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = one.take(&cx.request(&cx.name()?, cx.lease(5000))).await?;
    one.free(&grant).await?;
    lost_to(&one, &grant, None).await?;
    two.take(&grant.request.with_new_token()).await?;
    Ok(())
}

async fn renewal_after_takeover(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let old = over(&cx, &one).await?;
    let new = old
        .request
        .with_owner("the new holder")
        .with_lease(cx.lease(600));
    let new = two.take(&new).await?;
    let renewal = one.renew(old.lease(), cx.lease(60_000)).await?;
    ensure_while!(
        new,
        renewal == Renewal::Lost { to: new.owner() },
        "the renewal of a lease that went to {:?} answered {renewal:?}",
        new.request.owner
    );
    untouched(&one, &new).await
}

async fn renewal_after_forgetting(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let grant = one.take(&cx.request(&cx.name()?, cx.lease(5000))).await?;
    cx.forget(grant.name()).await?;
    lost_to(&one, &grant, None).await?;
    two.take(&grant.request.with_new_token()).await?;
    Ok(())
}

async fn release_twice(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = client
        .take(&cx.request(&cx.name()?, cx.lease(5000)))
        .await?;
    client.free(&grant).await?;
    not_held(&client, &grant).await?;
    client.take(&grant.request.with_new_token()).await?;
    Ok(())
}

async fn release_after_the_end(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = over(&cx, &client).await?;
    not_held(&client, &grant).await?;
    client.take(&grant.request.with_new_token()).await?;
    Ok(())
}

async fn release_after_takeover(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let old = over(&cx, &one).await?;
    let new = old
        .request
        .with_owner("the new holder")
        .with_lease(cx.lease(600));
    let new = two.take(&new).await?;
    let release = one.release(&old.lease(), Duration::ZERO).await?;
    ensure_while!(
        new,
        release == Release::NotHeld { by: new.owner() },
        "the release of a lease that went to {:?} answered {release:?}",
        new.request.owner
    );
    untouched(&one, &new).await
}

async fn unknown_lease(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx.request(&cx.name()?, cx.lease(5000));
    let renewal = client.renew(request.lease_id(), cx.lease(60_000)).await?;
    must_be!(renewal, Renewal::Lost { to: None } => (), "an unknown lease was renewed");
    let release = client
        .release(&request.lease_id(), cx.lease(60_000))
        .await?;
    must_be!(release, Release::NotHeld { by: None } => (), "an unknown lease was released");
    client.take(&request.with_new_token()).await?;
    Ok(())
}

/// A lease of the same lock under another token.
fn strange(grant: &Grant) -> LeaseId {
    LeaseId {
        name: grant.name().clone(),
        token: Token::random(),
    }
}

/// A lease that was granted and is over.
async fn over(cx: &Context, client: &Client) -> Checked<Grant> {
    let grant = client.take(&cx.request(&cx.name()?, cx.lease(50))).await?;
    grant.run_out().await;
    Ok(grant)
}

/// That the lock is held until the end of this grant, and free then.
async fn untouched(other: &Client, grant: &Grant) -> Checked {
    let later = other
        .take_when_free(&grant.request.with_new_token())
        .await?;
    grant.kept_others_out(&later, grant.request.lease)
}

async fn lost_to(client: &Client, grant: &Grant, to: Option<String>) -> Checked {
    let renewal = client
        .renew(grant.lease(), Duration::from_secs(600))
        .await?;
    ensure!(
        renewal == Renewal::Lost { to },
        "the renewal of a lease that is over answered {renewal:?}"
    );
    Ok(())
}

async fn not_held(client: &Client, grant: &Grant) -> Checked {
    let release = client.release(&grant.lease(), Duration::ZERO).await?;
    ensure!(
        release == Release::NotHeld { by: None },
        "the release of a lease that is over answered {release:?}"
    );
    Ok(())
}
