//! What the network does to a client, and what its holder must know of it (promises 7, 8 and 11).
//!
//! The client under test reaches its server over a [`Link`] that the rule makes a bad one; another, beside it, sees what
//! the server has.

use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{Effect, ErrorKind, Guard, Hold, Lock, LockName, LockState, Loss};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::context::Context;
use crate::engine::acquire;
use crate::failure::{Checked, Failure, ensure, must_be};
use crate::link::{Condition, Link, Way};
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
}

/// A client behind a link, and one beside it.
struct Bench {
    link: Link,
    client: Client,
    beside: Client,
    name: LockName,
}

impl Bench {
    async fn new(cx: &Context) -> Checked<Self> {
        let (link, client) = cx.linked_client().await?;
        Ok(Self {
            link,
            client,
            beside: cx.client().await?,
            name: cx.name()?,
        })
    }

    /// As [`new`](Self::new), with a client that has its connection and has looked at the store, so that only its calls
    /// are still to come.
    async fn warm(cx: &Context) -> Checked<Self> {
        let bench = Self::new(cx).await?;
        bench.warm_up(cx).await?;
        Ok(bench)
    }

    async fn warm_up(&self, cx: &Context) -> Checked {
        let request = cx.request(&cx.name()?, cx.lease(30_000));
        let grant = self.client.take_when_reachable(&request).await?;
        self.client.free(&grant).await
    }

    fn lock(&self) -> Checked<Lock> {
        Ok(self.client.locks().lock(&self.name)?)
    }

    async fn watched(&self, ttl: Duration) -> Checked<Guard> {
        acquire(&self.lock()?.watchdog(ttl)).await
    }

    /// That the store, at this moment, has the lock for somebody.
    async fn is_held(&self) -> Checked<bool> {
        Ok(self.beside.state(&self.name).await? == LockState::Held)
    }

    /// That the lock is free long before the lease of the attempt would be over.
    async fn is_given_back(&self, cx: &Context) -> Checked {
        let request = cx.request(&self.name, cx.lease(1000));
        let grant = self.beside.take_when_free(&request).await?;
        self.beside.free(&grant).await
    }
}

/// Waits and sees that the guard stays valid.
async fn stays_valid(guard: &Guard, time: Duration) -> Checked {
    match clock::timeout(time, guard.lost()).await {
        None => Ok(()),
        Some(Loss::NotRenewed { cause: None }) => Err(Failure::stalled("this process stood still")),
        Some(loss) => Err(Failure::broken(format!("the lock was lost: {loss}"))),
    }
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
    let told = clock::timeout(cx.patience, hold.lost()).await;
    let told_at = Instant::now();
    let record = beside.record(hold.name()).await?;
    must_be!(told, Some(Loss::NotRenewed { .. }) => (), "nothing gets through, and the guard says");
    if record.state != LockState::Held && told_at.elapsed() > cx.lease(10) {
        return Err(Failure::stalled("the store answered late"));
    }
    ensure!(
        record.state == LockState::Held,
        "the loss was told when the lease was over at the store"
    );
    Ok(record.remaining)
}

async fn healed_link_keeps_the_lock(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    let ttl = cx.lease(3000);
    let guard = bench.watched(ttl).await?;
    for way in [Way::Both, Way::ToServer, Way::ToClient] {
        bench.link.set(Condition::Held(way));
        stays_valid(&guard, ttl / 3).await?;
        bench.link.set(Condition::Open);
        stays_valid(&guard, ttl / 2).await?;
        ensure!(bench.is_held().await?, "the store has given the lock away");
    }
    Ok(())
}

async fn forgotten_connections_keep_the_lock(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    let ttl = cx.lease(6000);
    let guard = bench.watched(ttl).await?;
    for _ in 0..2 {
        bench.link.forget();
        stays_valid(&guard, ttl).await?;
        ensure!(bench.is_held().await?, "the store has given the lock away");
    }
    Ok(())
}

async fn reset_connections_keep_the_lock(cx: Context) -> Checked {
    let bench = Bench::new(&cx).await?;
    let ttl = cx.lease(3000);
    let guard = bench.watched(ttl).await?;
    for _ in 0..6 {
        bench.link.reset();
        stays_valid(&guard, ttl / 2).await?;
    }
    ensure!(bench.is_held().await?, "the store has given the lock away");
    let freed = guard.release().await;
    drop(freed);
    bench.is_given_back(&cx).await
}

async fn late_renewal_counts_from_its_sending(cx: Context) -> Checked {
    let bench = Bench::warm(&cx).await?;
    let delay = Duration::from_millis(60);
    bench.link.set(Condition::Slow(delay));
    let ttl = cx.lease(4000);
    let guard = bench.watched(ttl).await?;
    let mut renewed = 0;
    let mut before = Duration::ZERO;
    for _ in 0..60 {
        let left = guard.remaining();
        if left > before {
            renewed += 1;
            ensure!(
                left + 2 * delay <= ttl,
                "{left:.1?} are said to remain of {ttl:.1?}, although the answer alone took twice {delay:.1?}"
            );
        }
        before = left;
        clock::sleep(ttl / 30).await;
    }
    ensure!(renewed >= 3, "only {renewed} renewals were seen");
    ensure!(guard.is_valid(), "a slow link cost the lock");
    Ok(())
}

async fn lost_answer_leaves_no_lock(cx: Context) -> Checked {
    let bench = Bench::warm(&cx).await?;
    bench.link.set(Condition::Held(Way::ToClient));
    let lock = bench.lock()?.at_most_for(Duration::from_secs(600));
    let limit = bench.client.capabilities().operation_limit;
    let since = Instant::now();
    let error = match lock.try_acquire().await {
        Ok(answer) => return Err(Failure::broken(format!("without an answer: {answer:?}"))),
        Err(error) => error,
    };
    ensure!(
        since.elapsed() < limit + cx.patience,
        "the call took {:.1?}, its limit is {limit:.1?}",
        since.elapsed()
    );
    ensure!(
        error.effect() == Effect::Unknown,
        "it may have been done, and the error says otherwise: {error}"
    );
    bench.link.set(Condition::Open);
    bench.is_given_back(&cx).await
}

async fn late_request_leaves_no_lock(cx: Context) -> Checked {
    let bench = Bench::warm(&cx).await?;
    bench.link.set(Condition::Held(Way::ToServer));
    let lock = bench.lock()?.at_most_for(Duration::from_secs(600));
    let given_up = clock::timeout(cx.lease(200), lock.try_acquire()).await;
    ensure!(given_up.is_none(), "an answer to what was not delivered");
    clock::sleep(cx.lease(800)).await;
    bench.link.set(Condition::Open);
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
        bench.link.set(Condition::Open);
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
    let lock = bench.lock()?.at_most_for(Duration::from_secs(600));
    let limit = bench.client.capabilities().operation_limit;
    let since = Instant::now();
    let error = match lock.try_acquire().await {
        Ok(answer) => return Err(Failure::broken(format!("from a deaf server: {answer:?}"))),
        Err(error) => error,
    };
    ensure!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
        "a deaf server: {error}"
    );
    ensure!(
        since.elapsed() < limit + cx.patience,
        "the call took {:.1?}, its limit is {limit:.1?}",
        since.elapsed()
    );
    bench.link.set(Condition::Open);
    let request = cx.request(&cx.name()?, cx.lease(30_000));
    let grant = bench.client.take_when_reachable(&request).await?;
    bench.client.free(&grant).await
}
