//! Many acquisitions that are dropped at random.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_api::{ErrorKind, Lock, LockName, Locks, Result, Token, clock};
use tokio::task::JoinSet;

use crate::dice::Dice;
use crate::polls::polled;

/// Says how many acquisitions are dropped in each of the tests that drop many.
const COUNT: &str = "DISTLOCK_TEST_DROPS";

/// How many are under way at a time: for a third of all each.
const AT_A_TIME: [u32; 3] = [16, 32, 64];

/// How many names are fought over, and how many mostly are free.
const FEW: u32 = 8;
const MANY: u32 = 200;

/// An acquisition takes about as many polls.
const MOST_POLLS: u32 = 8;

/// An acquisition takes about as many microseconds, or less.
const LONGEST: u32 = 2000;

/// How many acquisitions to drop: what `DISTLOCK_TEST_DROPS` says, or else this many.
pub fn acquisitions_to_drop(otherwise: u32) -> u32 {
    let count = std::env::var(COUNT).ok();
    count
        .and_then(|count| count.parse().ok())
        .unwrap_or(otherwise)
}

/// How much longer a rule may take that drops as many as somebody asked for.
pub(crate) fn length() -> Duration {
    Duration::from_millis(10) * acquisitions_to_drop(0)
}

/// What was dropped.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Dropped {
    /// The names of the locks, all of which begin with the stem that was given.
    pub names: BTreeSet<LockName>,
    /// How many acquisitions were dropped before they had ended.
    pub in_flight: u32,
}

/// Drops so many acquisitions, half of them after a random number of polls and half after a random time of up to two
/// milliseconds, of a few names that many want and of many that are mostly free. What is acquired before that is dropped,
/// released, or released by a future that is dropped.
///
/// When the future ends nobody holds any of the locks or asks for them; [`Locks::shutdown`] waits for what is then still to be
/// released. For a backend's own tests, which look at what is left at the server.
///
/// # Errors
///
/// Those of an acquisition or a release, but for [`ErrorKind::Timeout`] and [`ErrorKind::Unavailable`]: a slow machine may
/// have no connection to spare.
pub async fn drop_at_random(
    locks: &Locks,
    stem: &str,
    acquisitions: u32,
    options: fn(Lock) -> Lock,
) -> Result<Dropped> {
    drop_some_at_random(locks, stem, acquisitions, 1, options).await
}

/// The same for one of so many parts of the acquisitions only, and of those at a time.
pub(crate) async fn drop_some_at_random(
    locks: &Locks,
    stem: &str,
    acquisitions: u32,
    parts: u32,
    options: fn(Lock) -> Lock,
) -> Result<Dropped> {
    let mut all = Dropped::default();
    let acquisitions = acquisitions / parts;
    for at_a_time in AT_A_TIME.map(|at_a_time| at_a_time.div_ceil(parts)) {
        let mut tasks = JoinSet::new();
        let share = acquisitions.div_ceil(3 * at_a_time);
        for _ in 0..at_a_time {
            let (locks, stem) = (locks.clone(), stem.to_owned());
            tasks.spawn(async move { drop_some(&locks, &stem, share, options).await });
        }
        while let Some(done) = tasks.join_next().await {
            match done {
                Ok(dropped) => all.add(dropped?),
                Err(died) => std::panic::resume_unwind(died.into_panic()),
            }
        }
    }
    Ok(all)
}

/// One after the other.
async fn drop_some(
    locks: &Locks,
    stem: &str,
    acquisitions: u32,
    options: fn(Lock) -> Lock,
) -> Result<Dropped> {
    let mut dice = dice();
    let mut all = Dropped::default();
    for _ in 0..acquisitions {
        let name = match dice.roll(2) {
            0 => format!("{stem}-few-{}", dice.roll(FEW)),
            _ => format!("{stem}-many-{}", dice.roll(MANY)),
        };
        let lock = options(locks.lock(name)?);
        all.names.insert(lock.name().clone());
        match drop_one(&lock, &mut dice).await {
            Ok(in_flight) => all.in_flight += u32::from(in_flight),
            Err(error) if !matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable) => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Ok(all)
}

/// Whether it had not ended before.
async fn drop_one(lock: &Lock, dice: &mut Dice) -> Result<bool> {
    let Some(acquired) = dropped(lock.try_acquire(), dice).await else {
        return Ok(true);
    };
    let Some(guard) = acquired?.acquired() else {
        return Ok(false);
    };
    match dice.roll(3) {
        0 => drop(guard),
        1 => drop(guard.release().await?),
        _ => drop(dropped(guard.release(), dice).await.transpose()?),
    }
    Ok(false)
}

/// The future's output, if that comes soon enough.
async fn dropped<F: Future>(future: F, dice: &mut Dice) -> Option<F::Output> {
    match dice.roll(2) {
        0 => polled(future, 1 + dice.roll(MOST_POLLS) as usize).await,
        _ => {
            let time = Duration::from_micros(u64::from(dice.roll(LONGEST)));
            clock::timeout(time, future).await
        }
    }
}

impl Dropped {
    fn add(&mut self, mut other: Self) {
        self.names.append(&mut other.names);
        self.in_flight += other.in_flight;
    }
}

fn dice() -> Dice {
    let token = Token::random();
    let bytes = token.as_bytes().first_chunk().copied();
    Dice(bytes.map_or(0, u64::from_ne_bytes))
}
