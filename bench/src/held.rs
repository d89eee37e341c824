//! Many leases held at a time by one process, kept alive by the watchdog.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use distlock::clock::{self, Instant};
use distlock::{Guard, Locks, Release};
use jiff::SignedDuration;
use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::counting::{Counting, Counts};
use crate::raw::{Raw, Served};
use crate::report;
use crate::store::{Place, Store};

#[derive(Args)]
pub(crate) struct Options {
    /// A store; may be given more than once
    #[arg(long, visible_alias = "only")]
    store: Vec<Store>,
    /// How many locks
    #[arg(long, default_value_t = 10_000)]
    locks: usize,
    /// The lease that the watchdog keeps alive
    #[arg(long, default_value = "30s", value_parser = duration)]
    ttl: Duration,
    /// How long they are held
    #[arg(long, default_value = "2m", value_parser = duration)]
    r#for: Duration,
    /// Too little to measure anything: shows that it works
    #[arg(long)]
    quick: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|_| "such as 500ms, 30s or 2m")?;
    duration.try_into().map_err(|_| "not negative".to_owned())
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Load {
    locks: usize,
    ttl: Duration,
    time: Duration,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let stores = match &*options.store {
        [] => Store::ALL,
        some => some,
    };
    let load = match options.quick {
        true => Load {
            locks: 20,
            // Long enough for a slow machine, so that nothing is renewed.
            ttl: Duration::from_secs(30),
            time: Duration::from_millis(100),
        },
        false => Load {
            locks: options.locks,
            ttl: options.ttl,
            time: options.r#for,
        },
    };
    let mut results = Vec::new();
    for store in stores {
        let result = measure(*store, load).await;
        results.push(result.with_context(|| store.name())?);
    }
    show(load, &results);
    match options.quick {
        true => Ok(()),
        false => report::keep("held", &results),
    }
}

/// One store.
#[derive(Serialize)]
struct Measured {
    store: &'static str,
    server: String,
    locks: usize,
    ttl_seconds: f64,
    seconds: f64,
    acquired_in_seconds: f64,
    /// Calls to renew.
    round_trips_per_second: f64,
    leases_per_second: f64,
    /// What the server counted, and how many a second.
    served_unit: &'static str,
    served_per_second: Option<f64>,
    /// Of one core, by this process.
    cpu_percent: f64,
    /// The longest that a lease had to last until it was renewed.
    longest_seconds: f64,
    failed: u64,
    lost: usize,
    released_in_seconds: f64,
}

const TABLE: &str = "distlock_bench_held";

async fn measure(store: Store, load: Load) -> Result<Measured> {
    let place = Place::of(store)?;
    let mut raw = Raw::open(&place).await?;
    let counting = Counting::new(place.locks(TABLE).await?);
    let locks = Locks::new(counting.clone());

    let start = Instant::now();
    let guards = acquire(&locks, load).await?;
    let acquired_in = start.elapsed();
    let held = hold(&mut raw, &counting, load.time).await?;
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    let start = Instant::now();
    let not_held = release(guards).await?;
    let released_in = start.elapsed();

    locks.shutdown(Duration::from_secs(30)).await?;
    raw.drop_all(TABLE).await?;
    let seconds = held.time.as_secs_f64();
    let served = held.served;
    Ok(Measured {
        store: store.name(),
        server: raw.version().await?,
        locks: load.locks,
        ttl_seconds: load.ttl.as_secs_f64(),
        seconds,
        acquired_in_seconds: acquired_in.as_secs_f64(),
        round_trips_per_second: held.counts.calls as f64 / seconds,
        leases_per_second: held.counts.renewed as f64 / seconds,
        served_unit: served.map_or("", |served| served.unit),
        served_per_second: served.map(|served| served.count as f64 / seconds),
        cpu_percent: held.cpu.as_secs_f64() / seconds * 100.0,
        longest_seconds: held.counts.longest.as_secs_f64(),
        failed: held.counts.failed,
        lost: lost.max(not_held),
        released_in_seconds: released_in.as_secs_f64(),
    })
}

/// How many tasks acquire and release: a process that takes ten thousand locks does not take them one by one.
const WORKERS: usize = 64;

async fn acquire(locks: &Locks, load: Load) -> Result<Vec<Guard>> {
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let locks = locks.clone();
        workers.spawn(async move {
            let mut guards = Vec::new();
            for number in (worker..load.locks).step_by(WORKERS) {
                let lock = locks.lock(format!("held-{number:06}"))?.watchdog(load.ttl);
                let acquired = lock.try_acquire().await?.acquired();
                guards.push(acquired.context("held by another")?);
            }
            Ok::<_, anyhow::Error>(guards)
        });
    }
    let mut guards = Vec::with_capacity(load.locks);
    while let Some(of_one) = workers.join_next().await {
        guards.append(&mut of_one??);
    }
    ensure!(guards.len() == load.locks, "not all were acquired");
    Ok(guards)
}

/// How many were not held any more.
async fn release(mut guards: Vec<Guard>) -> Result<usize> {
    let mut workers = JoinSet::new();
    let size = guards.len().div_ceil(WORKERS);
    while !guards.is_empty() {
        let some = guards.split_off(guards.len().saturating_sub(size));
        workers.spawn(async move {
            let mut not_held = 0;
            for guard in some {
                not_held += usize::from(guard.release().await? != Release::Released);
            }
            Ok::<_, anyhow::Error>(not_held)
        });
    }
    let mut not_held = 0;
    while let Some(of_one) = workers.join_next().await {
        not_held += of_one??;
    }
    Ok(not_held)
}

/// What went on while nothing was to do but to hold.
struct Held {
    time: Duration,
    counts: Counts,
    served: Option<Served>,
    cpu: Duration,
}

async fn hold(raw: &mut Raw, counting: &Counting, time: Duration) -> Result<Held> {
    let served = raw.served().await?;
    counting.take();
    let (start, cpu) = (Instant::now(), cpu_time()?);
    clock::sleep(time).await;
    let (time, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
    let counts = counting.take();
    let since = raw.served().await?.zip(served).map(|(now, before)| Served {
        count: now.count - before.count,
        ..now
    });
    Ok(Held {
        time,
        counts,
        served: since,
        cpu,
    })
}

/// Of all threads of this process, in it and in the kernel for it.
fn cpu_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec().cast_unsigned())
            + Duration::from_micros(time.tv_usec().cast_unsigned())
    };
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

fn show(load: Load, results: &[Measured]) {
    let Load { locks, ttl, time } = load;
    println!("\n{locks} locks, watchdog {ttl:?}, held for {time:?}");
    println!("targets for 10000 of 30 s: ≤ 20 round trips a second, ≤ 5 % of a core, none lost");
    let rows: Vec<_> = results.iter().map(row).collect();
    report::show(
        &[
            "server",
            "acquired in",
            "round trips/s",
            "leases/s",
            "the server counts",
            "of a core",
            "longest wait for a renewal",
            "failed tries",
            "lost",
            "released in",
        ],
        &rows,
    );
}

fn row(result: &Measured) -> Vec<String> {
    let served = match result.served_per_second {
        Some(served) => format!("{served:.1} {}/s", result.served_unit),
        None => "–".to_owned(),
    };
    vec![
        result.server.clone(),
        format!("{:.1} s", result.acquired_in_seconds),
        format!("{:.1}", result.round_trips_per_second),
        format!("{:.0}", result.leases_per_second),
        served,
        format!("{:.2} %", result.cpu_percent),
        format!("{:.2} s", result.longest_seconds),
        result.failed.to_string(),
        result.lost.to_string(),
        format!("{:.1} s", result.released_in_seconds),
    ]
}
