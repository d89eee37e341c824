//! The backend's own connections, and when a statement is sent again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock_api::clock;
use distlock_api::connections::Connections;
use distlock_api::exchange::{Answered, Exchange, Failed, Lane};
use distlock_api::{Effect, Error, ErrorKind, Result};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection};

use crate::check;
use crate::error;
use crate::schema::Table;
use crate::statements::{Request, Statements};

/// The server as the backend sees it.
pub(crate) struct Server {
    options: MySqlConnectOptions,
    limit: Duration,
    table: Table,
    /// What every new session is told.
    settings: Arc<str>,
    statements: Statements,
    connections: Connections<MySqlConnection>,
    /// The store was found usable. Only success is remembered.
    checked: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        options: MySqlConnectOptions,
        table: Table,
        limit: Duration,
        max_connections: usize,
    ) -> Self {
        Self {
            options: ours(options),
            settings: settings(limit).into(),
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
    pub(crate) async fn connect(&self) -> Result<MySqlConnection> {
        self.open(self.connect_limit()).await
    }

    async fn open(&self, limit: Duration) -> Result<MySqlConnection> {
        let connecting = self.session();
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

    /// A session with our settings: one request, besides what connecting itself takes.
    async fn session(&self) -> sqlx::Result<MySqlConnection> {
        let mut connection = MySqlConnection::connect_with(&self.options).await?;
        let settings = AssertSqlSafe(Arc::clone(&self.settings));
        sqlx::raw_sql(settings).execute(&mut connection).await?;
        Ok(connection)
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
    async fn ensure_checked(&self, connection: &mut MySqlConnection) -> Result<(), Failed> {
        if !self.checked.load(Ordering::Acquire) {
            let found = check::check(connection, &self.table).await;
            let found = found.map_err(error::failed_try)?;
            found.usable().map_err(Failed::complaint)?;
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
    type Connection = MySqlConnection;
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

    async fn open(&self, limit: Duration) -> Result<MySqlConnection> {
        self.server.open(limit).await
    }

    async fn send(&self, connection: &mut MySqlConnection) -> Result<R::Answer, Failed> {
        if R::CHECKED {
            self.server.ensure_checked(connection).await?;
        }
        let sent = self.request.send(&self.server.statements, connection).await;
        sent.map_err(error::failed_try)
    }
}

/// The driver's own settings are left out, because ours follow in one request.
fn ours(options: MySqlConnectOptions) -> MySqlConnectOptions {
    options
        .disable_statement_logging()
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(None)
        .set_names(false)
        // Never 0: each call would prepare its statement anew.
        .statement_cache_capacity(100)
}

/// The settings of our own sessions, whatever the server's, the user's and the driver's are. A comment with an
/// exclamation mark is read by MySQL, one with M! by MariaDB.
///
/// A wait for a lock is over before the caller has given up. It is counted in whole seconds and looked at once a second.
fn settings(limit: Duration) -> String {
    let wait = (limit / 10 * 8).as_secs().saturating_sub(1).max(1);
    let statement = limit / 10 * 9;
    format!(
        "SET NAMES utf8mb4, time_zone = '+00:00', autocommit = 1, \
         sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0, \
         sql_select_limit = 18446744073709551615, \
         innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {wait} \
         /*!80000 , max_execution_time = {} */ /*M! , max_statement_time = {} */; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
        statement.as_millis(),
        statement.as_secs_f64(),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_locks_end_before_the_operation_does() {
        for (limit, wait) in [(3, 1), (4, 2), (5, 3), (10, 7), (3600, 2879)] {
            let settings = settings(Duration::from_secs(limit));
            let text = format!("innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {wait} ");
            assert!(settings.contains(&text), "{settings}");
            assert!(wait + 1 < limit);
        }
    }
}
