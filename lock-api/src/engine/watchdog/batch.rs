use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Keep, Key, LENGTHS, Watch, Watchdog};
use crate::clock::{self, Instant};
use crate::engine::{Deadline, Engine};
use crate::options::SHORTEST_TRY;
use crate::{Error, ErrorKind, Loss, Operation, Renewal, Result};

/// How many leases go into one round trip: more would keep a server's thread, or rows, for long.
const MOST: usize = 256;

/// Into how many batches all that is due is split when nothing gets an answer.
const MOST_BATCHES: usize = 64;

/// A batch on its way. If its task ends without an answer, by a panic of the backend, its leases are due again.
pub(super) struct Batch {
    watchdog: Arc<Watchdog>,
    /// The binary logarithm of the leases' lengths in milliseconds.
    length: usize,
    leases: Vec<(Key, Watch)>,
}

impl Batch {
    /// What is due in batches, the most urgent first. Leases of different lengths do not go together: the shortest would set
    /// the limit for all.
    pub(super) fn of(watchdog: &Arc<Watchdog>, due: Vec<(Key, Watch)>) -> Vec<Self> {
        let mut alike = BTreeMap::<_, Vec<_>>::new();
        for (key, watch) in due {
            let length = watch.ttl.as_millis().checked_ilog2().unwrap_or(0) as usize;
            let group = alike.entry((watch.splits, length)).or_default();
            group.push((key, watch));
        }
        let mut batches = Vec::new();
        for ((splits, length), mut group) in alike {
            let size = (MOST >> (2 * splits).min(8)).max(group.len() / MOST_BATCHES);
            while !group.is_empty() {
                let rest = group.split_off(size.clamp(1, MOST).min(group.len()));
                batches.push(Self {
                    watchdog: Arc::clone(watchdog),
                    length: length.min(LENGTHS - 1),
                    leases: std::mem::replace(&mut group, rest),
                });
            }
        }
        batches.sort_by_key(Self::left);
        batches
    }

    /// One round trip for all of them.
    pub(super) async fn renew(mut self, engine: Arc<Engine>) {
        let watchdog = Arc::clone(&self.watchdog);
        let Ok(_place) = watchdog.under_way[self.length].acquire().await else {
            return;
        };
        // Some may have been released while this waited for its place.
        self.leases.retain(|lease| watchdog.is_wanted(lease));
        if self.leases.is_empty() {
            return;
        }
        let leases = self.leases.iter();
        let asked: Vec<_> = leases
            .map(|(_, watch)| (watch.lease.clone(), watch.asks_for()))
            .collect();
        let t0 = Instant::now();
        let limit = self.try_limit(&engine);
        let answers = clock::timeout(limit, engine.backend.renew(&asked)).await;
        let mut answers = answers.unwrap_or_default();
        // None at all, or from a backend that answers fewer than it was asked.
        answers.resize_with(asked.len(), || Err(timed_out(limit)));
        let hangs = answers.iter().all(is_timeout);
        let leases = std::mem::take(&mut self.leases);
        for (((key, _), (_, ttl)), answer) in leases.iter().zip(asked).zip(answers) {
            let asked = Asked { t0, ttl, hangs };
            watchdog.settle(key, |watch| watch.learn(&watchdog, &engine, answer, &asked));
        }
    }

    /// What is left of the shortest.
    fn left(&self) -> Duration {
        let left = self.leases.iter().map(|(_, watch)| watch.hold.remaining());
        left.min().unwrap_or_default()
    }

    /// A part of what is left, so that there is time for other tries, and enough for a healthy store to answer. The first
    /// finds out whether the connection lives; those after it may have to open another.
    fn try_limit(&self, engine: &Engine) -> Duration {
        let failed = self.leases.iter().any(|(_, watch)| watch.failed);
        (self.left() / if failed { 2 } else { 4 })
            .max(SHORTEST_TRY)
            .min(engine.capabilities.operation_limit)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let now = self.watchdog.now();
        for (key, watch) in self.leases.drain(..) {
            let again = now + watch.retry_pause();
            self.watchdog.settle(&key, |_| Keep::Until(again));
        }
    }
}

/// A renewal as it was asked for.
struct Asked {
    t0: Instant,
    ttl: Duration,
    /// No lease of the batch got an answer.
    hangs: bool,
}

impl Watch {
    fn asks_for(&self) -> Duration {
        let bound = self.bound.map_or(Duration::MAX, |bound| bound.left());
        self.ttl.min(bound).max(Duration::from_millis(1))
    }

    /// Between a try that failed and the next.
    fn retry_pause(&self) -> Duration {
        (self.hold.remaining() / 20).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    fn learn(
        &mut self,
        watchdog: &Watchdog,
        engine: &Engine,
        answer: Result<Renewal>,
        asked: &Asked,
    ) -> Keep {
        match answer {
            Ok(Renewal::Renewed) => {
                let deadline = Deadline::new(asked.t0, asked.ttl, engine.capabilities.granularity);
                // It reaches the bound, so that there is nothing to renew any more.
                let is_last = asked.ttl < self.ttl;
                if !self.hold.extend(deadline, is_last) || is_last {
                    return Keep::No;
                }
                self.failed = false;
                self.splits = 0;
                Keep::Until(watchdog.due_after(asked.t0, self.ttl))
            }
            Ok(Renewal::Lost { to: Some(by) }) => self.lost(Loss::Taken { by }),
            Ok(Renewal::Lost { to: None }) => self.lost(Loss::Gone),
            Err(error) => {
                let error = error
                    .during(engine.capabilities.backend, Operation::Renew)
                    .on(&self.lease.name);
                self.failed = true;
                // Perhaps one of the batch hangs on a row, and the others with it.
                self.splits += u32::from(asked.hangs);
                self.hold.could_not_renew(error);
                match self.hold.is_valid() {
                    true => Keep::Until(watchdog.now() + self.retry_pause()),
                    false => Keep::No,
                }
            }
        }
    }

    fn lost(&self, loss: Loss) -> Keep {
        self.hold.lose(loss);
        Keep::No
    }
}

fn is_timeout(answer: &Result<Renewal>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Timeout)
}

fn timed_out(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Timeout,
        format!("no answer within {limit:?}: check the network and the store"),
    )
}
