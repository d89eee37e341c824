//! The backend's own connections, and when a statement is sent again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_api::clock;
use distlock_api::connections::Connections;
use distlock_api::exchange::{Answered, Exchange, Failed, Lane};
use distlock_api::{Effect, Error, ErrorKind, Findings, Result};
use sqlx::postgres::PgConnectOptions;

use crate::check;
use crate::error;
use crate::schema::Table;
use crate::session::{Entrance, Session};
use crate::statements::{Request, Statements};

/// The server as the backend sees it.
pub(crate) struct Server {
    entrance: Entrance,
    limit: Duration,
    table: Table,
    statements: Statements,
    connections: Connections<Session>,
    /// The store was found usable. Only success is remembered.
    checked: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        options: PgConnectOptions,
        table: Table,
        limit: Duration,
        max_connections: usize,
        pooler: Option<bool>,
    ) -> Self {
        Self {
            entrance: Entrance::new(options, limit, pooler),
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

    /// What there is to find fault with.
    pub(crate) async fn check(&self, session: &mut Session) -> sqlx::Result<Findings> {
        check::check(session, &self.statements, &self.table).await
    }

    /// Opens a connection for later, so that a wrong address or password is found now.
    pub(crate) async fn warm_up(&self) -> Result<()> {
        let limit = self.connect_limit();
        let connection = self.connections.take(limit, || self.open(limit)).await?;
        connection.keep();
        Ok(())
    }

    /// A new session that belongs to the caller.
    pub(crate) async fn connect(&self) -> Result<Session> {
        self.open(self.connect_limit()).await
    }

    async fn open(&self, limit: Duration) -> Result<Session> {
        let opened = clock::timeout(limit, self.entrance.open()).await;
        opened.unwrap_or_else(|| {
            let text = format!(
                "{} does not answer within {limit:.1?}: check host, port and network",
                error::place(self.entrance.options())
            );
            Err(Error::new(ErrorKind::Unavailable, text).with_effect(Effect::None))
        })
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
    async fn ensure_checked(&self, session: &mut Session) -> Result<(), Failed> {
        if !self.checked.load(Ordering::Acquire) {
            let findings = self.check(session).await;
            let findings = findings.map_err(error::failed_try)?;
            findings.usable().map_err(Failed::complaint)?;
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
    type Connection = Session;
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

    async fn open(&self, limit: Duration) -> Result<Session> {
        self.server.open(limit).await
    }

    async fn send(&self, session: &mut Session) -> Result<R::Answer, Failed> {
        if R::CHECKED {
            self.server.ensure_checked(session).await?;
        }
        let sent = self.request.send(&self.server.statements, session).await;
        sent.map_err(error::failed_try)
    }
}

/// Without the password, which the options' own `Debug` shows.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.entrance.options();
        f.debug_struct("Server")
            .field("place", &error::place(options))
            .field("database", &options.get_database())
            .field("user", &options.get_username())
            .field("table", &format_args!("{}", self.table))
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
