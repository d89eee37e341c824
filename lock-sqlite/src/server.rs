//! The file as a server: a connection of our own, and whether the file can be used.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_api::clock::{Instant, sleep};
use distlock_api::connections::Connections;
use distlock_api::{Error, ErrorKind, Finding, Findings, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Executor, Row, SqliteConnection};

use crate::error;
use crate::file::{self, FileId};
use crate::schema::{Column, Key, Statements, faults};
use crate::session::Session;

/// Everything about one file. One connection, because SQLite has one writer at a time.
pub(crate) struct Server {
    pub(crate) settings: Settings,
    pub(crate) statements: Statements,
    connections: Connections<Opened>,
}

/// How the file is to be used.
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    pub(crate) options: SqliteConnectOptions,
    pub(crate) operation_limit: Duration,
    pub(crate) create: bool,
    /// What is wrong with the file system, if more than this machine may use it.
    pub(crate) not_local: fn(&Path) -> Option<Finding>,
}

/// A connection, and the file that it was opened to.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: SqliteConnection,
    file: Option<FileId>,
}

impl Server {
    pub(crate) fn new(mut settings: Settings, statements: Statements) -> Self {
        settings.options = settings
            .options
            .filename(&settings.path)
            .create_if_missing(false)
            .shared_cache(false)
            .locking_mode(SqliteLockingMode::Normal)
            // A grant must survive a power cut, or its fencing token could be given again.
            .synchronous(SqliteSynchronous::Extra)
            // SQLite gives up before the engine does, so that the error can say that nothing was done.
            .busy_timeout(settings.operation_limit * 4 / 5)
            .disable_statement_logging();
        Self {
            settings,
            statements,
            connections: Connections::new(1),
        }
    }

    pub(crate) fn operation_limit(&self) -> Duration {
        self.settings.operation_limit
    }

    /// A connection to the file that is at the path now.
    pub(crate) async fn session(&self) -> Result<Session<'_>> {
        self.session_within(self.settings.operation_limit).await
    }

    /// The same for a caller who waits no longer than this: nothing is begun for one who has given up.
    pub(crate) async fn session_within(&self, limit: Duration) -> Result<Session<'_>> {
        let limit = limit.min(self.settings.operation_limit) / 2;
        let mut taken = self.connections.take(limit, || self.open()).await?;
        if !taken.is_fresh() && taken.file != file::id(&self.settings.path) {
            // The file was deleted or replaced: what we would lock in it no longer keeps others out.
            *taken = self.open().await?;
        }
        Ok(Session::new(taken, &self.statements))
    }

    pub(crate) async fn open(&self) -> Result<Opened> {
        match self.open_existing().await {
            // Made now, or by another process since we looked.
            Err(error) if self.settings.create && may_be_missing(&error) => {
                self.migrate().await?;
                self.open_existing().await
            }
            opened => opened,
        }
    }

    async fn open_existing(&self) -> Result<Opened> {
        let mut opened = self.connect(false).await?;
        self.table_usable(&mut opened.connection).await?;
        Ok(opened)
    }

    async fn connect(&self, create: bool) -> Result<Opened> {
        let path = &self.settings.path;
        if let Some(fault) = file::irregular(path).or_else(|| (self.settings.not_local)(path)) {
            return Err(fault.into());
        }
        let opened = self.connect_to_any(create).await;
        opened.map_err(|e| error::opening(e, &self.settings.path, create))
    }

    /// The same whatever file system the file is on.
    pub(crate) async fn connect_to_any(&self, create: bool) -> sqlx::Result<Opened> {
        let options = self.settings.options.clone().create_if_missing(create);
        Ok(Opened {
            connection: options.connect().await?,
            file: file::id(&self.settings.path),
        })
    }

    async fn table_usable(&self, connection: &mut SqliteConnection) -> Result<()> {
        let faults = self.table_faults(connection).await;
        let faults = faults.map_err(|e| error::opening(e, &self.settings.path, false))?;
        Findings::from_iter(faults).usable()
    }

    pub(crate) async fn table_faults(
        &self,
        connection: &mut SqliteConnection,
    ) -> sqlx::Result<Vec<Finding>> {
        let table = &self.statements.table;
        let rows = sqlx::query(Column::SQL).bind(table);
        let rows = rows.fetch_all(&mut *connection).await?;
        let columns: Result<Vec<_>, _> = rows.iter().map(Column::from_row).collect();
        let rows = sqlx::query(Key::SQL).bind(table);
        let rows = rows.fetch_all(connection).await?;
        let keys: Result<Vec<_>, _> = rows.iter().map(Key::from_row).collect();
        Ok(faults(table, &columns?, &keys?))
    }

    /// Makes the file and the table. Any number of processes may do so at once.
    pub(crate) async fn migrate(&self) -> Result<()> {
        let connection = &mut self.connect(true).await?.connection;
        if is_empty(connection).await? {
            self.set_write_ahead(connection).await?;
        }
        let transaction = async {
            connection.execute("BEGIN IMMEDIATE").await?;
            connection.execute(self.statements.schema.clone()).await?;
            connection.execute("COMMIT").await
        };
        transaction.await.map_err(error::of)?;
        self.table_usable(connection).await
    }

    /// A new file becomes one with a write-ahead log, in which nobody who reads waits for a writer; a file that
    /// was there before keeps what its owner chose. SQLite does not wait to switch while another writes, so we do.
    async fn set_write_ahead(&self, connection: &mut SqliteConnection) -> Result<()> {
        let started = Instant::now();
        loop {
            match connection
                .execute("PRAGMA journal_mode = WAL")
                .await
                .map_err(error::of)
            {
                Err(busy)
                    if busy.kind() == ErrorKind::Timeout
                        && started.elapsed() < self.settings.operation_limit =>
                {
                    sleep(Duration::from_millis(5)).await;
                }
                switched => return switched.map(drop),
            }
        }
    }
}

/// Whether the error is one of a file or a table that is not there.
fn may_be_missing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::SchemaMissing | ErrorKind::Config)
}

async fn is_empty(connection: &mut SqliteConnection) -> Result<bool> {
    let row = connection
        .fetch_one("SELECT count(*) FROM sqlite_schema")
        .await;
    let tables: i64 = row.and_then(|row| row.try_get(0)).map_err(error::of)?;
    Ok(tables == 0)
}

/// Without the driver's options: they may hold the key of an encrypted file.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("path", &self.settings.path)
            .field("table", &self.statements.table)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_locks_need_wins_over_the_users_options_and_their_key_is_not_shown() {
        let theirs = SqliteConnectOptions::new()
            .pragma("key", "SECRET")
            .pragma("synchronous", "OFF")
            .pragma("locking_mode", "EXCLUSIVE");
        let settings = Settings {
            path: "/a.db".into(),
            options: theirs,
            operation_limit: Duration::from_secs(5),
            create: false,
            not_local: |_| None,
        };
        let server = Server::new(settings, Statements::new("t").unwrap());
        let ours = format!("{:?}", server.settings.options);
        for part in [
            r#""synchronous": Some("EXTRA")"#,
            r#""locking_mode": Some("NORMAL")"#,
            "busy_timeout: 4s",
            "SECRET",
        ] {
            assert!(ours.contains(part), "{part} is missing in {ours}");
        }
        assert!(!format!("{server:?}").contains("SECRET"));
    }
}
