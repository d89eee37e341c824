use std::time::Duration;

use async_trait::async_trait;
use distlock_api::exchange::Answered;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, Error, ErrorKind, FencingToken, Held, LeaseId,
    LockBackend, LockName, Operation, Release, Renewal, Result, options,
};
use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::builder::RedisBackendBuilder;
use crate::connection::Source;
use crate::error;
use crate::first_look::FirstLook;
use crate::keys::Prefix;
use crate::server::Server;
use crate::statements::{ACQUIRE, Call, RELEASE, RENEW};
use crate::value::{self, Holder};

pub(crate) const NAME: &str = "redis";

/// Locks in Redis or Valkey.
///
/// One connection serves all calls, those of many tasks at a time. It is opened when it is first needed, and again
/// after it broke.
#[derive(Debug)]
pub struct RedisBackend {
    pub(crate) server: Server,
    pub(crate) prefix: Prefix,
    /// Whether the server was found fit to hold locks.
    first_look: FirstLook,
}

impl RedisBackend {
    /// Connects to the server of a URL: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS.
    ///
    /// Parameters: `lock_prefix`, what all keys begin with (default `lock:`; at most 64 bytes, no braces), and
    /// `protocol`, `resp2` (default) or `resp3`. TLS trusts the operating system's certificates, or those in the file
    /// that the environment variable `SSL_CERT_FILE` names.
    ///
    /// # Errors
    ///
    /// `Config` for a URL that is no good, a part of it that nobody knows, or a certificate that is not trusted;
    /// `Denied` for a wrong user or password; `Unavailable` where nobody answers.
    ///
    /// # Cancel safety
    ///
    /// Safe: a connection that was being opened is closed.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A backend with other options than the defaults.
    pub fn builder() -> RedisBackendBuilder {
        RedisBackendBuilder::default()
    }

    /// Locks over connections of the client's own making. It connects when it is first used.
    pub fn from_client(client: redis::Client) -> Self {
        Self::new(
            Source::Client(client),
            Prefix::default(),
            options::OPERATION_LIMIT,
        )
    }

    /// Locks over a connection with the pool's settings.
    ///
    /// It is made by the pool's manager and is none of the pool's: a pool that is used up does not hold up a renewal,
    /// and locks take nothing from it.
    pub fn from_pool(pool: deadpool_redis::Pool) -> Self {
        Self::new(
            Source::Pool(pool),
            Prefix::default(),
            options::OPERATION_LIMIT,
        )
    }

    /// Locks over this connection.
    ///
    /// It is shared with whoever has a clone of it, and once it broke all further calls fail: prefer
    /// [`from_client`](Self::from_client).
    pub fn from_connection(connection: MultiplexedConnection) -> Self {
        Self::new(
            Source::Given(connection),
            Prefix::default(),
            options::OPERATION_LIMIT,
        )
    }

    pub(crate) fn new(source: Source, prefix: Prefix, limit: Duration) -> Self {
        Self {
            server: Server::new(source, limit),
            prefix,
            first_look: FirstLook::new(),
        }
    }

    pub(crate) fn call(
        &self,
        name: &LockName,
        statement: &'static crate::statements::Statement,
    ) -> Call {
        Call::on(self.prefix.lock_key(name), statement)
    }

    /// The answer to one call, as `read` understands it.
    pub(crate) async fn ask<T>(
        &self,
        call: Call,
        read: impl FnOnce(Value) -> Result<T>,
    ) -> Result<Answered<T>> {
        let Answered { answer, doubt } = self.server.run(&[call]).await?;
        let value = answer.into_iter().next().unwrap_or(Ok(Value::Nil))?;
        Ok(Answered {
            answer: read(value)?,
            doubt,
        })
    }

    /// The answers to many calls that may be repeated.
    pub(crate) async fn ask_all(&self, calls: &[Call]) -> Result<Vec<Result<Value>>> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.server.run(calls).await?.answer)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let look = async { self.look_first().await?.usable() };
        self.first_look.once(look).await?;
        let mut call = self
            .call(&request.name, &ACQUIRE)
            .arg(value::held(request.token, &request.owner))
            .arg(millis(request.lease));
        if let Some(tick) = request.tick {
            call = call.arg(value::tick(tick));
        }
        self.ask(call, granted_or_refused).await?.decided()
    }

    async fn renew_all(&self, leases: &[(LeaseId, Duration)]) -> Result<Vec<Result<Renewal>>> {
        let renew_one = |(lease, ttl): &(LeaseId, Duration)| {
            self.call(&lease.name, &RENEW)
                .arg(value::held_by(lease.token))
                .arg(millis(*ttl))
        };
        let calls: Vec<Call> = leases.iter().map(renew_one).collect();
        let renewal = |value: Result<Value>| match done_or_held_by(value?)? {
            Ok(()) => Ok(Renewal::Renewed),
            Err(to) => Ok(Renewal::Lost { to }),
        };
        let values = self.ask_all(&calls).await?;
        Ok(values.into_iter().map(renewal).collect())
    }

    async fn release_one(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let call = self
            .call(&lease.name, &RELEASE)
            .arg(value::token(lease.token))
            .arg(millis(linger));
        let release = |value| match done_or_held_by(value)? {
            Ok(()) => Ok(Release::Released),
            Err(by) => Ok(Release::NotHeld { by }),
        };
        self.ask(call, release).await?.decided()
    }
}

#[async_trait]
impl LockBackend for RedisBackend {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(NAME);
        capabilities.own_connections = self.server.has_own_connections();
        capabilities.operation_limit = self.server.limit();
        capabilities.keeps_records = false;
        capabilities
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = self.acquire(request).await;
        attempt.map_err(|e| e.during(NAME, Operation::Acquire).on(&request.name))
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        let renewals = self.renew_all(leases).await.unwrap_or_else(|error| {
            let failed = |_: &_| Err(error.clone());
            leases.iter().map(failed).collect()
        });
        let about = |(renewal, (lease, _)): (Result<Renewal>, &(LeaseId, Duration))| {
            renewal.map_err(|e| e.during(NAME, Operation::Renew).on(&lease.name))
        };
        renewals.into_iter().zip(leases).map(about).collect()
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let release = self.release_one(lease, linger).await;
        release.map_err(|e| e.during(NAME, Operation::Release).on(&lease.name))
    }
}

/// How the script that takes a lock answers.
fn granted_or_refused(value: Value) -> Result<Attempt> {
    match value {
        Value::Int(fence) => Ok(Attempt::Acquired {
            fencing_token: Some(FencingToken::new(fence.cast_unsigned())),
        }),
        Value::BulkString(last) => match value::parse_tick(&last) {
            Some(last) => Ok(Attempt::TickDone { last }),
            None => Err(foreign_tick()),
        },
        Value::Array(held) => match held.as_slice() {
            [Value::BulkString(holder), Value::Int(remaining)] => {
                let holder = Holder::parse(holder);
                Ok(Attempt::Held(Held {
                    resting: holder.is_resting(),
                    by: holder.into_owner(),
                    // Negative: a key of somebody else's, without an end.
                    remaining: u64::try_from(*remaining).ok().map(Duration::from_millis),
                }))
            }
            _ => Err(error::unexpected(&Value::Array(held))),
        },
        other => Err(error::unexpected(&other)),
    }
}

/// How the scripts that ask for a token answer: 1, or who holds the lock instead.
fn done_or_held_by(value: Value) -> Result<Result<(), Option<String>>> {
    match value {
        Value::Int(1) => Ok(Ok(())),
        Value::Nil => Ok(Err(None)),
        Value::BulkString(holder) => Ok(Err(Holder::parse(&holder).into_owner())),
        other => Err(error::unexpected(&other)),
    }
}

pub(crate) fn foreign_tick() -> Error {
    Error::new(
        ErrorKind::Config,
        "the lock's last tick (key …:t) was not stored by this library: delete it",
    )
}

/// Whole milliseconds, rounded up.
fn millis(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_milliseconds() {
        for (nanos, expected) in [(0, "0"), (1, "1"), (1_000_000, "1"), (1_000_001, "2")] {
            assert_eq!(millis(Duration::from_nanos(nanos)), expected);
        }
        assert_eq!(millis(options::MAX_LEASE), "315360000000");
    }
}
