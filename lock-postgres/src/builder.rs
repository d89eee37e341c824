use std::time::Duration;

use distlock_api::{Error, ErrorKind, Operation, Result, options};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use crate::backend::PostgresBackend;
use crate::schema::Table;
use crate::server::Server;
use crate::url;

/// What can be set on a [`PostgresBackend`] before it is made.
///
/// ```no_run
/// # async fn example() -> distlock_api::Result<()> {
/// use std::time::Duration;
/// use distlock_postgres::{PostgresBackend, Table};
///
/// let backend = PostgresBackend::builder()
///     .table(Table::new("job_locks")?.in_schema("ops")?)
///     .operation_limit(Duration::from_secs(2))
///     .connect("postgres://db.example/app")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    table: Option<Table>,
    operation_limit: Duration,
    max_connections: usize,
    pooler: Option<bool>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            table: None,
            operation_limit: options::OPERATION_LIMIT,
            max_connections: 4,
            pooler: None,
        }
    }

    /// The table of the locks; by default `distlock_locks`, or what the URL says.
    pub fn table(mut self, table: Table) -> Self {
        self.table = Some(table);
        self
    }

    /// How long one call may take: 100 ms to 1 hour, by default 5 s.
    ///
    /// The server gives up on a locked row after 8 tenths of it, and on any statement after 9 tenths.
    pub fn operation_limit(mut self, limit: Duration) -> Self {
        self.operation_limit = limit;
        self
    }

    /// How many connections the backend may have for acquires and operators' calls, and as many again for renewals and
    /// releases: 1 to 1000, by default 4.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Whether a pooler stands between the backend and the server; by default each new connection finds it out by itself,
    /// unless the URL says.
    ///
    /// `true` spares the finding out, and helps where a pooler of an unknown make hides itself: a direct connection works
    /// as well, if slower. `false` takes your word: behind a pooler in transaction mode, clients then get each other's
    /// answers.
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = Some(pooler);
        self
    }

    /// Connects to a URL and opens a first connection; the [crate's documentation](crate) says what a URL may have.
    ///
    /// The table is looked at before the first lock statement, so that a backend without one can still migrate.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a URL that is no good, [`ErrorKind::InvalidOption`] for an option out of range,
    /// [`ErrorKind::Denied`] and [`ErrorKind::Unavailable`] as the server answers.
    ///
    /// # Cancel safety
    ///
    /// Safe: a dropped call leaves nothing.
    pub async fn connect(mut self, url: &str) -> Result<PostgresBackend> {
        let during = |error: Error| error.during("postgres", Operation::Connect);
        let url = url::parse(url).map_err(during)?;
        let twice = if url.table.is_some() && self.table.is_some() {
            Some("the table")
        } else if url.pooler.is_some() && self.pooler.is_some() {
            Some("whether there is a pooler")
        } else {
            None
        };
        if let Some(what) = twice {
            let text = format!("{what} is given by the URL and by the builder: leave one");
            return Err(during(Error::new(ErrorKind::Config, text)));
        }
        self.table = self.table.or(url.table);
        self.pooler = self.pooler.or(url.pooler);
        let backend = self.for_options(url.options)?;
        backend.server().warm_up().await.map_err(during)?;
        Ok(backend)
    }

    /// Makes a backend that connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for an option out of range.
    pub fn for_options(self, options: PgConnectOptions) -> Result<PostgresBackend> {
        let complaint = if !(Duration::from_millis(100)..=Duration::from_secs(3600))
            .contains(&self.operation_limit)
        {
            let limit = self.operation_limit;
            format!("an operation limit of {limit:?} is out of range: 100 ms to 1 hour")
        } else if !(1..=1000).contains(&self.max_connections) {
            format!(
                "{} connections are out of range: 1 to 1000",
                self.max_connections
            )
        } else {
            return Ok(PostgresBackend::new(Server::new(
                options,
                self.table.unwrap_or_default(),
                self.operation_limit,
                self.max_connections,
                self.pooler,
            )));
        };
        Err(Error::new(ErrorKind::InvalidOption, complaint).during("postgres", Operation::Connect))
    }

    /// Makes a backend with connections of its own to where the pool connects. The pool itself is not used.
    ///
    /// # Errors
    ///
    /// As for [`for_options`](Self::for_options).
    pub fn for_pool(self, pool: &PgPool) -> Result<PostgresBackend> {
        self.for_options((*pool.connect_options()).clone())
    }
}
