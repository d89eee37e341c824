use std::time::Duration;

use distlock_api::{Error, ErrorKind, Operation, Result, options};
use redis::aio::MultiplexedConnection;

use crate::backend::{NAME, RedisBackend};
use crate::connection::Source;
use crate::keys::Prefix;
use crate::target::Target;

/// Options of a [`RedisBackend`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is given a server"]
pub struct RedisBackendBuilder {
    prefix: String,
    operation_limit: Duration,
}

impl Default for RedisBackendBuilder {
    fn default() -> Self {
        Self {
            prefix: "lock:".to_owned(),
            operation_limit: options::OPERATION_LIMIT,
        }
    }
}

impl RedisBackendBuilder {
    /// What all keys begin with: at most 64 bytes, no braces, no control characters. Default: `lock:`.
    ///
    /// Programs share locks only if they have the same prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one call may take; 10 ms at least. Default: 5 s.
    pub fn operation_limit(mut self, limit: Duration) -> Self {
        self.operation_limit = limit;
        self
    }

    /// As [`RedisBackend::connect`]. A `lock_prefix` in the URL comes before the one set here.
    ///
    /// # Errors
    ///
    /// Those of [`RedisBackend::connect`], and `Config` for an option out of its range.
    pub async fn connect(self, url: &str) -> Result<RedisBackend> {
        let connecting = async {
            let target = Target::parse(url)?;
            let mut backend = self.build(Source::Client(target.client))?;
            if let Some(prefix) = target.prefix {
                backend.prefix = prefix;
            }
            backend.server.connect().await?;
            Ok(backend)
        };
        connecting
            .await
            .map_err(|e: Error| e.during(NAME, Operation::Connect))
    }

    /// As [`RedisBackend::from_client`].
    ///
    /// # Errors
    ///
    /// `Config` for an option out of its range.
    pub fn from_client(self, client: redis::Client) -> Result<RedisBackend> {
        self.build(Source::Client(client))
    }

    /// As [`RedisBackend::from_pool`].
    ///
    /// # Errors
    ///
    /// `Config` for an option out of its range.
    pub fn from_pool(self, pool: deadpool_redis::Pool) -> Result<RedisBackend> {
        self.build(Source::Pool(pool))
    }

    /// As [`RedisBackend::from_connection`].
    ///
    /// # Errors
    ///
    /// `Config` for an option out of its range.
    pub fn from_connection(self, connection: MultiplexedConnection) -> Result<RedisBackend> {
        self.build(Source::Given(connection))
    }

    fn build(&self, source: Source) -> Result<RedisBackend> {
        let prefix = Prefix::new(&self.prefix)?;
        if self.operation_limit < options::MIN_LEASE {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "an operation limit of {:?} is too short: at least {:?}",
                    self.operation_limit,
                    options::MIN_LEASE
                ),
            ));
        }
        Ok(RedisBackend::new(source, prefix, self.operation_limit))
    }
}
