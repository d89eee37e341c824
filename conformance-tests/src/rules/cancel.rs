//! Promise 8: a future dropped at any await point leaves nothing behind. What needs faults in the network is tested
//! with the backends.

use std::time::Duration;

use distlock_api::LockName;

use crate::client::Client;
use crate::context::Context;
use crate::engine::acquire;
use crate::failure::{Checked, ensure};
use crate::polls::polled;
use crate::rule::rules;

rules! {
    "8.1" dropped_acquire []
        "An acquisition that is dropped at any of its await points leaves no lock.";
    "8.2" dropped_release []
        "A release that is dropped at any of its await points is done all the same.";
    "8.3" dropped_calls []
        "A client of which any call was dropped at any await point answers the next one rightly.";
}

/// More await points than any call has.
const MOST_POLLS: usize = 500;

async fn dropped_acquire(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let locks = one.locks();
    let mut names = Vec::new();
    for polls in 0..MOST_POLLS {
        let lock = locks.lock(cx.name()?)?.at_most_for(cx.lease(60_000));
        names.push(lock.name().clone());
        if let Some(acquired) = polled(lock.try_acquire(), polls).await {
            drop(acquired?);
            return all_free(&cx, &two, &names).await;
        }
    }
    ensure!(
        false,
        "an acquisition had not ended after {MOST_POLLS} polls"
    );
    Ok(())
}

async fn dropped_release(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let locks = one.locks();
    let mut names = Vec::new();
    for polls in 0..MOST_POLLS {
        let lock = locks.lock(cx.name()?)?.at_most_for(cx.lease(60_000));
        names.push(lock.name().clone());
        let guard = acquire(&lock).await?;
        if let Some(released) = polled(guard.release(), polls).await {
            released?;
            return all_free(&cx, &two, &names).await;
        }
    }
    ensure!(false, "a release had not ended after {MOST_POLLS} polls");
    Ok(())
}

/// That each lock becomes free long before its lease ends.
async fn all_free(cx: &Context, client: &Client, names: &[LockName]) -> Checked {
    for (polls, name) in names.iter().enumerate() {
        let free = client
            .take_when_free(&cx.request(name, cx.lease(5000)))
            .await;
        free.map_err(|failure| failure.context(format!("dropped after {polls} polls")))?;
    }
    Ok(())
}

async fn dropped_calls(cx: Context) -> Checked {
    let client = cx.client().await?;
    let grant = client
        .take(&cx.request(&cx.name()?, cx.lease(30_000)))
        .await?;
    let strange = cx.request(grant.name(), cx.lease(100));
    let renewal = [(grant.lease(), cx.lease(30_000))];
    for polls in 0..MOST_POLLS {
        let fresh = cx.request(&cx.name()?, cx.lease(100));
        let ended = [
            polled(client.backend.try_acquire(&fresh), polls)
                .await
                .is_some(),
            polled(client.backend.try_acquire(&strange), polls)
                .await
                .is_some(),
            polled(client.backend.renew(&renewal), polls)
                .await
                .is_some(),
            polled(
                client.backend.release(&strange.lease_id(), Duration::ZERO),
                polls,
            )
            .await
            .is_some(),
        ];
        usable(&cx, &client, polls).await?;
        if ended == [true; 4] {
            return client.free(&grant).await;
        }
    }
    ensure!(false, "a call had not ended after {MOST_POLLS} polls");
    Ok(())
}

/// That a client answers rightly.
async fn usable(cx: &Context, client: &Client, polls: usize) -> Checked {
    let cycle = async {
        let grant = client
            .take(&cx.request(&cx.name()?, cx.lease(5000)))
            .await?;
        client
            .refused(&cx.request(grant.name(), cx.lease(100)), &grant)
            .await?;
        client.free(&grant).await
    };
    let after = |failure: crate::failure::Failure| {
        failure.context(format!("after calls that were dropped after {polls} polls"))
    };
    cycle.await.map_err(after)
}
