//! Promise 5 for many leases at once: each has its own time, and its own answer.

use distlock_api::clock::Instant;
use distlock_api::{Renewal, Result};
use std::time::Duration;

use crate::client::{Client, Grant};
use crate::context::Context;
use crate::failure::{Checked, ensure};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "5.14" no_renewals []
        "A call with no leases to renew gives no answers.";
    "5.15" hundred_renewals []
        "A hundred leases are renewed in one call, each for its own time.";
    "5.16" answers_in_order []
        "Of a hundred leases, some of them lost, each gets its own answer in its own place.";
}

async fn no_renewals(cx: Context) -> Checked {
    let answers = cx.client().await?.backend.renew(&[]).await;
    ensure!(
        answers.is_empty(),
        "nothing was asked, and the answer is {answers:?}"
    );
    Ok(())
}

async fn hundred_renewals(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let mut grants = hundred(&cx, &one).await?;
    let ttl = |index: usize| cx.lease(30_000 + 500 * index as u64);
    let asked = Instant::now();
    let answers = renew_all(&one, &grants, ttl).await;
    let answered = Instant::now();
    for (index, answer) in answers.into_iter().enumerate() {
        grants[index].ensure_running()?;
        let answer = answer?;
        ensure!(
            answer == Renewal::Renewed,
            "lease {index}, which runs: {answer:?}"
        );
    }
    for index in [0, 1, 49, 98, 99] {
        let grant = &mut grants[index];
        grant.begin_again(asked, answered, ttl(index));
        let asked = Instant::now();
        let held = two.refused(&grant.request.with_new_token(), grant).await?;
        grant.ensure_remaining(held.remaining, &asked)?;
    }
    for grant in &grants {
        one.free(grant).await?;
    }
    Ok(())
}

async fn answers_in_order(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grants = hundred(&cx, &client).await?;
    // No pattern that reads the same from the other end.
    let lost = |index: usize| index % 3 == 1;
    for (_, grant) in grants.iter().enumerate().filter(|(index, _)| lost(*index)) {
        client.free(grant).await?;
    }
    let answers = renew_all(&client, &grants, |_| cx.lease(30_000)).await;
    ensure!(
        answers.len() == 100,
        "100 leases, and {} answers",
        answers.len()
    );
    for (index, answer) in answers.into_iter().enumerate() {
        let answer = answer?;
        let right = match lost(index) {
            true => Renewal::Lost { to: None },
            false => Renewal::Renewed,
        };
        if answer != right {
            grants[index].ensure_running()?;
        }
        ensure!(
            answer == right,
            "lease {index}: {right:?} expected, not {answer:?}"
        );
    }
    for (_, grant) in grants.iter().enumerate().filter(|(index, _)| !lost(*index)) {
        client.free(grant).await?;
    }
    Ok(())
}

async fn hundred(cx: &Context, client: &Client) -> Checked<Vec<Grant>> {
    let mut grants = Vec::new();
    for _ in 0..100 {
        grants.push(
            client
                .take(&cx.request(&cx.name()?, cx.lease(20_000)))
                .await?,
        );
    }
    Ok(grants)
}

async fn renew_all(
    client: &Client,
    grants: &[Grant],
    ttl: impl Fn(usize) -> Duration,
) -> Vec<Result<Renewal>> {
    let leases = grants.iter().enumerate();
    let leases: Vec<_> = leases
        .map(|(index, grant)| (grant.lease(), ttl(index)))
        .collect();
    client.backend.renew(&leases).await
}
