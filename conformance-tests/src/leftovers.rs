//! What acquisitions leave behind: for a backend's own tests, which look at what is left at the server.

use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{Lock, Locks};
use tokio::runtime::Handle;

use crate::drops::{acquisitions_to_drop, drop_at_random};
use crate::store::StoreError;

/// Longer than any test lasts.
const LEASE: Duration = Duration::from_secs(600);

/// How long all that is pending may take to come to an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Drops so many acquisitions of locks called `job-…` at random, or as many as `DISTLOCK_TEST_DROPS` says, and waits until
/// nothing is pending: long before their leases would be over.
///
/// # Errors
///
/// Those of [`drop_at_random`] and of [`Locks::shutdown`]; and where next to none was dropped in flight, so that nothing is
/// shown.
pub async fn leave_nothing_pending(locks: &Locks, acquisitions: u32) -> Result<(), StoreError> {
    let count = acquisitions_to_drop(acquisitions);
    let began = Instant::now();
    let dropped = drop_at_random(locks, "job", count, |lock: Lock| lock.at_most_for(LEASE)).await?;
    let ended = Instant::now();
    locks.shutdown(PATIENCE).await?;
    println!(
        "{count} acquisitions in {:.1?}, {} dropped in flight; {:.1?} later nothing was pending",
        ended.since(&began),
        dropped.in_flight,
        ended.elapsed()
    );
    match dropped.in_flight > count / 100 {
        true => Ok(()),
        false => Err("next to none was dropped in flight".into()),
    }
}

/// What a backend may leave behind in the process: open files, and tasks of the runtime.
///
/// Both are counted for all that runs there, so that tests which look at them take turns.
#[derive(Clone, Copy, Debug)]
pub struct InProcess {
    files: usize,
    tasks: usize,
}

impl InProcess {
    /// What there is now.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn now() -> Self {
        Self {
            files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
            tasks: Handle::current().metrics().num_alive_tasks(),
        }
    }

    /// Waits until there is no more than that again.
    ///
    /// # Errors
    ///
    /// Where that does not come.
    pub async fn again(self) -> Result<(), StoreError> {
        self.within(PATIENCE).await
    }

    async fn within(self, patience: Duration) -> Result<(), StoreError> {
        let since = Instant::now();
        loop {
            let now = Self::now();
            if now.files <= self.files && now.tasks <= self.tasks {
                return Ok(());
            }
            if since.elapsed() > patience {
                return Err(format!("{self:?} before, and now {now:?}").into());
            }
            clock::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_stays_is_found_and_one_that_ends_is_waited_for() {
        let before = InProcess::now();
        let short = Duration::from_millis(50);
        let stays = tokio::spawn(std::future::pending::<()>());
        assert!(before.within(short).await.is_err());
        stays.abort();
        let ends = tokio::spawn(clock::sleep(short));
        before.again().await.unwrap();
        assert!(ends.is_finished());
    }
}
