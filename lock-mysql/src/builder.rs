use std::ops::RangeInclusive;
use std::time::Duration;

use distlock_api::{Error, ErrorKind, Operation, Result, options};
use sqlx::MySqlPool;
use sqlx::mysql::MySqlConnectOptions;

use crate::backend::MySqlBackend;
use crate::schema::Table;
use crate::server::Server;
use crate::url;

/// Below, the servers' whole seconds leave no room for a wait that ends before the operation does.
const LIMITS: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(3600);

/// What can be set on a [`MySqlBackend`] before it is made.
///
/// ```no_run
/// # async fn example() -> distlock_api::Result<()> {
/// use std::time::Duration;
/// use distlock_mysql::{MySqlBackend, Table};
///
/// let backend = MySqlBackend::builder()
///     .table(Table::new("job_locks")?.in_schema("ops")?)
///     .operation_limit(Duration::from_secs(4))
///     .connect("mysql://db.example/app")
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
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            table: None,
            operation_limit: options::OPERATION_LIMIT,
            max_connections: 4,
        }
    }

    /// The table of the locks; by default `distlock_locks`, or what the URL says.
    pub fn table(mut self, table: Table) -> Self {
        self.table = Some(table);
        self
    }

    /// How long one call may take: 3 s to 1 hour, by default 5 s.
    ///
    /// The server gives up on a locked row before 8 tenths of it. It counts that wait in whole seconds and may be a
    /// second late, so that less than 3 s leave it no time. Statements that only read (on MariaDB all) end after
    /// 9 tenths.
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
    pub async fn connect(mut self, url: &str) -> Result<MySqlBackend> {
        let during = |error: Error| error.during("mysql", Operation::Connect);
        let (options, table) = url::parse(url).map_err(during)?;
        if let Some(table) = table
            && self.table.replace(table).is_some()
        {
            let text = "the table is given by the URL and by the builder: leave one";
            return Err(during(Error::new(ErrorKind::Config, text)));
        }
        let backend = self.for_options(options)?;
        backend.server().warm_up().await.map_err(during)?;
        Ok(backend)
    }

    /// Makes a backend that connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for an option out of range.
    pub fn for_options(self, options: MySqlConnectOptions) -> Result<MySqlBackend> {
        let complaint = if !LIMITS.contains(&self.operation_limit) {
            let limit = self.operation_limit;
            format!("an operation limit of {limit:?} is out of range: 3 s to 1 hour")
        } else if !(1..=1000).contains(&self.max_connections) {
            format!(
                "{} connections are out of range: 1 to 1000",
                self.max_connections
            )
        } else {
            return Ok(MySqlBackend::new(Server::new(
                options,
                self.table.unwrap_or_default(),
                self.operation_limit,
                self.max_connections,
            )));
        };
        Err(Error::new(ErrorKind::InvalidOption, complaint).during("mysql", Operation::Connect))
    }

    /// Makes a backend with connections of its own to where the pool connects. The pool itself is not used.
    ///
    /// # Errors
    ///
    /// As for [`for_options`](Self::for_options).
    pub fn for_pool(self, pool: &MySqlPool) -> Result<MySqlBackend> {
        self.for_options((*pool.connect_options()).clone())
    }
}
