//! One session with the server, direct or through a pooler, and how a statement and its values go there.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use distlock_api::{Effect, Error, ErrorKind, Result};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow, PgConnection, Row};

use crate::error;
use crate::value::{Value, filled};

/// A connection, and what must be known of the way to the server.
pub(crate) struct Session {
    connection: PgConnection,
    /// What every message begins with, where a pooler may send each to another of its own sessions.
    preamble: Option<Arc<str>>,
}

impl Session {
    /// The rows that a statement gives, once it is committed.
    ///
    /// Through a pooler it goes as a single simple message, which is a transaction of its own: what was prepared in one
    /// session would be executed in another, where the same name may stand for somebody else's statement. Only the last
    /// part of that message gives rows.
    pub(crate) async fn ask<R>(
        &mut self,
        sql: &Arc<str>,
        values: &[Value<'_>],
    ) -> sqlx::Result<Vec<R>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let Some(preamble) = &self.preamble else {
            let mut arguments = PgArguments::default();
            for value in values {
                value.bind(&mut arguments).map_err(sqlx::Error::Encode)?;
            }
            let query = sqlx::query_as_with(AssertSqlSafe(Arc::clone(sql)), arguments);
            return query.fetch_all(&mut self.connection).await;
        };
        let message = format!("{preamble}{}", filled(sql, values)?);
        let rows = match self.send(format!("{READ_WRITE}{message}")).await {
            // A standby refuses even to try, and nothing was done. Reads it answers, and what writes it refuses by name.
            Err(error) if error::not_supported(&error) => self.send(message).await?,
            rows => rows?,
        };
        rows.iter().map(R::from_row).collect()
    }

    /// Runs statements in a transaction of their own that is rolled back; the rows that they give.
    pub(crate) async fn rehearse(&mut self, sql: &str) -> sqlx::Result<Vec<PgRow>> {
        let message = format!("{}BEGIN; {sql}; ROLLBACK", self.before_writes());
        let rows = self.send(message).await;
        if rows.is_err() {
            // What follows an error is not run, be it the end of the transaction.
            self.send("ROLLBACK".to_owned()).await.ok();
        }
        rows
    }

    /// Runs statements that give no rows of interest, as one message and so as one transaction, which no dropped future
    /// can leave open.
    pub(crate) async fn run(&mut self, sql: &str) -> sqlx::Result<()> {
        let message = format!("{}{sql}", self.before_writes());
        self.send(message).await.map(drop)
    }

    fn before_writes(&self) -> String {
        let preamble = self.preamble.as_ref();
        preamble.map_or_else(String::new, |preamble| format!("{READ_WRITE}{preamble}"))
    }

    async fn send(&mut self, message: String) -> sqlx::Result<Vec<PgRow>> {
        let query = sqlx::raw_sql(AssertSqlSafe(message));
        query.fetch_all(&mut self.connection).await
    }
}

/// How sessions are opened.
pub(crate) struct Entrance {
    /// With the settings of our sessions.
    direct: PgConnectOptions,
    /// Without: what a pooler accepts.
    plain: PgConnectOptions,
    /// Whether there is a pooler, where somebody said so.
    pooler: Option<bool>,
    preamble: Arc<str>,
}

impl Entrance {
    pub(crate) fn new(options: PgConnectOptions, limit: Duration, pooler: Option<bool>) -> Self {
        let settings = settings(limit);
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("distlock"),
        };
        let plain = options
            .disable_statement_logging()
            // Never 0: named statements would pile up at the server.
            .statement_cache_capacity(100);
        let own = settings.iter().map(|(name, value)| (*name, &**value));
        let direct = plain.clone().options(own.chain([
            ("default_transaction_isolation", "read committed"),
            ("idle_in_transaction_session_timeout", &*millis(limit, 10)),
            // A pooler that swallows the settings swallows this one, too.
            ("distlock.direct", "on"),
        ]));
        Self {
            direct,
            // Poolers refuse this one, too, and no float is ever sent.
            plain: plain.extra_float_digits(None),
            pooler,
            preamble: preamble(&settings).into(),
        }
    }

    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.plain
    }

    /// A new session. Whether it goes through a pooler is found out for each: one may be put in between at any time.
    pub(crate) async fn open(&self) -> Result<Session> {
        let pooled = match self.pooler {
            Some(pooled) => pooled,
            None => match PgConnection::connect_with(&self.direct).await {
                Ok(connection) => return self.look(connection).await,
                Err(error) if error::refuses_settings(&error) => true,
                Err(error) => return Err(error::not_connected(error, &self.plain)),
            },
        };
        self.settings_fit(pooled)?;
        let options = if pooled { &self.plain } else { &self.direct };
        let connection = PgConnection::connect_with(options).await;
        let connection = connection.map_err(|error| error::not_connected(error, &self.plain))?;
        Ok(self.session(connection, pooled))
    }

    /// Whether the settings have arrived.
    async fn look(&self, mut connection: PgConnection) -> Result<Session> {
        let question = "SELECT current_setting('distlock.direct', true) IS NOT DISTINCT FROM 'on'";
        let answer = sqlx::raw_sql(question).fetch_one(&mut connection).await;
        let direct: bool = answer
            .and_then(|row| row.try_get(0))
            .map_err(|error| error::failed(error).with_effect(Effect::None))?;
        self.settings_fit(!direct)?;
        Ok(self.session(connection, !direct))
    }

    /// The caller's own settings would be lost, and with them, say, the schema of the table.
    fn settings_fit(&self, pooled: bool) -> Result<()> {
        if !pooled || self.plain.get_options().is_none() {
            return Ok(());
        }
        let text = "a pooler is in between and takes no session settings: leave options out of the URL and PGOPTIONS out \
                    of the environment, and name the schema by lock_schema";
        Err(Error::new(ErrorKind::Config, text))
    }

    fn session(&self, connection: PgConnection, pooled: bool) -> Session {
        let preamble = pooled.then(|| Arc::clone(&self.preamble));
        Session {
            connection,
            preamble,
        }
    }
}

/// What holds for every statement, direct or not.
fn settings(limit: Duration) -> [(&'static str, String); 3] {
    [
        ("synchronous_commit", "on".to_owned()),
        ("lock_timeout", millis(limit, 8)),
        ("statement_timeout", millis(limit, 9)),
    ]
}

/// So many tenths of the limit.
fn millis(limit: Duration, tenths: u32) -> String {
    (limit / 10 * tenths).as_millis().max(1).to_string()
}

/// What the preamble is preceded by wherever the server is no standby: another client of the pooler may have made its
/// session one that only reads.
const READ_WRITE: &str = "SET TRANSACTION READ WRITE; ";

/// The same settings for one transaction, and some that other clients of the pooler may have left otherwise. They end
/// with the transaction, so that those clients never meet them.
fn preamble(settings: &[(&str, String)]) -> String {
    let mut sql = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                   SET LOCAL role TO DEFAULT; \
                   SET LOCAL search_path TO DEFAULT; \
                   SET LOCAL bytea_output = hex; "
        .to_owned();
    for (name, value) in settings {
        write!(sql, "SET LOCAL {name} = {value}; ").expect("a String takes all");
    }
    sql
}
