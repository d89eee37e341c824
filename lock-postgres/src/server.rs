//! The backend's own connections, and when a statement is sent again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::connections::{Connections, Taken};
use distlock_api::{Effect, Error, ErrorKind, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::check;
use crate::error::{self, Again};
use crate::schema::Table;
use crate::statements::{Request, Statements};

/// How often a request is sent again at most.
const REPEATS: u32 = 5;

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

/// Whose places a request takes. What keeps or frees a lock never waits behind tries that hang on a locked row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// Tries to take a lock, and what operators ask.
    Taking,
    /// Renewals and releases, from the reserve.
    Holding,
}

/// An answer, and the doubt that an earlier try left.
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    /// The error of an earlier try that may have taken effect, so that the answer may speak of its consequences.
    pub(crate) doubt: Option<Error>,
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
    ///
    /// A connection that was kept may be dead, or its session out of date, without our knowing. So its failure counts
    /// for nothing: the request goes out once more on a new one.
    pub(crate) async fn ask<R: Request>(&self, request: &R) -> Result<Answered<R::Answer>> {
        let began = Instant::now();
        let mut connection = self.take(request, began).await?;
        let mut doubt: Option<Error> = None;
        let mut repeats = 0..REPEATS;
        loop {
            let (error, again) = match self.send(request, &mut connection).await {
                Ok(Ok(answer)) => {
                    connection.keep();
                    return Ok(Answered { answer, doubt });
                }
                Ok(Err(complaint)) => (complaint, Again::Elsewhere),
                Err(error) => {
                    let again = error::again(&error);
                    (error::failed(error), again)
                }
            };
            let again = repeats.next().map_or(Again::No, |_| again);
            match again {
                Again::Here => {}
                Again::Elsewhere if !connection.is_fresh() => {
                    // The worst doubt is the one about a statement that may still run.
                    if error.effect() == Effect::Unknown
                        && doubt.as_ref().is_none_or(error::told_by_server)
                    {
                        doubt = Some(error);
                    }
                    drop(connection);
                    connection = match self.take(request, began).await {
                        Ok(connection) => connection,
                        Err(error) => return Err(doubt.unwrap_or(error)),
                    };
                }
                _ if doubt.is_some() => return Err(error.with_effect(Effect::Unknown)),
                _ => return Err(error),
            }
        }
    }

    /// The inner result is a complaint of the start-up check, which precedes the first lock statement.
    async fn send<R: Request>(
        &self,
        request: &R,
        connection: &mut PgConnection,
    ) -> sqlx::Result<Result<R::Answer>> {
        if R::CHECKED && !self.checked.load(Ordering::Acquire) {
            if let Err(complaint) = check::check(connection, &self.table).await? {
                return Ok(Err(complaint));
            }
            self.checked.store(true, Ordering::Release);
        }
        request.send(&self.statements, connection).await.map(Ok)
    }

    /// A connection for a request that has been under way since `began`.
    async fn take<R: Request>(
        &self,
        request: &R,
        began: Instant,
    ) -> Result<Taken<'_, PgConnection>> {
        let left = || self.connect_limit().saturating_sub(began.elapsed());
        let patience = request.patience(self.limit).min(left());
        let open = || self.open(left());
        match R::LANE {
            Lane::Taking => self.connections.take(patience, open).await,
            Lane::Holding => self.connections.take_reserved(patience, open).await,
        }
    }

    /// Somewhat less than the operation limit, so that whoever waits is still told why.
    fn connect_limit(&self) -> Duration {
        self.limit / 10 * 9
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
