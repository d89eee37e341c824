//! Ticks: a grant for a planned run is given once, and never for an earlier run than the last.

use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{AcquireRequest, Attempt, Token};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::context::{Context, ensure_young};
use crate::failure::{Checked, Failure, ensure, ensure_while};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "T.1" greater_only [Ticks]
        "A tick is granted if it is greater than the last one granted; an equal or a smaller one is done.";
    "T.2" one_run_per_tick [Ticks]
        "Twenty clients that ask for the same ticks get each tick once.";
    "T.3" done_wins_over_held [Ticks]
        "While the lock is held, a tick that is done is said to be done, and a greater one to be held.";
    "T.4" all_of_64_bits [Ticks]
        "Ticks are compared as signed 64-bit numbers, exactly, at the ends of their range, too.";
    "T.5" grants_without_a_tick [Ticks]
        "A grant without a tick leaves the last tick as it was.";
    "T.6" refused_ticks [Ticks]
        "A tick that was asked for while the lock was held is not used up.";
    "T.7" same_token_same_tick [Ticks]
        "The token that was granted a tick is granted it again.";
    "T.8" done_after_the_end [Ticks]
        "A tick is done also when its lease has run out.";
}

/// Takes the lock for a tick and frees it; gives the moment before it was free.
async fn run_tick(client: &Client, request: &AcquireRequest, tick: i64) -> Checked<Instant> {
    let grant = client.take(&request.with_tick(tick)).await;
    let grant = grant.map_err(|failure| failure.context(format!("tick {tick}")))?;
    let free_since = Instant::now();
    client.free(&grant).await?;
    Ok(free_since)
}

/// Fails unless the tick is done and the last one is said.
async fn done(
    client: &Client,
    request: &AcquireRequest,
    (tick, last): (i64, i64),
    free_since: &Instant,
) -> Checked {
    let attempt = client.attempt(&request.with_tick(tick)).await?;
    if attempt == (Attempt::TickDone { last }) {
        return Ok(());
    }
    ensure_young(free_since)?;
    Err(Failure::broken(format!(
        "tick {last} was granted before, and asking for tick {tick} answered {attempt:?}"
    )))
}

async fn greater_only(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let request = cx.request(&cx.name()?, cx.lease(10_000));
    for (tick, not_greater) in [(7, [7, 6]), (8, [8, -8]), (100, [99, 9])] {
        let free_since = run_tick(&one, &request, tick).await?;
        for asked in not_greater {
            done(&two, &request, (asked, tick), &free_since).await?;
        }
    }
    Ok(())
}

async fn one_run_per_tick(cx: Context) -> Checked {
    const TICKS: i64 = 10;
    let since = Instant::now();
    let request = cx.request(&cx.name()?, cx.lease(20_000));
    let mut tasks = JoinSet::new();
    for client in cx.clients(20).await? {
        let request = request.clone();
        tasks.spawn(async move { grants_of(&client, &request, TICKS).await });
    }
    let mut granted = Vec::new();
    while let Some(ticks) = tasks.join_next().await {
        granted.extend(ticks??);
    }
    granted.sort_unstable();
    let once: Vec<i64> = (0..TICKS).collect();
    if granted != once {
        ensure_young(&since)?;
    }
    ensure!(
        granted == once,
        "each of {TICKS} ticks was to run once, and these did: {granted:?}"
    );
    Ok(())
}

/// Asks for each tick until it is granted or done; gives those that were granted.
async fn grants_of(client: &Client, request: &AcquireRequest, ticks: i64) -> Checked<Vec<i64>> {
    let mut granted = Vec::new();
    for tick in 0..ticks {
        let request = request.with_tick(tick);
        loop {
            match client.ask(&request).await? {
                (Attempt::Acquired { .. }, grant) => {
                    granted.push(tick);
                    client.free(&grant).await?;
                    break;
                }
                (Attempt::TickDone { .. }, _) => break,
                (Attempt::Held(_), _) => clock::sleep(Duration::from_millis(2)).await,
            }
        }
    }
    Ok(granted)
}

async fn done_wins_over_held(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let request = cx.request(&cx.name()?, cx.lease(3000));
    let grant = one.take(&request.with_tick(5)).await?;
    for tick in [5, 4] {
        let attempt = two.attempt(&request.with_tick(tick)).await?;
        ensure_while!(
            grant,
            attempt == Attempt::TickDone { last: 5 },
            "the lock is held for tick 5, and asking for tick {tick} answered {attempt:?}"
        );
    }
    two.refused(&request.with_tick(6), &grant).await?;
    two.refused(&request.with_new_token(), &grant).await?;
    one.free(&grant).await
}

async fn all_of_64_bits(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx.request(&cx.name()?, cx.lease(10_000));
    let exact = 1 << 53;
    let rising = [
        i64::MIN,
        i64::MIN + 1,
        -exact - 1,
        -exact,
        -10,
        -9,
        -1,
        0,
        1,
        9,
        10,
        exact - 1,
        exact,
        exact + 1,
        exact + 2,
        i64::MAX - 1,
        i64::MAX,
    ];
    let mut before = i64::MIN;
    for tick in rising {
        let free_since = run_tick(&client, &request, tick).await?;
        done(&client, &request, (tick, tick), &free_since).await?;
        done(&client, &request, (before, tick), &free_since).await?;
        before = tick;
    }
    Ok(())
}

async fn grants_without_a_tick(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx.request(&cx.name()?, cx.lease(10_000));
    run_tick(&client, &request, 5).await?;
    let grant = client.take(&request).await?;
    let free_since = Instant::now();
    client.free(&grant).await?;
    done(&client, &request, (5, 5), &free_since).await?;
    run_tick(&client, &request, 6).await?;
    Ok(())
}

async fn refused_ticks(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let request = cx.request(&cx.name()?, cx.lease(3000));
    let grant = one.take(&request).await?;
    two.refused(&request.with_tick(9), &grant).await?;
    one.free(&grant).await?;
    run_tick(&two, &request, 9).await?;
    Ok(())
}

async fn same_token_same_tick(cx: Context) -> Checked {
    let client = cx.client().await?;
    let request = cx.request(&cx.name()?, cx.lease(3000)).with_tick(3);
    let first = client.take(&request).await?;
    let attempt = client.attempt(&request).await?;
    ensure_while!(
        first,
        matches!(attempt, Attempt::Acquired { .. }),
        "the token that holds the lock for a tick asked again, and was answered {attempt:?}"
    );
    client.free(&first).await
}

async fn done_after_the_end(cx: Context) -> Checked {
    let client = cx.client().await?;
    let mut request = cx.request(&cx.name()?, cx.lease(50));
    let grant = client.take(&request.with_tick(4)).await?;
    grant.run_out().await;
    request.token = Token::random();
    done(&client, &request, (4, 4), &grant.asked).await
}
