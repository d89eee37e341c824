//! Acquire and release, beside the raw statements.
//!
//! The contenders take turns, a short block each, so that what disturbs one disturbs all. A ratio is that of two medians
//! of one turn; what is shown is the median of these ratios, and between which eight of ten lie.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use distlock::clock::Instant;
use distlock::{AcquireRequest, Attempt, Lock, LockAdmin, LockName, Locks, Release};
use serde::Serialize;

use crate::raw::{self, NAME, Raw};
use crate::report;
use crate::stats::Spread;
use crate::store::{Place, Store};

#[derive(Args)]
pub(crate) struct Options {
    /// A store; may be given more than once
    #[arg(long, visible_alias = "store")]
    only: Vec<Store>,
    /// How many turns each contender has
    #[arg(long, default_value_t = 60)]
    blocks: usize,
    /// How many acquisitions one turn has
    #[arg(long, default_value_t = 200)]
    cycles: usize,
    /// Too little to measure anything: shows that it works
    #[arg(long)]
    quick: bool,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let stores = match &*options.only {
        [] => Store::ALL,
        some => some,
    };
    let (blocks, cycles) = match options.quick {
        true => (2, 10),
        false => (options.blocks, options.cycles),
    };
    ensure!(blocks > 0 && cycles > 0, "nothing to measure");
    let mut results = Vec::new();
    for store in stores {
        let result = measure(*store, blocks, cycles).await;
        results.push(result.with_context(|| store.name())?);
    }
    show(&results);
    match options.quick {
        true => Ok(()),
        false => report::keep("hold", &results),
    }
}

/// One store.
#[derive(Serialize)]
struct Measured {
    store: &'static str,
    server: String,
    blocks: usize,
    cycles: usize,
    contenders: Vec<Line>,
}

/// One contender.
#[derive(Serialize)]
struct Line {
    contender: Contender,
    micros: Spread,
    /// To the first of the raw ones.
    ratio: Spread,
    at_most: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Contender {
    Raw,
    /// The same once more: what differs from 1 is noise.
    RawAgain,
    /// The backend's two calls.
    Backend,
    /// What users call.
    Guard,
    /// The same with a watchdog, which has nothing to do before the release.
    Watchdog,
}

impl Contender {
    const ALL: [Self; 5] = [
        Self::Raw,
        Self::RawAgain,
        Self::Backend,
        Self::Guard,
        Self::Watchdog,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw statements",
            Self::RawAgain => "raw statements again",
            Self::Backend => "backend",
            Self::Guard => "lock and guard",
            Self::Watchdog => "… with a watchdog",
        }
    }

    /// The target for its ratio.
    fn at_most(self, store: Store) -> Option<f64> {
        match (store, self) {
            (Store::Redis, Self::Backend) => Some(1.10),
            (Store::Redis, Self::Guard) => Some(1.15),
            // A release need not wait until it is on disk.
            (Store::Postgres, Self::Backend) => Some(0.95),
            (Store::Mysql, Self::Backend) => Some(1.10),
            (Store::Mariadb, Self::Backend) => Some(1.15),
            (Store::Sqlite, Self::Backend) => Some(1.20),
            _ => None,
        }
    }
}

async fn measure(store: Store, blocks: usize, cycles: usize) -> Result<Measured> {
    let place = Place::of(store)?;
    let mut ring = Ring::open(&place).await?;
    for contender in Contender::ALL {
        ring.block(contender, cycles).await?;
    }
    let mut medians = [const { Vec::new() }; Contender::ALL.len()];
    let mut turn: [usize; Contender::ALL.len()] = std::array::from_fn(|place| place);
    for _ in 0..blocks {
        for place in turn {
            let median = ring.block(Contender::ALL[place], cycles).await?;
            medians[place].push(median);
        }
        // Whoever was first is last the next time, so that nobody always follows the same.
        turn.reverse();
        turn.rotate_left(1);
    }
    let server = ring.raw.version().await?;
    ring.close().await?;
    let line = |(contender, of_it): (Contender, &Vec<f64>)| Line {
        contender,
        micros: Spread::of(of_it.iter().copied()),
        ratio: Spread::of(of_it.iter().zip(&medians[0]).map(|(it, raw)| it / raw)),
        at_most: contender.at_most(store),
    };
    Ok(Measured {
        store: store.name(),
        server,
        blocks,
        cycles,
        contenders: Contender::ALL.into_iter().zip(&medians).map(line).collect(),
    })
}

/// Everybody, each with a connection of their own.
struct Ring {
    raw: Raw,
    backend: Arc<dyn LockAdmin>,
    guard: Lock,
    watchdog: Lock,
}

const LEASE: Duration = Duration::from_secs(30);
const TABLE: &str = "distlock_bench_hold";

impl Ring {
    async fn open(place: &Place) -> Result<Self> {
        // A row of the same shape: that of a lock.
        let like_ours = place.locks(raw::TABLE).await?;
        let mut raw = Raw::open(place).await?;
        let request = request()?;
        like_ours.try_acquire(&request).await?;
        like_ours
            .release(&request.lease_id(), Duration::ZERO)
            .await?;
        raw.cycle().await?;
        let locks = Locks::from_arc(place.locks(TABLE).await?);
        Ok(Self {
            raw,
            backend: place.locks(TABLE).await?,
            guard: locks.lock(NAME)?.at_most_for(LEASE),
            watchdog: locks.lock(NAME)?.watchdog(LEASE),
        })
    }

    /// The median of one block, in microseconds.
    async fn block(&mut self, contender: Contender, cycles: usize) -> Result<f64> {
        let mut micros = Vec::with_capacity(cycles);
        for _ in 0..cycles {
            let start = Instant::now();
            match contender {
                Contender::Raw | Contender::RawAgain => self.raw.cycle().await?,
                Contender::Backend => self.through_the_backend().await?,
                Contender::Guard => through_a_guard(&self.guard).await?,
                Contender::Watchdog => through_a_guard(&self.watchdog).await?,
            }
            micros.push(start.elapsed().as_nanos() as f64 / 1e3);
        }
        Ok(Spread::of(micros).p50)
    }

    async fn through_the_backend(&self) -> Result<()> {
        let request = request()?;
        let attempt = self.backend.try_acquire(&request).await?;
        ensure!(
            matches!(attempt, Attempt::Acquired { .. }),
            "not granted: {attempt:?}"
        );
        let lease = request.lease_id();
        let release = self.backend.release(&lease, Duration::ZERO).await?;
        ensure!(release == Release::Released, "not released");
        Ok(())
    }

    async fn close(mut self) -> Result<()> {
        drop((self.backend, self.guard, self.watchdog));
        self.raw.drop_all(TABLE).await?;
        self.raw.drop_all(raw::TABLE).await
    }
}

async fn through_a_guard(lock: &Lock) -> Result<()> {
    let acquired = lock.try_acquire().await?.acquired();
    let guard = acquired.context("held by another")?;
    ensure!(guard.release().await? == Release::Released, "not released");
    Ok(())
}

fn request() -> Result<AcquireRequest> {
    Ok(AcquireRequest::new(LockName::new(NAME)?, "bench/1", LEASE))
}

fn show(results: &[Measured]) {
    for result in results {
        let Measured {
            server,
            blocks,
            cycles,
            ..
        } = result;
        println!("\n{server}: {blocks} blocks of {cycles} cycles, acquire and release");
        let rows: Vec<_> = result.contenders.iter().map(row).collect();
        report::show(
            &["contender", "p50", "÷ raw", "p10 to p90", "target"],
            &rows,
        );
    }
}

fn row(line: &Line) -> Vec<String> {
    let Line { micros, ratio, .. } = line;
    let target = line.at_most.map_or_else(String::new, |most| {
        let met = if ratio.p50 <= most { "met" } else { "MISSED" };
        format!("≤ {most:.2} {met}")
    });
    vec![
        line.contender.name().to_owned(),
        format!("{:.1} µs", micros.p50),
        format!("{:.3}", ratio.p50),
        format!("{:.3} to {:.3}", ratio.p10, ratio.p90),
        target,
    ]
}
