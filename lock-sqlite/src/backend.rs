use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, LeaseId, LockBackend, Operation, Release, Renewal,
    Result, Scope,
};

use crate::builder::SqliteBuilder;
use crate::clock::Clock;
use crate::record::Record;
use crate::server::Server;

/// The name in URLs, Cargo features and errors.
pub(crate) const NAME: &str = "sqlite";

/// Locks in one SQLite file, for the processes of one machine.
///
/// Nothing is opened before the first call that needs the file, so that [`migrate`](distlock_api::LockAdmin::migrate)
/// can make it.
pub struct SqliteBackend {
    pub(crate) server: Server,
    pub(crate) clock: Clock,
}

impl SqliteBackend {
    /// Locks in the file that a URL names: `sqlite:///absolute/path`, `sqlite://relative/path` or `sqlite:path`.
    ///
    /// The file must be there, unless the URL says `?mode=rwc`; see [`SqliteBuilder::url`] for what else a URL may
    /// say. The file is opened by the first call that needs it.
    ///
    /// # Errors
    ///
    /// [`Config`](distlock_api::ErrorKind::Config) for a URL that is no good, and
    /// [`Unsupported`](distlock_api::ErrorKind::Unsupported) where the system does not tell one boot from another.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().url(url).build()
    }

    /// Options for a backend: name the file by one of [`file`](SqliteBuilder::file), [`url`](SqliteBuilder::url),
    /// [`options`](SqliteBuilder::options) and [`pool`](SqliteBuilder::pool).
    pub fn builder() -> SqliteBuilder {
        SqliteBuilder::new()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let mut session = self.server.session_within(request.lease).await?;
        // Most tries that fail meet a lock that is plainly held. They are answered from a look at the record, so
        // that those who wait take no write lock from those who work.
        let seen = session.find(&request.name).await?;
        if let Some(refusal) = seen.and_then(|record| record.refusal(request, &self.clock.now())) {
            session.keep();
            return Ok(refusal);
        }
        let (transaction, found) = session.begin(&request.name).await?;
        let now = self.clock.now();
        if let Some(refusal) = found
            .as_ref()
            .and_then(|record| record.refusal(request, &now))
        {
            transaction.commit().await?;
            return Ok(refusal);
        }
        let record = Record::granted(request, found.as_ref(), &now)?;
        transaction.save(&record).await?;
        Ok(Attempt::Acquired {
            fencing_token: Some(record.fencing_token()),
        })
    }

    async fn renew_all(&self, leases: &[(LeaseId, Duration)]) -> Result<Vec<Renewal>> {
        let mut transaction = self.server.session().await?.begin_many().await?;
        let now = self.clock.now();
        let mut renewals = Vec::with_capacity(leases.len());
        for (lease, ttl) in leases {
            renewals.push(if transaction.renew(lease, *ttl, &now).await? {
                Renewal::Renewed
            } else {
                let found = transaction.find(&lease.name).await?;
                Renewal::Lost {
                    to: found.and_then(|record| record.holder(&now)),
                }
            });
        }
        transaction.commit().await?;
        Ok(renewals)
    }

    async fn end(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let (transaction, found) = self.server.session().await?.begin(&lease.name).await?;
        let now = self.clock.now();
        let Some(mut record) = found else {
            transaction.commit().await?;
            return Ok(Release::NotHeld { by: None });
        };
        let (release, changed) = record.release(lease, linger, &now);
        if changed {
            transaction.save(&record).await?;
        } else {
            transaction.commit().await?;
        }
        Ok(release)
    }
}

#[async_trait]
impl LockBackend for SqliteBackend {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(NAME);
        capabilities.scope = Scope::Machine;
        capabilities.granularity = Duration::from_micros(1);
        capabilities.operation_limit = self.server.operation_limit();
        capabilities
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = self.acquire(request).await;
        attempt.map_err(|e| e.during(NAME, Operation::Acquire).on(&request.name))
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        if leases.is_empty() {
            return Vec::new();
        }
        match self.renew_all(leases).await {
            Ok(renewals) => renewals.into_iter().map(Ok).collect(),
            Err(error) => leases
                .iter()
                .map(|(lease, _)| {
                    let error = error.clone();
                    Err(error.during(NAME, Operation::Renew).on(&lease.name))
                })
                .collect(),
        }
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let release = self.end(lease, linger).await;
        release.map_err(|e| e.during(NAME, Operation::Release).on(&lease.name))
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteBackend").field(&self.server).finish()
    }
}
