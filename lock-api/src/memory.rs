use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::clock::{self, Instant};
use crate::{
    AcquireRequest, Attempt, Capabilities, FencingToken, Findings, ForceRelease, Held, LeaseId,
    LockAdmin, LockBackend, LockName, LockRecord, LockState, Release, Renewal, Result, Scope,
};

/// Locks in the memory of one process: for tests, for trying things out, and as the reference of what a backend does.
///
/// Clones share their locks. Time is the local clock, so that tests on tokio's paused clock need not wait.
#[derive(Clone)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

struct Shared {
    started: Instant,
    started_wall: SystemTime,
    records: Mutex<BTreeMap<LockName, Record>>,
}

struct Record {
    until: Duration,
    locked_at: Duration,
    owner: String,
    token: crate::Token,
    fence: u64,
    last_tick: Option<i64>,
    resting: bool,
}

impl MemoryBackend {
    /// An empty store.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                started: Instant::now(),
                started_wall: clock::wall(),
                records: Mutex::default(),
            }),
        }
    }

    /// The records, and the store's time since its start: every decision is one look at both.
    fn open(&self) -> (MutexGuard<'_, BTreeMap<LockName, Record>>, Duration) {
        let records = match self.shared.records.lock() {
            Ok(records) => records,
            Err(poisoned) => poisoned.into_inner(),
        };
        (records, self.shared.started.elapsed())
    }

    fn wall(&self, at: Duration) -> SystemTime {
        self.shared
            .started_wall
            .checked_add(at)
            .unwrap_or(self.shared.started_wall)
    }

    fn micros(&self, at: Duration) -> u64 {
        let since_epoch = self.wall(at).duration_since(SystemTime::UNIX_EPOCH);
        since_epoch.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }

    fn describe(&self, name: &LockName, record: &Record, now: Duration) -> LockRecord {
        LockRecord {
            name: name.clone(),
            state: record.state(now),
            owner: Some(record.owner.clone()),
            locked_at: Some(self.wall(record.locked_at)),
            lock_until: Some(self.wall(record.until)),
            remaining: record.until.saturating_sub(now),
            fencing_token: Some(FencingToken::new(record.fence)),
            last_tick: record.last_tick,
        }
    }
}

impl Record {
    fn state(&self, now: Duration) -> LockState {
        match (self.until > now, self.resting) {
            (false, _) => LockState::Free,
            (true, true) => LockState::Resting,
            (true, false) => LockState::Held,
        }
    }

    fn owner_unless_free(&self, now: Duration) -> Option<String> {
        (self.state(now) != LockState::Free).then(|| self.owner.clone())
    }
}

#[async_trait]
impl LockBackend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            scope: Scope::Process,
            granularity: Duration::from_micros(1),
            ..Capabilities::new("memory")
        }
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let (mut records, now) = self.open();
        let known = records.get(&request.name);
        let state = known.map_or(LockState::Free, |record| record.state(now));
        let ours =
            known.is_some_and(|record| state == LockState::Held && record.token == request.token);
        if let Some(record) = known.filter(|_| !ours) {
            if let (Some(tick), Some(last)) = (request.tick, record.last_tick)
                && tick <= last
            {
                return Ok(Attempt::TickDone { last });
            }
            if state == LockState::Free && record.token == request.token {
                // Its lease is over: a request that was under way for long must not take the lock for nobody.
                return Ok(Attempt::Held(Held::default()));
            }
            if state != LockState::Free {
                return Ok(Attempt::Held(Held {
                    by: Some(record.owner.clone()),
                    remaining: Some(record.until.saturating_sub(now)),
                    resting: record.resting,
                }));
            }
        }
        let fence = self
            .micros(now)
            .max(known.map_or(0, |record| record.fence + 1));
        let record = Record {
            until: now
                .saturating_add(request.lease)
                .max(known.map_or(Duration::ZERO, |record| record.until)),
            locked_at: now,
            owner: request.owner.clone(),
            token: request.token,
            fence,
            last_tick: request.tick.or(known.and_then(|record| record.last_tick)),
            resting: false,
        };
        records.insert(request.name.clone(), record);
        Ok(Attempt::Acquired {
            fencing_token: Some(FencingToken::new(fence)),
        })
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        let (mut records, now) = self.open();
        let renew_one = |(lease, ttl): &(LeaseId, Duration)| {
            let Some(record) = records.get_mut(&lease.name) else {
                return Ok(Renewal::Lost { to: None });
            };
            if record.token != lease.token || record.state(now) != LockState::Held {
                return Ok(Renewal::Lost {
                    to: record.owner_unless_free(now),
                });
            }
            record.until = record.until.max(now.saturating_add(*ttl));
            Ok(Renewal::Renewed)
        };
        leases.iter().map(renew_one).collect()
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let (mut records, now) = self.open();
        let Some(record) = records.get_mut(&lease.name) else {
            return Ok(Release::NotHeld { by: None });
        };
        let state = record.state(now);
        if record.token != lease.token || state == LockState::Free {
            return Ok(Release::NotHeld {
                by: record.owner_unless_free(now),
            });
        }
        if state == LockState::Held {
            record.until = now.saturating_add(linger);
            record.resting = !linger.is_zero();
        }
        Ok(Release::Released)
    }
}

#[async_trait]
impl LockAdmin for MemoryBackend {
    async fn check(&self) -> Result<Findings> {
        Ok(Findings::default())
    }

    async fn migrate(&self) -> Result<()> {
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockRecord>> {
        let (records, now) = self.open();
        let record = records.get(name);
        Ok(record.map(|record| self.describe(name, record, now)))
    }

    async fn list(&self) -> Result<Vec<LockRecord>> {
        let (records, now) = self.open();
        let all = records.iter();
        Ok(all
            .map(|(name, record)| self.describe(name, record, now))
            .collect())
    }

    async fn force_release(
        &self,
        name: &LockName,
        only_if: Option<FencingToken>,
    ) -> Result<ForceRelease> {
        let (mut records, now) = self.open();
        let Some(record) = records
            .get_mut(name)
            .filter(|record| record.state(now) != LockState::Free)
        else {
            return Ok(ForceRelease::NotHeld);
        };
        let current = FencingToken::new(record.fence);
        if only_if.is_some_and(|fence| fence != current) {
            return Ok(ForceRelease::OtherFence {
                current: Some(current),
            });
        }
        record.until = now;
        record.resting = false;
        Ok(ForceRelease::Freed {
            was: record.owner.clone(),
        })
    }

    async fn purge(&self, free_for: Duration) -> Result<u64> {
        let (mut records, now) = self.open();
        let before = records.len();
        records.retain(|_, record| {
            let stale = now
                .checked_sub(record.until)
                .is_some_and(|free| free >= free_for);
            !stale || record.fence >= self.micros(now)
        });
        Ok((before - records.len()) as u64)
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = self.open().0.len();
        f.debug_struct("MemoryBackend")
            .field("locks", &locks)
            .finish()
    }
}
