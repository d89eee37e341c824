//! How a lock is granted, or not.

use std::time::Duration;

use distlock_api::{AcquireRequest, Attempt, FencingToken, Held, LockName, LockState, Result};

use super::file::Record;
use super::{Fault, Faulty, failed, wall};

impl Faulty {
    fn fence(&self, before: Option<&Record>, ours: bool, now: u64) -> u64 {
        let stored = before.map_or(0, |record| record.fence);
        let expired =
            before.is_some_and(|record| record.until < now && record.until != record.locked_at);
        let forced = before.is_some_and(|record| record.client == 0);
        match self.fault {
            Fault::FenceRepeats => wall() / 60_000_000,
            Fault::FenceInSeconds => wall() / 1_000_000,
            Fault::FenceWithoutTime => stored + 1,
            Fault::FenceOf64Bits => (stored + 1).max(u64::MAX / 2 + wall()),
            Fault::FenceStartsAgainAfterExpiry if expired => stored / 2,
            Fault::FenceStartsAgainAfterForce if forced => stored / 2,
            Fault::FenceFallsForSameToken if ours => stored - 1,
            _ => (stored + 1).max(wall()),
        }
    }

    /// Whether a record keeps a request out, and how.
    fn refusal(&self, request: &AcquireRequest, record: &Record, now: u64) -> Option<Attempt> {
        let state = record.state(now);
        let free = state == LockState::Free || self.is(Fault::NoExclusion);
        let mine = self.is(Fault::ClientSharesItsLock) && record.client == self.client;
        let held = (!free && !mine).then(|| {
            Attempt::Held(Held {
                by: Some(record.owner.clone()),
                remaining: Some(Duration::from_micros(record.until.saturating_sub(now))),
                resting: record.resting && !self.is(Fault::RestIsSaidToBeHeld),
            })
        });
        if self.is(Fault::HeldBeforeDone) && held.is_some() {
            return held;
        }
        let tick = request.tick.zip(record.last_tick);
        let done = tick.filter(|(asked, last)| match self.fault {
            Fault::TickIgnored => false,
            Fault::TickEqualGranted => asked < last,
            Fault::TickAsFloat => *asked as f64 <= *last as f64,
            Fault::TickExpires if !record.resting && record.until > record.locked_at + 1000 => {
                asked <= last && record.until > now
            }
            _ => asked <= last,
        });
        let used_up = free && record.token == request.token && !self.is(Fault::UsedUpTokenGranted);
        done.map(|(_, last)| Attempt::TickDone { last })
            .or(held)
            .or_else(|| used_up.then(|| Attempt::Held(Held::default())))
    }

    fn lease(&self, request: &AcquireRequest) -> u64 {
        let micros = u64::try_from(request.lease.as_nanos().div_ceil(1000)).unwrap();
        match self.fault {
            Fault::NeverExpires => u64::MAX / 2,
            Fault::ExpiresEarly => micros / 2,
            Fault::SameLeaseForAll => 700_000,
            Fault::LeaseOf31Bits => micros.min((1 << 31) * 1000),
            Fault::LeaseRoundedDown => micros / 50_000 * 50_000,
            _ => micros,
        }
    }

    pub(super) fn grant(
        &self,
        request: &AcquireRequest,
        before: Option<&Record>,
        now: u64,
    ) -> Record {
        let ours = before
            .filter(|record| record.token == request.token && record.state(now) == LockState::Held);
        let until = now.saturating_add(self.lease(request));
        let tick_kept = before.and_then(|record| record.last_tick);
        let owner = match request.owner.char_indices().nth(20) {
            Some((end, _)) if self.is(Fault::OwnerCut) => request.owner[..end].to_owned(),
            _ => request.owner.clone(),
        };
        Record {
            name: request.name.clone(),
            until: match ours {
                Some(record) if !self.is(Fault::SameTokenShortens) => until.max(record.until),
                _ => until,
            },
            locked_at: now,
            owner,
            token: request.token,
            fence: self.fence(before, ours.is_some(), now),
            last_tick: match self.fault {
                Fault::TickLostWithoutTick => request.tick,
                _ => request.tick.or(tick_kept),
            },
            resting: false,
            client: self.client,
        }
    }

    pub(super) fn decide(&self, request: &AcquireRequest) -> Result<Attempt> {
        let mut entry = self.entry(&request.name)?;
        let now = self.now();
        let before = entry.record.clone();
        let ours = before.as_ref().is_some_and(|record| {
            record.token == request.token
                && record.state(now) == LockState::Held
                && !self.is(Fault::SameTokenRefused)
                && !(self.is(Fault::TickRefusesItsToken) && request.tick.is_some())
        });
        let refusal = before.as_ref().filter(|_| !ours);
        if let Some(refusal) = refusal.and_then(|record| self.refusal(request, record, now)) {
            if self.is(Fault::HeldAsError) {
                return Err(failed("duplicate key"));
            }
            if self.is(Fault::TickUsedUpWhenRefused) && request.tick.is_some() {
                entry.record.as_mut().unwrap().last_tick = request.tick;
                entry.save().map_err(failed)?;
            }
            return Ok(refusal);
        }
        let expired = before
            .as_ref()
            .is_some_and(|record| !record.resting && record.until > record.locked_at + 10_000);
        if self.is(Fault::LooksThenTakes) || (self.is(Fault::LooksThenTakesExpired) && expired) {
            entry.lend().map_err(failed)?;
        }
        if self.is(Fault::RecordPerGrant) {
            let name = LockName::new(format!("{}#{}", request.name, wall()))?;
            let mut more = self.entry(&name)?;
            more.record = Some(self.grant(request, None, now));
            more.record.as_mut().unwrap().name = name;
            more.record.as_mut().unwrap().until = now;
            more.save().map_err(failed)?;
        }
        let record = self.grant(request, before.as_ref(), now);
        let fence = FencingToken::new(record.fence);
        entry.record = Some(record);
        entry.save().map_err(failed)?;
        Ok(Attempt::Acquired {
            fencing_token: (!self.is(Fault::FencingNotGiven)).then_some(fence),
        })
    }
}
