//! What the network does to a client, and what its holder must know of it (promises 7, 8 and 11).
//!
//! The client under test reaches its server over a [`Link`] that the rule makes a bad one; another, beside it, sees what
//! the server has.

use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{Effect, ErrorKind, Hold, LockState, Loss};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::client::Client;
use crate::context::Context;
use crate::engine::acquire;
use crate::failure::{Checked, Failure, ensure, must_be};
use crate::link::{Condition, Way};
use crate::rule::rules;

rules! {
    "F.1" dead_link_is_told_in_time [Link Admin]
        "When nothing gets through any more, the loss of a renewed lease is told before it ends at the store (D6).";
    "F.2" healed_link_keeps_the_lock [Link Admin]
        "A link that is dead for a part of the lease only costs no lock (D7).";
    "F.3" forgotten_connections_keep_the_lock [Link Admin]
        "When a firewall forgets all connections, the renewals find new ones in time.";
    "F.4" reset_connections_keep_the_lock [Link Admin]
        "When all connections are reset, time and again, renewals go on and the lock is kept (D5).";
    "F.5" late_renewal_counts_from_its_sending [Link Admin]
        "The deadline of a slow renewal or acquisition is no later than the lease's end (B9).";
    "F.6" lost_answer_leaves_no_lock [Link Admin]
        "An acquisition whose answer does not come fails, and what it was granted is given back (D2, D8).";
    "F.7" late_request_leaves_no_lock [Link Admin]
        "A request that reaches the store long after its caller gave up leaves no lock (D1, D3).";
    "F.8" cut_answers [Link Admin]
        "Wherever an answer is cut off, the call gives an outcome or an error, and no lock is left (D5).";
    "F.9" cut_requests [Link Admin]
        "Wherever a request is cut off, the call gives an outcome or an error, and no lock is left (D5).";
    "F.10" slices [Link]
        "A link that passes on byte by byte changes nothing (D10).";
    "F.11" deaf_server [Link]
        "A server that takes connections and says nothing fails a call within its limit, and works when it speaks (D12).";
    "F.12" half_closed [Link Admin]
        "A call on a connection of which one way is closed fails at once as unavailable, and no lock is left (D5).";
    "F.13" garbled_answer [Link Admin]
        "An answer that cannot be one is an error that leaves the effect open, and what was granted is given back (D14).";
}

/// Twenty at a time, so that the loss is told at any moment of a lease.
async fn dead_link_is_told_in_time(cx: Context) -> Checked {
    let (link, client) = cx.linked_client().await?;
    let (locks, beside) = (client.locks(), cx.client().await?);
    let ttl = cx.lease(3000);
    let mut guards = Vec::new();
    for _ in 0..20 {
        guards.push(acquire(&locks.lock(cx.name()?)?.watchdog(ttl)).await?);
        clock::sleep(ttl / 60).await;
    }
    clock::sleep(ttl).await;
    // So many connections are there, then, when it has to be quick.
    let mut reads = JoinSet::new();
    for guard in &guards {
        let (beside, name) = (beside.clone(), guard.name().clone());
        reads.spawn(async move { beside.record(&name).await });
    }
    while let Some(read) = reads.join_next().await {
        read??;
    }
    link.set(Condition::Held(Way::Both));
    let mut told = JoinSet::new();
    for guard in &guards {
        told.spawn(told_before_the_end(
            cx.clone(),
            guard.hold(),
            beside.clone(),
        ));
    }
    let mut ahead = Vec::new();
    while let Some(told) = told.join_next().await {
        ahead.push(told??);
    }
    println!(
        "{}: of a lease of {ttl:.1?}, {:.1?} to {:.1?} were left at the store when its loss was told, {} times",
        cx.store.name,
        ahead.iter().min().unwrap_or(&ttl),
        ahead.iter().max().unwrap_or(&ttl),
        ahead.len()
    );
    link.set(Condition::Open);
    clock::sleep(cx.lease(500)).await;
    let revived = guards.iter().filter(|guard| guard.is_valid()).count();
    ensure!(revived == 0, "{revived} lost locks came back with the link");
    Ok(())
}

/// Waits for the loss; gives what is left of the lease at the store at that moment.
async fn told_before_the_end(cx: Context, hold: Hold, beside: Client) -> Checked<Duration> {
    let (told, late) = told_late(&cx, &hold).await;
    let told_at = Instant::now();
    let record = beside.record(hold.name()).await?;
    must_be!(told, Some(Loss::NotRenewed { .. }) => (), "nothing gets through, and the guard says");
    if record.state != LockState::Held && told_at.elapsed() + late > cx.lease(10) {
        return Err(Failure::stalled("this task ran late, or the store did"));
    }
    ensure!(
        record.state == LockState::Held,
        "the loss was told when the lease was over at the store"
    );
    Ok(record.remaining)
}

/// Waits for the loss, and says how long after the deadline this task came to know of it.
async fn told_late(cx: &Context, hold: &Hold) -> (Option<Loss>, Duration) {
    let since = Instant::now();
    let (mut left, mut read) = (hold.remaining(), Instant::now());
    while since.elapsed() < cx.patience {
        if let Some(loss) = clock::timeout(cx.lease(100), hold.lost()).await {
            return (Some(loss), read.elapsed().saturating_sub(left));
        }
        if hold.is_valid() {
            (left, read) = (hold.remaining(), Instant::now());
        }
    }
    (None, Duration::ZERO)
}

async fn healed_link_keeps_the_lock(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    let ttl = cx.lease(3000);
    let mut watched = bench.watched(ttl).await?;
    for way in [Way::Both, Way::ToServer, Way::ToClient] {
        bench.link.set(Condition::Held(way));
        watched.stays_valid(ttl / 3).await?;
        bench.heal();
        watched.stays_valid(ttl / 2).await?;
    }
    Ok(())
}

async fn forgotten_connections_keep_the_lock(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    let ttl = cx.lease(6000);
    let mut watched = bench.watched(ttl).await?;
    for _ in 0..2 {
        bench.link.forget();
        watched.stays_valid(ttl).await?;
    }
    Ok(())
}

async fn reset_connections_keep_the_lock(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    let ttl = cx.lease(3000);
    let mut watched = bench.watched(ttl).await?;
    for _ in 0..6 {
        bench.link.reset();
        watched.stays_valid(ttl / 2).await?;
    }
    let freed = watched.guard.release().await;
    drop(freed);
    bench.is_given_back(&cx).await
}

async fn late_renewal_counts_from_its_sending(cx: Context) -> Checked {
    let bench = Bench::warm(&cx).await?;
    let delay = Duration::from_millis(60);
    bench.link.set(Condition::Slow(delay));
    let ttl = cx.lease(4000);
    let mut watched = bench.watched(ttl).await?;
    let mut renewed = 0;
    let mut before = Duration::ZERO;
    let since = Instant::now();
    while since.elapsed() < 2 * ttl {
        let left = watched.guard.remaining();
        if left > before {
            renewed += 1;
            ensure!(
                left + 2 * delay <= ttl,
                "{left:.1?} are said to remain of {ttl:.1?}, although the answer alone took twice {delay:.1?}"
            );
        }
        before = left;
        watched.look().await?;
    }
    match renewed {
        0..3 => Err(watched.failure(&format!("only {renewed} renewals were seen"))),
        _ => Ok(()),
    }
}

async fn lost_answer_leaves_no_lock(cx: Context) -> Checked {
    let bench = Bench::warm(&cx).await?;
    let limit = bench.client.capabilities().operation_limit;
    let since = Instant::now();
    let error = failed_attempt(&bench, Condition::Held(Way::ToClient)).await?;
    ensure!(
        since.elapsed() < limit + cx.patience,
        "the call took {:.1?}, its limit is {limit:.1?}",
        since.elapsed()
    );
    ensure!(
        error.effect() == Effect::Unknown,
        "it may have been done, and the error says otherwise: {error}"
    );
    bench.is_given_back(&cx).await
}

async fn late_request_leaves_no_lock(cx: Context) -> Checked {
    let bench = Bench::warm(&cx).await?;
    bench.link.set(Condition::Held(Way::ToServer));
    let lock = bench.lock()?.at_most_for(Duration::from_secs(600));
    let given_up = clock::timeout(cx.lease(200), lock.try_acquire()).await;
    ensure!(given_up.is_none(), "an answer to what was not delivered");
    clock::sleep(cx.lease(800)).await;
    bench.heal();
    // Delivered now, and undone.
    clock::sleep(cx.lease(200)).await;
    bench.is_given_back(&cx).await
}

async fn cut_answers(cx: Context) -> Checked {
    cut(cx, Way::ToClient).await
}

async fn cut_requests(cx: Context) -> Checked {
    cut(cx, Way::ToServer).await
}

/// Cuts the connection after each number of bytes in turn, ever coarser.
async fn cut(cx: Context, way: Way) -> Checked {
    let bench = Bench::new(&cx).await?;
    let mut bytes = 0;
    while bytes < 1000 {
        bench.warm_up(&cx).await?;
        bench.link.set(Condition::Cut(way, bytes));
        let lock = bench.lock()?.at_most_for(Duration::from_secs(600));
        let guard = lock.try_acquire().await;
        bench.heal();
        match guard {
            Ok(acquired) => drop(acquired),
            Err(error) => ensure!(
                matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
                "cut off after {bytes} bytes: {error}"
            ),
        }
        let given_back = bench.is_given_back(&cx).await;
        given_back.map_err(|failure| failure.context(format!("cut off after {bytes} bytes")))?;
        bytes += 1 + bytes / 4;
    }
    Ok(())
}

async fn slices(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    bench.link.set(Condition::Sliced);
    for _ in 0..3 {
        let request = cx.request(&bench.name, cx.lease(30_000));
        let mut grant = bench.client.take(&request).await?;
        let other = cx.request(&bench.name, cx.lease(1000));
        bench.client.refused(&other, &grant).await?;
        bench.client.prolong(&mut grant, cx.lease(30_000)).await?;
        bench.client.free(&grant).await?;
    }
    Ok(())
}

async fn deaf_server(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    bench.link.set(Condition::Deaf);
    bench.link.reset();
    let limit = bench.client.capabilities().operation_limit;
    let since = Instant::now();
    let error = failed_attempt(&bench, Condition::Deaf).await?;
    ensure!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
        "a deaf server: {error}"
    );
    ensure!(
        since.elapsed() < limit + cx.patience,
        "the call took {:.1?}, its limit is {limit:.1?}",
        since.elapsed()
    );
    let request = cx.request(&cx.name()?, cx.lease(30_000));
    let grant = bench.client.take_when_reachable(&request).await?;
    bench.client.free(&grant).await
}

async fn half_closed(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    for way in [Way::ToServer, Way::ToClient] {
        bench.warm_up(&cx).await?;
        let error = failed_attempt(&bench, Condition::HalfClosed(way)).await?;
        match error.kind() {
            ErrorKind::Unavailable => bench.is_given_back(&cx).await?,
            // So late that nobody had seen the end; or the machine was slow.
            ErrorKind::Timeout => return Err(error.into()),
            _ => return Err(Failure::broken(format!("half closed: {error}"))),
        }
    }
    Ok(())
}

async fn garbled_answer(cx: Context) -> Checked {
    let bench = Bench::warm(&cx).await?;
    let error = failed_attempt(&bench, Condition::Garbled(Way::ToClient)).await?;
    ensure!(
        error.effect() == Effect::Unknown,
        "it may have been done, and the error says otherwise: {error}"
    );
    bench.is_given_back(&cx).await
}

/// The error of an attempt that cannot end well on a link like that.
async fn failed_attempt(bench: &Bench, condition: Condition) -> Checked<distlock_api::Error> {
    bench.link.set(condition);
    let attempt = bench.lock()?.at_most_for(Duration::from_secs(600));
    let answer = attempt.try_acquire().await;
    bench.heal();
    must_be!(answer, Err(error) => Ok(error), "no answer can have come, and the call says")
}
