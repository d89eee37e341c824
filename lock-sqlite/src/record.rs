//! One row, and what may be done with it. The same decisions as `distlock_api::MemoryBackend` takes.

use std::time::Duration;

use distlock_api::micros;
use distlock_api::{
    AcquireRequest, Attempt, Error, ErrorKind, FencingToken, ForceRelease, Held, LeaseId, LockName,
    LockRecord, LockState, Release, Result, Token,
};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, SqlStr, Sqlite};

use crate::clock::Now;
use crate::error;

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: LockName,
    pub(crate) token: Token,
    pub(crate) boot_id: String,
    pub(crate) boot_until: i64,
    pub(crate) resting: bool,
    pub(crate) fence: i64,
    pub(crate) last_tick: Option<i64>,
    pub(crate) locked_by: String,
    pub(crate) locked_at: i64,
    pub(crate) lock_until: i64,
}

impl Record {
    /// The record of a lock that is granted now.
    pub(crate) fn granted(
        request: &AcquireRequest,
        found: Option<&Self>,
        now: &Now<'_>,
    ) -> Result<Self> {
        let fence = match found {
            Some(record) => {
                let next = record.fence.checked_add(1).ok_or_else(used_up)?;
                next.max(now.wall())
            }
            None => now.wall(),
        };
        // The same token asks again: its lease does not get shorter.
        let ours = found.filter(|record| record.state(now) == LockState::Held);
        let at_least = |until: i64, stored: fn(&Self) -> i64| {
            ours.map_or(until, |record| until.max(stored(record)))
        };
        Ok(Self {
            name: request.name.clone(),
            token: request.token,
            boot_id: now.boot_id.to_owned(),
            boot_until: at_least(now.boot_after(request.lease), |record| record.boot_until),
            resting: false,
            fence,
            last_tick: request.tick.or(found.and_then(|record| record.last_tick)),
            locked_by: request.owner.clone(),
            locked_at: now.wall(),
            lock_until: at_least(now.wall_after(request.lease), |record| record.lock_until),
        })
    }

    pub(crate) fn state(&self, now: &Now<'_>) -> LockState {
        let over = self.boot_id != now.boot_id || self.boot_until <= now.boot();
        match (over, self.resting) {
            (true, _) => LockState::Free,
            (false, true) => LockState::Resting,
            (false, false) => LockState::Held,
        }
    }

    /// The answer to a request that this record keeps out; `None` where the lock may be granted.
    pub(crate) fn refusal(&self, request: &AcquireRequest, now: &Now<'_>) -> Option<Attempt> {
        let state = self.state(now);
        if state == LockState::Held && self.token == request.token {
            return None;
        }
        if let (Some(tick), Some(last)) = (request.tick, self.last_tick)
            && tick <= last
        {
            return Some(Attempt::TickDone { last });
        }
        if state == LockState::Free && self.token == request.token {
            // Its lease is over: it is not to come back from the dead.
            return Some(Attempt::Held(Held::default()));
        }
        (state != LockState::Free).then(|| {
            Attempt::Held(Held {
                by: Some(self.locked_by.clone()),
                remaining: Some(self.remaining(now)),
                resting: self.resting,
            })
        })
    }

    /// Releases the lease. The record has changed, and is to be saved, where it was held until now.
    pub(crate) fn release(
        &mut self,
        lease: &LeaseId,
        linger: Duration,
        now: &Now<'_>,
    ) -> (Release, bool) {
        let state = self.state(now);
        if self.token != lease.token || state == LockState::Free {
            let by = self.holder(now);
            return (Release::NotHeld { by }, false);
        }
        let held = state == LockState::Held;
        if held {
            self.resting = !linger.is_zero();
            self.end(linger, now);
        }
        (Release::Released, held)
    }

    /// Frees the lock whoever has it. The record has changed where the answer is `Freed`.
    pub(crate) fn force_release(
        &mut self,
        only_if: Option<FencingToken>,
        now: &Now<'_>,
    ) -> ForceRelease {
        if self.state(now) == LockState::Free {
            return ForceRelease::NotHeld;
        }
        let current = self.fencing_token();
        if only_if.is_some_and(|fence| fence != current) {
            return ForceRelease::OtherFence {
                current: Some(current),
            };
        }
        self.resting = false;
        self.end(Duration::ZERO, now);
        ForceRelease::Freed {
            was: self.locked_by.clone(),
        }
    }

    fn end(&mut self, after: Duration, now: &Now<'_>) {
        if after.is_zero() {
            (self.boot_until, self.lock_until) = (now.boot(), now.wall());
        } else {
            (self.boot_until, self.lock_until) = (now.boot_after(after), now.wall_after(after));
        }
    }

    pub(crate) fn describe(&self, now: &Now<'_>) -> LockRecord {
        // In the boot that it counts in, the end is known better than the wall clock knew it.
        let lock_until = if self.boot_id == now.boot_id {
            now.wall()
                .saturating_add(self.boot_until.saturating_sub(now.boot()))
        } else {
            self.lock_until
        };
        let mut record = LockRecord::new(self.name.clone());
        record.state = self.state(now);
        record.owner = Some(self.locked_by.clone());
        record.locked_at = micros::instant(self.locked_at);
        record.lock_until = micros::instant(lock_until);
        record.remaining = self.remaining(now);
        record.fencing_token = Some(self.fencing_token());
        record.last_tick = self.last_tick;
        record
    }

    /// Who has the lock, if anybody has.
    pub(crate) fn holder(&self, now: &Now<'_>) -> Option<String> {
        (self.state(now) != LockState::Free).then(|| self.locked_by.clone())
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.fence.unsigned_abs())
    }

    fn remaining(&self, now: &Now<'_>) -> Duration {
        if self.boot_id != now.boot_id {
            return Duration::ZERO;
        }
        let left = self.boot_until.saturating_sub(now.boot());
        Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }

    /// A statement that writes the record.
    pub(crate) fn bound_to(&self, statement: SqlStr) -> Query<'_, Sqlite, SqliteArguments> {
        sqlx::query(statement)
            .bind(self.name.as_str())
            .bind(self.token.as_bytes().as_slice())
            .bind(&self.boot_id)
            .bind(self.boot_until)
            .bind(self.resting)
            .bind(self.fence)
            .bind(self.last_tick)
            .bind(&self.locked_by)
            .bind(self.locked_at)
            .bind(self.lock_until)
    }

    pub(crate) fn from_row(row: &SqliteRow) -> Result<Self> {
        let name: String = row.try_get("name").map_err(error::of)?;
        let token: Vec<u8> = row.try_get("token").map_err(error::of)?;
        let token = <[u8; 16]>::try_from(token)
            .map_err(|_| damaged(&name, "its token is not 16 bytes long"))?;
        Ok(Self {
            name: LockName::new(&name).map_err(|_| damaged(&name, "this is no lock name"))?,
            token: Token::from_bytes(token),
            boot_id: row.try_get("boot_id").map_err(error::of)?,
            boot_until: row.try_get("boot_until").map_err(error::of)?,
            resting: row.try_get("resting").map_err(error::of)?,
            fence: row.try_get("fence").map_err(error::of)?,
            last_tick: row.try_get("last_tick").map_err(error::of)?,
            locked_by: row.try_get("locked_by").map_err(error::of)?,
            locked_at: row.try_get("locked_at").map_err(error::of)?,
            lock_until: row.try_get("lock_until").map_err(error::of)?,
        })
    }
}

fn used_up() -> Error {
    Error::new(
        ErrorKind::Config,
        "the fencing counter of this lock has been set to its end by hand: set it to a smaller number",
    )
}

fn damaged(name: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "the record \"{}\" was changed by hand: {what}; delete it",
            name.escape_debug()
        ),
    )
}
