//! Promise 8: a future dropped at any await point leaves nothing behind. What needs faults in the network is tested
//! with the backends.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{Lock, LockName, Locks};
use tokio::runtime::Handle;

use crate::client::Client;
use crate::context::Context;
use crate::drops::{acquisitions_to_drop, drop_some_at_random};
use crate::engine::acquire;
use crate::failure::{Checked, ensure};
use crate::polls::polled;
use crate::rule::rules;
use crate::witness::Witness;

rules! {
    "8.1" dropped_acquire []
        "An acquisition that is dropped at any of its await points leaves no lock.";
    "8.2" dropped_release []
        "A release that is dropped at any of its await points is done all the same.";
    "8.3" dropped_calls []
        "A client of which any call was dropped at any await point answers the next one rightly.";
    "8.4" dropped_at_random []
        "Many acquisitions that are dropped at random leave no lock and no task.";
    "8.5" watched_and_dropped []
        "Watchdogs of locks that are dropped or released at random renew nothing afterwards.";
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

async fn dropped_at_random(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let tasks = tasks_when_warm(&cx, &one).await?;
    let witness = Witness::of(&one);
    let locks = witness.locks();
    let names = drop_many(&cx, &locks, |lock| lock.at_most_for(LONG)).await?;
    locks.shutdown(cx.patience).await?;
    drop(locks);
    let done = nothing_is_left(&cx, &two, &names, tasks).await;
    done.map_err(|failure| witness.judge(failure))
}

async fn watched_and_dropped(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let tasks = tasks_when_warm(&cx, &one).await?;
    let witness = Witness::of(&one);
    let locks = witness.locks();
    let names = drop_many(&cx, &locks, |lock| lock.watchdog(WATCHDOG)).await?;
    locks.shutdown(cx.patience).await?;
    let renewals = witness.renewals();
    clock::sleep(WATCHDOG * 2).await;
    let later = witness.renewals();
    ensure!(
        renewals == later,
        "nobody holds a lock, and {} renewals left",
        later - renewals
    );
    drop(locks);
    let done = nothing_is_left(&cx, &two, &names, tasks).await;
    done.map_err(|failure| witness.judge(failure))
}

/// Drops as many as were asked for; fewer where the machine was too slow for that.
async fn drop_many(
    cx: &Context,
    locks: &Locks,
    options: fn(Lock) -> Lock,
) -> Checked<BTreeSet<LockName>> {
    let (stem, count) = (cx.name()?, acquisitions_to_drop(300));
    let dropped = drop_some_at_random(locks, stem.as_str(), count, cx.stretch, options);
    Ok(dropped.await?.names)
}

/// That every lock is free, and what was done in the background comes to an end.
async fn nothing_is_left(
    cx: &Context,
    other: &Client,
    names: &BTreeSet<LockName>,
    tasks: usize,
) -> Checked {
    for name in names {
        let request = cx.request(name, cx.lease(5000));
        other.take_when_free(&request).await?;
    }
    no_more_tasks(cx, tasks).await
}

/// No rule waits for the end of a lease of this length.
const LONG: Duration = Duration::from_secs(600);

/// So short that renewals leave all the time.
const WATCHDOG: Duration = Duration::from_millis(300);

/// How many tasks this rule's runtime has when the client is connected: some have a task for each connection.
async fn tasks_when_warm(cx: &Context, client: &Client) -> Checked<usize> {
    let request = cx.request(&cx.name()?, cx.lease(5000));
    let warm = client.take(&request).await?;
    client.free(&warm).await?;
    Ok(tasks())
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn no_more_tasks(cx: &Context, before: usize) -> Checked {
    let since = Instant::now();
    while tasks() > before {
        ensure!(
            since.elapsed() < cx.patience,
            "{before} tasks were alive before, and now there are {}",
            tasks()
        );
        clock::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
