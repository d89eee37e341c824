//! The backend's own connections, and when a statement is sent again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_api::clock;
use distlock_api::connections::Connections;
use distlock_api::exchange::{Answered, Exchange, Failed, Lane};
use distlock_api::{Effect, Error, ErrorKind, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::check;
use crate::error;
use crate::schema::Table;
use crate::statements::{Request, Statements};

/// The server as the backend sees it.
pub(crate) struct Server {
    options: PgConnectOptions,
    limit: Duration,
    table: Table,
    statements: Statements,
    connections: Connections<PgConnection>,
    /// The store was found usable. Only success is remembered.
    checked: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        options: PgConnectOptions,
        table: Table,
        limit: Duration,
        max_connections: usize,
    ) -> Self {
        Self {
            options: session(options, limit),
            limit,
            statements: Statements::new(&table),
            table,
            connections: Connections::new(max_connections),
            checked: AtomicBool::new(false),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Opens a connection for later, so that a wrong address or password is found now.
    pub(crate) async fn warm_up(&self) -> Result<()> {
        let limit = self.connect_limit();
        let connection = self.connections.take(limit, || self.open(limit)).await?;
        connection.keep();
        Ok(())
    }

    /// A new connection that belongs to the caller.
    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        self.open(self.connect_limit()).await
    }

    async fn open(&self, limit: Duration) -> Result<PgConnection> {
        let connecting = PgConnection::connect_with(&self.options);
        match clock::timeout(limit, connecting).await {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(error)) => Err(error::not_connected(error, &self.options)),
            None => {
                let text = format!(
                    "{} does not answer within {limit:.1?}: check host, port and network",
                    error::place(&self.options)
                );
                Err(Error::new(ErrorKind::Unavailable, text).with_effect(Effect::None))
            }
        }
    }

    /// Sends a request until it is answered or no further try makes sense.
    pub(crate) async fn ask<R: Request>(&self, request: &R) -> Result<Answered<R::Answer>> {
        let asked = Asked {
            server: self,
            request,
        };
        self.connections.exchange(&asked).await
    }

    /// The start-up check precedes the first lock statement.
    async fn ensure_checked(&self, connection: &mut PgConnection) -> Result<(), Failed> {
        if !self.checked.load(Ordering::Acquire) {
            let checked = check::check(connection, &self.table).await;
            checked
                .map_err(error::failed_try)?
                .map_err(error::complaint)?;
            self.checked.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Somewhat less than the operation limit, so that whoever waits is still told why.
    fn connect_limit(&self) -> Duration {
        self.limit / 10 * 9
    }
}

/// A request on its way to the server.
struct Asked<'a, R> {
    server: &'a Server,
    request: &'a R,
}

impl<R: Request> Exchange for Asked<'_, R> {
    type Connection = PgConnection;
    type Answer = R::Answer;

    fn lane(&self) -> Lane {
        R::LANE
    }

    fn connect_limit(&self) -> Duration {
        self.server.connect_limit()
    }

    fn patience(&self) -> Duration {
        self.request.patience(self.server.limit)
    }

    async fn open(&self, limit: Duration) -> Result<PgConnection> {
        self.server.open(limit).await
    }

    async fn send(&self, connection: &mut PgConnection) -> Result<R::Answer, Failed> {
        if R::CHECKED {
            self.server.ensure_checked(connection).await?;
        }
        let sent = self.request.send(&self.server.statements, connection).await;
        sent.map_err(error::failed_try)
    }
}

/// The settings of our own sessions; `options` is the start-up parameter that carries them.
fn session(options: PgConnectOptions, limit: Duration) -> PgConnectOptions {
    let millis = |tenths: u32| (limit / 10 * tenths).as_millis().max(1).to_string();
    let own = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("distlock"),
    };
    own.disable_statement_logging()
        // Never 0: named statements would pile up at the server.
        .statement_cache_capacity(100)
        .options([
            // A pooler that swallows the settings swallows this one, too; the start-up check looks for it.
            ("distlock.direct", "on"),
            ("default_transaction_isolation", "read committed"),
            ("synchronous_commit", "on"),
            ("lock_timeout", &millis(8)),
            ("statement_timeout", &millis(9)),
            ("idle_in_transaction_session_timeout", &millis(10)),
        ])
}

/// Without the password, which the options' own `Debug` shows.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("place", &error::place(&self.options))
            .field("database", &self.options.get_database())
            .field("user", &self.options.get_username())
            .field("table", &format_args!("{}", self.table))
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
