use std::path::PathBuf;
use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{Acquisition, FencingToken, Guard, LockName, Locks};

use super::counter::{Answer, Counter};
use super::{Recorder, What};
use crate::dice::Dice;
use crate::store::StoreError;

/// What a contender is to do: to take one lock again and again, and to count under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contest {
    pub(crate) name: LockName,
    /// Of the watchdog.
    pub(crate) ttl: Duration,
    pub(crate) length: Duration,
    /// Which process this is.
    pub(crate) by: u32,
    /// Where the history and the resource are.
    pub(crate) folder: PathBuf,
}

/// How often a holder looks whether its lock is valid.
const LOOK: Duration = Duration::from_millis(3);

/// Takes part in a contest until it is over.
pub(crate) async fn contend(locks: &Locks, contest: &Contest) -> Result<(), StoreError> {
    let mut recorder = Recorder::new(&contest.folder, contest.by)?;
    let mut dice = Dice(u64::from(contest.by));
    let lock = locks.lock(&contest.name)?.watchdog(contest.ttl);
    let since = Instant::now();
    while since.elapsed() < contest.length {
        recorder.begin()?;
        match lock.try_acquire().await {
            Ok(Acquisition::Acquired(guard)) => {
                hold(guard, contest, &mut recorder, &mut dice).await?;
            }
            Ok(_) => recorder.record(What::Refused)?,
            Err(error) => recorder.record(What::Failed(error.to_string()))?,
        }
        clock::sleep(Duration::from_millis(1 + u64::from(dice.roll(20)))).await;
    }
    Ok(())
}

async fn hold(
    guard: Guard,
    contest: &Contest,
    recorder: &mut Recorder,
    dice: &mut Dice,
) -> Result<(), StoreError> {
    let fence = guard.fencing_token().map_or(0, FencingToken::value);
    recorder.record(What::Acquired { fence })?;
    let mut counter = Counter::open(&contest.folder)?;
    let value = match counter.read(fence)? {
        Answer::Value(value) => value,
        Answer::Stale => return Ok(recorder.record(What::Stale)?),
    };
    if work(&guard, contest, recorder, dice).await? {
        let answer = counter.write(fence, value + 1)?;
        recorder.record(match answer {
            Answer::Value(value) => What::Wrote { value },
            Answer::Stale => What::Stale,
        })?;
    }
    recorder.record(What::Releasing)?;
    if dice.roll(4) == 0 {
        drop(guard);
        return Ok(());
    }
    let release = guard.release().await;
    Ok(recorder.record(What::Released(format!("{release:?}")))?)
}

/// Works for a random time, now and then for several times the lease. Says whether the lock was valid throughout.
async fn work(
    guard: &Guard,
    contest: &Contest,
    recorder: &mut Recorder,
    dice: &mut Dice,
) -> Result<bool, StoreError> {
    let most = match dice.roll(8) {
        0 => contest.ttl * 2,
        _ => contest.ttl / 8,
    };
    let length = most * dice.roll(100) / 100;
    let since = Instant::now();
    while since.elapsed() < length {
        let before = clock::boot_time();
        if !guard.is_valid() {
            recorder.record(What::Lost(guard.lost().await.to_string()))?;
            return Ok(false);
        }
        recorder.record_at(before, What::Valid)?;
        clock::sleep(LOOK).await;
    }
    Ok(true)
}
