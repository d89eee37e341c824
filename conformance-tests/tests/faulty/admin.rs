use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use distlock_api::{
    ErrorKind, FencingToken, Finding, Findings, ForceRelease, LockAdmin, LockName, LockRecord,
    LockState, Result,
};

use super::file::{Record, entries};
use super::{Fault, Faulty, failed};

impl Faulty {
    fn describe(&self, record: &Record, now: u64) -> LockRecord {
        // Counted from the machine's start: nobody reads it.
        let instant = |at: u64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(at));
        let mut shown = LockRecord::new(record.name.clone());
        shown.state = match record.state(now) {
            LockState::Resting if self.is(Fault::RestIsShownAsHeld) => LockState::Held,
            LockState::Free if self.is(Fault::ExpiredIsHeld) && !record.resting => LockState::Held,
            state => state,
        };
        shown.owner = Some(record.owner.clone());
        shown.locked_at = instant(record.locked_at);
        shown.lock_until = instant(record.until);
        shown.remaining = Duration::from_micros(record.until.saturating_sub(now));
        shown.fencing_token = Some(FencingToken::new(record.fence));
        shown.last_tick = record.last_tick.filter(|_| !self.is(Fault::TickNotShown));
        if self.is(Fault::NameEscaped) {
            let escaped = record.name.as_str().escape_default().to_string();
            shown.name = LockName::new(escaped).unwrap();
        }
        shown
    }
}

#[async_trait]
impl LockAdmin for Faulty {
    async fn check(&self) -> Result<Findings> {
        let fault = Finding::fault(ErrorKind::Config, "something is wrong", "mend it");
        let mute = Finding::warning("something is wrong", "");
        let found = [
            self.is(Fault::CheckComplains).then_some(fault),
            self.is(Fault::CheckSaysNoFix).then_some(mute),
        ];
        Ok(found.into_iter().flatten().collect())
    }

    async fn migrate(&self) -> Result<()> {
        match self.is(Fault::MigrationFrees) {
            true => self.empty(),
            false => Ok(()),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockRecord>> {
        let record = self.entry(name)?.record;
        if record.is_none() && self.is(Fault::UnknownIsHeld) {
            let mut shown = LockRecord::new(name.clone());
            shown.state = LockState::Held;
            return Ok(Some(shown));
        }
        Ok(record.map(|record| self.describe(&record, self.now())))
    }

    async fn list(&self) -> Result<Vec<LockRecord>> {
        let entries = entries(&self.folder).map_err(failed)?;
        let records = entries.iter().filter_map(|entry| entry.record.as_ref());
        let mut list: Vec<_> = records
            .map(|record| self.describe(record, self.now()))
            .collect();
        list.sort_by_key(|record| match self.is(Fault::ListOutOfOrder) {
            true => record.name.as_str().to_lowercase(),
            false => record.name.to_string(),
        });
        Ok(list)
    }

    async fn force_release(
        &self,
        name: &LockName,
        only_if: Option<FencingToken>,
    ) -> Result<ForceRelease> {
        let mut entry = self.entry(name)?;
        let now = self.now();
        let known = entry.record.as_mut();
        let Some(record) = known
            .filter(|record| record.state(now) != LockState::Free || self.is(Fault::ForceOfFree))
        else {
            return Ok(ForceRelease::NotHeld);
        };
        let current = FencingToken::new(record.fence);
        if only_if.is_some_and(|fence| fence != current) && !self.is(Fault::ForceForAnyFence) {
            return Ok(ForceRelease::OtherFence {
                current: Some(current),
            });
        }
        let was = record.owner.clone();
        if !(record.resting && self.is(Fault::RestOutlivesForce)) {
            record.until = now;
        }
        record.client = 0;
        entry.save().map_err(failed)?;
        Ok(ForceRelease::Freed { was })
    }

    async fn purge(&self, free_for: Duration) -> Result<u64> {
        let now = self.now();
        let free_for = u64::try_from(free_for.as_micros()).unwrap();
        let mut purged = 0;
        for mut entry in entries(&self.folder).map_err(failed)? {
            let stale = entry.record.as_ref().is_some_and(|record| {
                let until = match self.is(Fault::PurgesHeld) {
                    true => record.locked_at,
                    false => record.until,
                };
                until + free_for <= now && !self.is(Fault::PurgesNothing)
            });
            if stale {
                entry.record = None;
                entry.save().map_err(failed)?;
                purged += 1;
            }
        }
        Ok(purged)
    }
}
