use std::time::Duration;

use async_trait::async_trait;
use distlock_api::exchange::Answered;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, LeaseId, LockBackend, Operation, Release, Renewal,
    Result,
};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use crate::builder::Builder;
use crate::server::Server;
use crate::statements::{Acquire, Released, Renew};

/// Locks in a PostgreSQL table.
///
/// The [crate's documentation](crate) says what it promises, and what it needs.
#[derive(Debug)]
pub struct PostgresBackend {
    server: Server,
}

impl PostgresBackend {
    /// Connects to a URL, with every option at its default.
    ///
    /// # Errors
    ///
    /// # Cancel safety
    ///
    /// Both as for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A backend that connects when it is first used.
    ///
    /// # Errors
    ///
    /// As for [`Builder::for_options`].
    pub fn from_options(options: PgConnectOptions) -> Result<Self> {
        Self::builder().for_options(options)
    }

    /// A backend with connections of its own to where the pool connects. The pool itself is not used, so that it may
    /// be as busy as it likes.
    ///
    /// # Errors
    ///
    /// As for [`Builder::for_options`].
    pub fn from_pool(pool: &PgPool) -> Result<Self> {
        Self::builder().for_pool(pool)
    }

    /// The options and their defaults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(server: Server) -> Self {
        Self { server }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

#[async_trait]
impl LockBackend for PostgresBackend {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("postgres");
        capabilities.granularity = Duration::from_micros(1);
        capabilities.operation_limit = self.server.limit();
        capabilities
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let answered = self.server.ask(&Acquire(request)).await;
        let decided = answered.and_then(Answered::<Attempt>::decided);
        decided.map_err(|error| {
            error
                .during("postgres", Operation::Acquire)
                .on(&request.name)
        })
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        if leases.is_empty() {
            return Vec::new();
        }
        let renewals = match self.server.ask(&Renew(leases)).await {
            Ok(answered) => answered.answer,
            Err(error) => leases.iter().map(|_| Err(error.clone())).collect(),
        };
        let about = |(renewal, (lease, _)): (Result<Renewal>, &(LeaseId, Duration))| {
            renewal.map_err(|error| error.during("postgres", Operation::Renew).on(&lease.name))
        };
        renewals.into_iter().zip(leases).map(about).collect()
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        let answered = self.server.ask(&Released { lease, linger }).await;
        let decided = answered.and_then(Answered::<Release>::decided);
        decided.map_err(|error| error.during("postgres", Operation::Release).on(&lease.name))
    }
}
