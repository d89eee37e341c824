//! A table and a user of its own for each test, so that tests run side by side, on both servers.
#![allow(
    dead_code,
    unreachable_pub,
    unused_macros,
    clippy::unwrap_used,
    reason = "test code, of which every file uses a part"
)]

pub mod proxy;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock_api::{AcquireRequest, Attempt, LockBackend, LockName, clock};
use distlock_mysql::{Builder, MySqlBackend, Table, schema_sql};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool};

pub const LEASE: Duration = Duration::from_secs(60);

/// What the backends of most tests connect as.
pub const RIGHTS: &str = "SELECT, INSERT, UPDATE, DELETE";

/// A server to test on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    MySql,
    MariaDb,
}

/// Makes a test for each server of a function that takes one; with `in FUNCTION:`, inside of that function.
macro_rules! on_both {
    (in $around:ident: $($name:ident),* $(,)?) => {
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$around(super::$name(super::common::Server::MySql)).await;
            })*
        }
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$around(super::$name(super::common::Server::MariaDb)).await;
            })*
        }
    };
    ($($name:ident),* $(,)?) => {
        use std::convert::identity as alone;
        on_both![in alone: $($name),*];
    };
}

impl Server {
    /// The URL of a user who may do everything.
    pub fn url(self) -> String {
        let variable = match self {
            Self::MySql => "DISTLOCK_TEST_MYSQL_URL",
            Self::MariaDb => "DISTLOCK_TEST_MARIADB_URL",
        };
        std::env::var(variable).unwrap_or_else(|_| {
            panic!(
                "no test server: run `cargo xtask test`, or set {variable} to a {self:?} whose user may create databases and users"
            )
        })
    }

    pub fn options(self) -> MySqlConnectOptions {
        // The scheme mariadb: is ours and not the driver's.
        let url = self.url().replacen("mariadb:", "mysql:", 1);
        url.parse().unwrap()
    }

    pub fn database(self) -> String {
        self.options().get_database().unwrap().to_owned()
    }

    pub async fn session(self) -> MySqlConnection {
        connect(&self.options()).await
    }

    pub async fn pool_of_one(self) -> MySqlPool {
        let pool = MySqlPoolOptions::new().max_connections(1);
        pool.connect_with(self.options()).await.unwrap()
    }

    /// Asks, in a session of its own, until the answer is yes.
    pub async fn until(self, sql: &str) {
        let mut session = self.session().await;
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
}

pub async fn connect(options: &MySqlConnectOptions) -> MySqlConnection {
    MySqlConnection::connect_with(options).await.unwrap()
}

/// A name that no other test uses, short enough for a user's.
pub fn unique(label: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test_{label}_{}_{count}", std::process::id())
}

pub struct Store {
    pub server: Server,
    pub table: String,
    pub user: String,
    /// A session beside the backend, for looking and for meddling.
    pub session: MySqlConnection,
}

impl Store {
    /// A table that is there, and a user with the least rights that all of the backend's calls need.
    pub async fn new(server: Server, label: &str) -> Self {
        let mut store = Self::without_rights(server, label).await;
        let sql = schema_sql(&Table::new(&store.table).unwrap());
        store.run(&sql).await;
        store.grant(RIGHTS).await;
        store
    }

    /// A user who may make the table.
    pub async fn without_table(server: Server, label: &str) -> Self {
        let mut store = Self::without_rights(server, label).await;
        store.grant(&format!("{RIGHTS}, CREATE")).await;
        store
    }

    async fn without_rights(server: Server, label: &str) -> Self {
        let (table, user) = (unique(label), unique("u"));
        let mut store = Self {
            server,
            table,
            user,
            session: server.session().await,
        };
        // So that what waits for ever fails.
        store
            .run("SET lock_wait_timeout = 60, innodb_lock_wait_timeout = 60")
            .await;
        store.run("CREATE USER $USER IDENTIFIED BY 'canary'").await;
        store
    }

    pub async fn grant(&mut self, rights: &str) {
        self.run(&format!("GRANT {rights} ON {{}} TO $USER")).await;
    }

    pub async fn revoke(&mut self, rights: &str) {
        self.run(&format!("REVOKE {rights} ON {{}} FROM $USER"))
            .await;
    }

    pub fn builder(&self) -> Builder {
        MySqlBackend::builder().table(Table::new(&self.table).unwrap())
    }

    pub fn backend(&self) -> MySqlBackend {
        self.builder().for_options(self.options()).unwrap()
    }

    /// As the user with the least rights, whose sessions are the backends' and nobody else's.
    pub fn options(&self) -> MySqlConnectOptions {
        let options = self.server.options();
        options.username(&self.user).password("canary")
    }

    /// Waits until so many sessions of our backends wait for a row or a table that another session keeps locked.
    pub async fn until_waiting(&self, sessions: u32) {
        let mine = self.processes();
        self.server
            .until(&format!(
                "SELECT COUNT(*) = {sessions} FROM ({mine}) AS mine WHERE command IN ('Execute', 'Query')
                 AND (state LIKE 'Waiting for%lock' OR state IN ('updating', 'update'))"
            ))
            .await;
    }

    /// How many sessions our backends have.
    pub async fn sessions(&mut self) -> i64 {
        let mine = self.processes();
        self.value(&format!("SELECT COUNT(*) FROM ({mine}) AS mine"))
            .await
    }

    /// Ends the sessions of our backends, as an operator or a failover would.
    pub async fn kill(&mut self) {
        self.end_sessions().await;
        let mine = self.processes();
        let gone = format!("SELECT COUNT(*) = 0 FROM ({mine}) AS mine");
        self.server.until(&gone).await;
    }

    /// The same without waiting until they are gone.
    pub async fn end_sessions(&mut self) {
        self.end("KILL").await;
    }

    /// Ends what they are doing.
    pub async fn end_statements(&mut self) {
        self.end("KILL QUERY").await;
    }

    async fn end(&mut self, kill: &str) {
        let mine = self.processes();
        let ids = format!("SELECT CAST(GROUP_CONCAT(id) AS CHAR) FROM ({mine}) AS mine");
        let ids: Option<String> = self.value(&ids).await;
        for id in ids.expect("a session to end").split(',') {
            // It may be gone already.
            let kill = sqlx::raw_sql(AssertSqlSafe(format!("{kill} {id}")));
            kill.execute(&mut self.session).await.ok();
        }
    }

    /// The sessions of our backends: id, command, state. MySQL's list of processes fails where a statement has bytes that
    /// are no text.
    pub fn processes(&self) -> String {
        let user = &self.user;
        match self.server {
            Server::MySql => format!(
                "SELECT processlist_id AS id, processlist_command AS command, processlist_state AS state
                 FROM performance_schema.threads WHERE processlist_user = '{user}'"
            ),
            Server::MariaDb => format!(
                "SELECT id, command, state FROM information_schema.processlist WHERE user = '{user}'"
            ),
        }
    }

    /// Runs SQL, with the table put in for `{}` and the user for `$USER`.
    pub async fn run(&mut self, sql: &str) {
        let sql = self.fill(sql);
        let done = sqlx::raw_sql(AssertSqlSafe(sql.clone()));
        let done = done.execute(&mut self.session).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The one value that the SQL gives.
    pub async fn value<T>(&mut self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::MySql> + sqlx::Type<sqlx::MySql> + Send + Unpin,
    {
        let sql = AssertSqlSafe(self.fill(sql));
        let value = sqlx::query_scalar(sql).persistent(false);
        value.fetch_one(&mut self.session).await.unwrap()
    }

    fn fill(&self, sql: &str) -> String {
        let user = format!("'{}'@'%'", self.user);
        sql.replace("{}", &self.table).replace("$USER", &user)
    }

    pub async fn close(mut self) {
        self.run("DROP TABLE IF EXISTS {}; DROP USER $USER").await;
    }
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
pub async fn acquire(backend: &MySqlBackend, text: &str) -> (AcquireRequest, u64) {
    let request = request(text);
    let attempt = backend.try_acquire(&request).await.unwrap();
    let fence = granted(&attempt).unwrap_or_else(|| panic!("not granted: {attempt:?}"));
    (request, fence)
}
