//! A store in a folder, for the processes of one machine: right, or wrong in one way.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, Error, ErrorKind, LeaseId, LockBackend, LockName,
    LockState, Release, Renewal, Result, Scope, clock,
};

pub(crate) use faults::{ENGINE_ONLY, FAULTS, Fault, LINKED_ONLY};
use file::Entry;

mod acquire;
mod admin;
mod faults;
mod file;

/// One client of the store in a folder.
#[derive(Debug)]
pub(crate) struct Faulty {
    folder: PathBuf,
    fault: Fault,
    client: u64,
    /// In the middle of a call: a wire on which an answer is still to come.
    busy: AtomicBool,
    calls: AtomicU64,
}

impl Faulty {
    pub(crate) fn open(folder: &Path, fault: Fault) -> Result<Self> {
        let mut folder = folder.to_owned();
        if fault == Fault::LocksOfOneProcess {
            folder.push(std::process::id().to_string());
        }
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let [a, b, c, d, ..] = *distlock_api::Token::random().as_bytes();
        Ok(Self {
            folder,
            fault,
            client: u64::from_be_bytes([a, b, c, d, 0, 0, 0, 1]),
            busy: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        })
    }

    /// What an operator's DELETE would do.
    pub(crate) fn forget(&self, name: &LockName) -> Result<()> {
        let mut entry = self.entry(name)?;
        entry.record = None;
        entry.save().map_err(failed)
    }

    /// Forgets all locks.
    pub(crate) fn empty(&self) -> Result<()> {
        for mut entry in file::entries(&self.folder).map_err(failed)? {
            entry.record = None;
            entry.save().map_err(failed)?;
        }
        Ok(())
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The store's clock, in microseconds.
    fn now(&self) -> u64 {
        if self.is(Fault::ClockOfTheClient) {
            return wall();
        }
        u64::try_from(clock::boot_time().as_micros()).unwrap()
    }

    fn entry(&self, name: &LockName) -> Result<Entry> {
        let key = match name.as_str() {
            name if self.is(Fault::CaseFolded) => name.to_lowercase(),
            name if self.is(Fault::NameCut) => name.chars().take(64).collect(),
            name => name.to_owned(),
        };
        Entry::open(&self.folder, &key).map_err(failed)
    }

    /// On the way to the store and back: where a future may be dropped.
    async fn way(&self, there: bool) -> Result<()> {
        if self.busy.swap(there, Ordering::SeqCst) && there && self.is(Fault::CutOffByADrop) {
            return Err(failed("an answer to an earlier question"));
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    fn renew_one(&self, lease: &LeaseId, ttl: Duration) -> Result<Renewal> {
        let mut entry = self.entry(&lease.name)?;
        let now = self.now();
        let until = now.saturating_add(u64::try_from(ttl.as_micros()).unwrap());
        if entry.record.is_none() && self.is(Fault::RenewalCreates) {
            let mut request = AcquireRequest::new(lease.name.clone(), "renewed", ttl);
            request.token = lease.token;
            entry.record = Some(self.grant(&request, None, now));
            entry.save().map_err(failed)?;
            return Ok(Renewal::Renewed);
        }
        let Some(record) = entry.record.as_mut() else {
            return Ok(Renewal::Lost { to: None });
        };
        let state = record.state(now);
        let alive = match state {
            LockState::Held => true,
            LockState::Resting => self.is(Fault::RestIsRenewed),
            LockState::Free => self.is(Fault::RenewalRevives),
        };
        let owned = record.token == lease.token || self.is(Fault::RenewalByAnybody);
        if !alive || !owned {
            let to = (state != LockState::Free).then(|| record.owner.clone());
            if self.is(Fault::RenewalTouchesRecord) {
                record.locked_at = now;
                entry.save().map_err(failed)?;
            }
            return Ok(Renewal::Lost { to });
        }
        record.until = match self.fault {
            Fault::RenewalShortens => until,
            Fault::RenewalWithoutEffect => record.until,
            _ => record.until.max(until),
        };
        entry.save().map_err(failed)?;
        Ok(Renewal::Renewed)
    }

    fn release_one(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let mut entry = self.entry(&lease.name)?;
        let now = self.now();
        let Some(record) = entry.record.as_mut() else {
            return Ok(Release::NotHeld { by: None });
        };
        let state = record.state(now);
        let owned = record.token == lease.token
            || self.is(Fault::ReleaseByAnybody)
            || (self.is(Fault::ReleaseByTheClient) && record.client == self.client);
        if !owned || state == LockState::Free {
            if self.is(Fault::ReleaseTwice) && record.token == lease.token {
                return Ok(Release::Released);
            }
            let told = state != LockState::Free && !self.is(Fault::ReleaseUnsaid);
            return Ok(Release::NotHeld {
                by: told.then(|| record.owner.clone()),
            });
        }
        let linger = match self.fault {
            Fault::LingerIgnored => 0,
            _ => u64::try_from(linger.as_micros()).unwrap(),
        };
        let again =
            state == LockState::Resting && !(self.is(Fault::RestIsReleasedByZero) && linger == 0);
        if !again && !self.is(Fault::ReleaseWithoutEffect) {
            record.until = now + linger;
            record.resting = linger > 0;
        }
        if self.is(Fault::RecordsDeleted) && linger == 0 && record.last_tick.is_none() {
            entry.record = None;
        }
        entry.save().map_err(failed)?;
        Ok(Release::Released)
    }
}

#[async_trait]
impl LockBackend for Faulty {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("faulty");
        capabilities.scope = Scope::Machine;
        if self.is(Fault::ClaimsChange) {
            let calls = self.calls.load(Ordering::SeqCst);
            capabilities.operation_limit += Duration::from_millis(calls);
        }
        capabilities
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.way(true).await?;
        let attempt = self.decide(request)?;
        self.way(false).await?;
        Ok(attempt)
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        if let Err(error) = self.way(true).await {
            return vec![Err(error)];
        }
        let first = leases.first().map(|(_, ttl)| *ttl);
        let one_ttl = first.filter(|_| self.is(Fault::FirstTtlForAll));
        let renewals = leases.iter();
        let mut answers: Vec<_> = renewals
            .map(|(lease, ttl)| self.renew_one(lease, one_ttl.unwrap_or(*ttl)))
            .collect();
        match self.fault {
            Fault::AnswersReversed => answers.reverse(),
            Fault::RenewalOfNothing if answers.is_empty() => answers.push(Ok(Renewal::Renewed)),
            _ => {}
        }
        let _ = self.way(false).await;
        answers
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        self.way(true).await?;
        let release = self.release_one(lease, linger)?;
        self.way(false).await?;
        Ok(release)
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        if !self.is(Fault::DiesWithItsClient) {
            return;
        }
        for mut entry in file::entries(&self.folder).unwrap() {
            if let Some(record) = entry.record.as_mut().filter(|r| r.client == self.client) {
                record.until = 0;
                entry.save().unwrap();
            }
        }
    }
}

/// Microseconds of the wall clock.
fn wall() -> u64 {
    let wall = clock::wall().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(wall.unwrap().as_micros()).unwrap()
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unexpected, error.to_string())
}
