use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use distlock_api::exchange::Answered;
use distlock_api::{
    Error, FencingToken, Findings, ForceRelease, LockAdmin, LockName, LockRecord, LockState,
    Operation, Result,
};
use redis::Value;

use crate::backend::{NAME, RedisBackend, foreign_tick};
use crate::error;
use crate::statements::{Call, FORCE_RELEASE, INSPECT, LIST};
use crate::value::{self, Holder};

/// How many locks are looked at in one round trip.
const PAGE: usize = 500;

/// What a lock is freed from that this library did not take.
const UNKNOWN_OWNER: &str = "unknown";

#[async_trait]
impl LockAdmin for RedisBackend {
    /// Runs each command that locks need on a key that is no lock's, `lock:{}`, deletes it, and reads INFO.
    ///
    /// Keys that hold something else than locks are not looked for, which would take all keys of the database: the lock
    /// call that meets one names it.
    async fn check(&self) -> Result<Findings> {
        let findings = self.look().await;
        findings.map_err(|e| e.during(NAME, Operation::Check))
    }

    /// Nothing is to be made in Redis; it only looks for what a [check](Self::check) calls a fault.
    async fn migrate(&self) -> Result<()> {
        let usable = self.look().await.and_then(Findings::usable);
        usable.map_err(|e| e.during(NAME, Operation::Migrate))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockRecord>> {
        let inspected = self.ask(self.call(name, &INSPECT), |value| record(name, value));
        let inspected = inspected.await.map(|answered| answered.answer);
        inspected.map_err(|e| e.during(NAME, Operation::Inspect).on(name))
    }

    /// Looks through all keys of the database by SCAN; each record is read at a moment of its own.
    async fn list(&self) -> Result<Vec<LockRecord>> {
        let list = async {
            let names = Vec::from_iter(self.names().await?);
            let mut records = Vec::with_capacity(names.len());
            for page in names.chunks(PAGE) {
                let calls: Vec<Call> = page.iter().map(|name| self.call(name, &INSPECT)).collect();
                for (name, value) in page.iter().zip(self.ask_all(&calls).await?) {
                    records.extend(record(name, value?)?);
                }
            }
            Ok(records)
        };
        list.await
            .map_err(|e: Error| e.during(NAME, Operation::List))
    }

    async fn force_release(
        &self,
        name: &LockName,
        only_if: Option<FencingToken>,
    ) -> Result<ForceRelease> {
        let mut call = self.call(name, &FORCE_RELEASE);
        if let Some(fence) = only_if {
            call = call.arg(fence.to_string());
        }
        let answered = self.ask(call, forced).await;
        let outcome = answered.and_then(Answered::<ForceRelease>::decided);
        outcome.map_err(|e| e.during(NAME, Operation::ForceRelease).on(name))
    }

    /// Deletes nothing: keys go by themselves. A lock goes at the end of its lease, its fencing counter two days later
    /// at the earliest, its last tick 31 days after the lease of its grant.
    async fn purge(&self, _free_for: Duration) -> Result<u64> {
        Ok(0)
    }
}

impl RedisBackend {
    /// The names of all locks of which there is any key.
    async fn names(&self) -> Result<BTreeSet<LockName>> {
        let mut names = BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let call = Call::without_key(&LIST)
                .arg(cursor)
                .arg(self.prefix.pattern());
            let (next, keys) = self.ask(call, page).await?.answer;
            names.extend(keys.iter().filter_map(|key| self.prefix.name(key)));
            if next == b"0" {
                return Ok(names);
            }
            cursor = next;
        }
    }
}

/// The next cursor and the keys.
fn page(value: Value) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    redis::from_redis_value(value).map_err(|e| error::no_answer(&e.into()))
}

fn forced(value: Value) -> Result<ForceRelease> {
    match value {
        Value::Nil => Ok(ForceRelease::NotHeld),
        Value::BulkString(was) => Ok(ForceRelease::Freed {
            was: Holder::parse(&was)
                .into_owner()
                .unwrap_or_else(|| UNKNOWN_OWNER.to_owned()),
        }),
        Value::Array(other) => match other.as_slice() {
            [fence] => Ok(ForceRelease::OtherFence {
                current: number(fence).map(FencingToken::new),
            }),
            _ => Err(error::unexpected(&Value::Array(other))),
        },
        other => Err(error::unexpected(&other)),
    }
}

/// The record of a lock from what `inspect.lua` gives; `None` where there is no key.
fn record(name: &LockName, value: Value) -> Result<Option<LockRecord>> {
    let Value::Array(parts) = &value else {
        return Err(error::unexpected(&value));
    };
    let [holder, remaining, ends, fence, tick, seconds, micros] = parts.as_slice() else {
        return Err(error::unexpected(&value));
    };
    let (Some(seconds), Some(micros)) = (number(seconds), number(micros)) else {
        return Err(error::unexpected(&value));
    };
    if [holder, fence, tick]
        .into_iter()
        .all(|part| *part == Value::Nil)
    {
        return Ok(None);
    }
    let now = seconds * 1_000_000 + micros;
    let fence = number(fence);

    let mut record = LockRecord::new(name.clone());
    record.fencing_token = fence.map(FencingToken::new);
    // A fencing token is the server's time of the grant, unless the counter was ahead of it.
    record.locked_at = fence.filter(|fence| *fence <= now).map(instant);
    if let Value::BulkString(tick) = tick {
        record.last_tick = Some(value::parse_tick(tick).ok_or_else(foreign_tick)?);
    }
    if let Value::BulkString(holder) = holder {
        let holder = Holder::parse(holder);
        if holder == Holder::Unknown {
            // The counter is of an earlier grant.
            record.locked_at = None;
        }
        record.state = match holder.is_resting() {
            true => LockState::Resting,
            false => LockState::Held,
        };
        record.owner = holder.into_owner();
        if let Value::Int(millis @ 0..) = remaining {
            record.remaining = Duration::from_millis(millis.cast_unsigned());
            record.lock_until = Some(match ends {
                Value::Int(ends @ 0..) => instant(ends.cast_unsigned() * 1_000),
                // Redis 6.2 does not tell, and the sum may differ by a millisecond from one time to the next.
                _ => instant(now) + record.remaining,
            });
        }
    }
    Ok(Some(record))
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

/// The instant of so many µs of the server's time.
fn instant(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}
