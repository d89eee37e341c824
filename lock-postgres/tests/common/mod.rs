//! A table of its own for each test, so that tests run side by side.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "test code, of which every file uses a part"
)]

pub mod proxy;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock_api::{
    AcquireRequest, Attempt, Error, LockAdmin, LockBackend, LockName, Operation, clock,
};
use distlock_postgres::{Builder, PostgresBackend, Table};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

pub const LEASE: Duration = Duration::from_secs(60);

/// The test server's URL.
pub fn url() -> String {
    std::env::var("DISTLOCK_TEST_POSTGRES_URL").expect(
        "no test server: run `cargo xtask test`, or set DISTLOCK_TEST_POSTGRES_URL to a \
         PostgreSQL whose user may create tables and roles",
    )
}

pub fn options() -> PgConnectOptions {
    url().parse().unwrap()
}

/// The URL of a PgBouncer in transaction mode before the same server.
pub fn pooler_url() -> String {
    std::env::var("DISTLOCK_TEST_PGBOUNCER_URL").expect(
        "no test pooler: run `cargo xtask test`, or set DISTLOCK_TEST_PGBOUNCER_URL to a PgBouncer \
         in transaction mode before the server that DISTLOCK_TEST_POSTGRES_URL names",
    )
}

pub fn pooler_options() -> PgConnectOptions {
    // What PgBouncer refuses unless it is told to ignore it.
    let options: PgConnectOptions = pooler_url().parse().unwrap();
    options.extra_float_digits(None)
}

/// A name that no other test uses.
pub fn unique(label: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test_{label}_{}_{count}", std::process::id())
}

pub struct Store {
    pub table: String,
    /// A session beside the backend, for looking and for meddling.
    pub session: PgConnection,
    role: Option<String>,
}

impl Store {
    /// A table that is there.
    pub async fn new(label: &str) -> Self {
        let store = Self::without_table(label).await;
        store.backend().migrate().await.unwrap();
        store
    }

    pub async fn without_table(label: &str) -> Self {
        Self {
            table: unique(label),
            session: session().await,
            role: None,
        }
    }

    pub fn builder(&self) -> Builder {
        PostgresBackend::builder().table(Table::new(&self.table).unwrap())
    }

    pub fn backend(&self) -> PostgresBackend {
        self.builder().for_options(self.options()).unwrap()
    }

    /// Options whose sessions bear the table's name.
    pub fn options(&self) -> PgConnectOptions {
        options().application_name(&self.table)
    }

    /// Waits until so many sessions of our backends wait for another session's lock.
    pub async fn until_waiting(&self, sessions: u32) {
        let table = &self.table;
        until(&format!(
            "SELECT count(*) = {sessions} FROM pg_stat_activity
             WHERE application_name = '{table}' AND wait_event_type = 'Lock'"
        ))
        .await;
    }

    /// Runs SQL, with the table put in for `{}`.
    pub async fn run(&mut self, sql: &str) {
        let sql = sql.replace("{}", &self.table);
        let done = sqlx::raw_sql(AssertSqlSafe(sql.clone()));
        let done = done.execute(&mut self.session).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The one value that the SQL gives.
    pub async fn value<T>(&mut self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let sql = AssertSqlSafe(sql.replace("{}", &self.table));
        let value = sqlx::query_scalar(sql).persistent(false);
        value.fetch_one(&mut self.session).await.unwrap()
    }

    /// A role of the test's own with all rights on the table; its name, and the options to connect as it.
    pub async fn role(&mut self) -> (String, PgConnectOptions) {
        let role = unique("role");
        self.run(&format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'canary'; GRANT ALL ON {{}} TO {role}"
        ))
        .await;
        self.role = Some(role.clone());
        let options = options().username(&role).password("canary");
        (role, options)
    }

    pub async fn close(mut self) {
        self.run("DROP TABLE IF EXISTS {}").await;
        if let Some(role) = self.role.take() {
            self.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
                .await;
        }
    }
}

pub async fn session() -> PgConnection {
    PgConnection::connect(&url()).await.unwrap()
}

/// Asks, in a session of its own, until the answer is yes.
pub async fn until(sql: &str) {
    let mut session = session().await;
    let asking = async {
        loop {
            let question = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
            if question.fetch_one(&mut session).await.unwrap() {
                return;
            }
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = clock::timeout(Duration::from_secs(60), asking).await;
    assert!(done.is_some(), "never true: {sql}");
}

/// Waits until a session of this application waits for another session's lock.
pub async fn until_waits(application: &str) {
    until(&format!(
        "SELECT count(*) > 0 FROM pg_stat_activity
         WHERE application_name = '{application}' AND wait_event_type = 'Lock'"
    ))
    .await;
}

pub async fn pool_of_one() -> PgPool {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    pool.connect(&url()).await.unwrap()
}

pub fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub fn request(text: &str) -> AcquireRequest {
    AcquireRequest::new(name(text), "test", LEASE)
}

/// The fencing token of a grant.
pub fn granted(attempt: &Attempt) -> Option<u64> {
    match attempt {
        Attempt::Acquired { fencing_token } => fencing_token.map(|fence| fence.value()),
        _ => None,
    }
}

/// Takes a lock that is free.
pub async fn acquire(backend: &PostgresBackend, text: &str) -> (AcquireRequest, u64) {
    let request = request(text);
    let attempt = backend.try_acquire(&request).await.unwrap();
    let fence = granted(&attempt).unwrap_or_else(|| panic!("not granted: {attempt:?}"));
    (request, fence)
}

/// The first fault that a check finds, as lock calls report it.
pub async fn fault(backend: &PostgresBackend) -> Error {
    let findings = backend.check().await.unwrap();
    let fault = findings.usable().unwrap_err();
    fault.during("postgres", Operation::Check)
}
