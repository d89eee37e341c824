//! Where a test takes place: a store, servers of it, and clients.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use std::sync::Arc;

use distlock::{Lock, Locks};
use distlock_test_servers::{Server, Setup, mariadb, postgres, redis};
use redis_driver::FromRedisValue;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::catalogue::Store;

/// How long anything may take that should happen soon, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A lease that no delay of a busy machine outlasts.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The lock that it is about.
pub(crate) const NAME: &str = "job";

/// The data that servers start from, made once.
#[derive(Default)]
pub(crate) struct Templates {
    postgres: OnceCell<postgres::Template>,
    mariadb: OnceCell<mariadb::Template>,
}

pub(crate) struct Ground {
    pub(crate) store: Store,
    templates: Arc<Templates>,
}

impl Ground {
    pub(crate) fn new(store: Store, templates: Arc<Templates>) -> Self {
        Self { store, templates }
    }

    /// A server that keeps its data over a crash, ready for locks.
    pub(crate) async fn server(&self) -> Server {
        self.start(self.with_memory()).await
    }

    /// The same, on a clock of its own.
    pub(crate) async fn server_with_clock(&self) -> Server {
        self.start(self.with_memory().own_clock()).await
    }

    /// What makes it keep its data: the databases do so anyway.
    pub(crate) fn with_memory(&self) -> Setup {
        let setup = Setup::new();
        match self.store {
            Store::Redis => setup.with(["--appendonly", "yes", "--appendfsync", "always"]),
            Store::Postgres | Store::MariaDb => setup,
        }
    }

    pub(crate) async fn start(&self, setup: Setup) -> Server {
        let server = match self.store {
            Store::Redis => redis::start(&setup).await,
            Store::Postgres => self.postgres().await.start(&setup).await,
            Store::MariaDb => {
                let template = self
                    .templates
                    .mariadb
                    .get_or_try_init(mariadb::Template::new);
                template.await.unwrap().start(&setup).await
            }
        };
        let server = server.unwrap();
        distlock::open(server.url())
            .await
            .unwrap()
            .migrate()
            .await
            .unwrap();
        server
    }

    pub(crate) async fn postgres(&self) -> &postgres::Template {
        let template = self
            .templates
            .postgres
            .get_or_try_init(postgres::Template::new);
        template.await.unwrap()
    }

    /// A client of its own.
    pub(crate) async fn locks(&self, server: &Server) -> Locks {
        distlock::connect(server.url()).await.unwrap()
    }

    /// What an operator's mistake does: the records of all locks are gone.
    pub(crate) async fn forget(&self, server: &Server) {
        match self.store {
            Store::Redis => redis_asked(server, &["FLUSHALL"]).await,
            Store::Postgres => {
                let mut session = PgConnection::connect(server.url()).await.unwrap();
                let delete = sqlx::raw_sql("DELETE FROM distlock_locks");
                delete.execute(&mut session).await.unwrap();
            }
            Store::MariaDb => mariadb_told(server, "DELETE FROM distlock_locks").await,
        }
    }

    /// A copy of the data of a server that does not run.
    pub(crate) fn backup(&self, server: &Server) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(
            &server.folder().join(self.data()),
            &copy.path().join(self.data()),
        );
        copy
    }

    pub(crate) fn restore(&self, server: &Server, backup: &TempDir) {
        let data = server.folder().join(self.data());
        std::fs::remove_dir_all(&data).unwrap();
        copy_all(&backup.path().join(self.data()), &data);
    }

    fn data(&self) -> &'static str {
        match self.store {
            Store::Redis => "appendonlydir",
            Store::Postgres | Store::MariaDb => "data",
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

/// The lock, renewed for as long as its holder lives.
pub(crate) fn watched(locks: &Locks, ttl: Duration) -> Lock {
    locks.lock(NAME).unwrap().watchdog(ttl)
}

/// The lock, for so long and no longer.
pub(crate) fn fixed(locks: &Locks, lease: Duration) -> Lock {
    locks.lock(NAME).unwrap().at_most_for(lease)
}

/// Runs a command.
pub(crate) async fn redis_asked<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    let client = redis_driver::Client::open(server.url()).unwrap();
    let config = redis_driver::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await.unwrap();
    let (name, arguments) = words.split_first().unwrap();
    let mut command = redis_driver::cmd(name);
    command.arg(arguments);
    command.query_async(&mut connection).await.unwrap()
}

/// The one value that the SQL gives.
pub(crate) async fn postgres_asked<T>(server: &Server, sql: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    let mut session = PgConnection::connect(server.url()).await.unwrap();
    let sql = AssertSqlSafe(sql.to_owned());
    let value = sqlx::query_scalar(sql).persistent(false);
    value.fetch_one(&mut session).await.unwrap()
}

pub(crate) async fn mariadb_told(server: &Server, sql: &str) {
    let mut session = MySqlConnection::connect(server.url()).await.unwrap();
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    sql.execute(&mut session).await.unwrap();
}

/// Between two looks.
pub(crate) async fn soon() {
    distlock::clock::sleep(Duration::from_millis(10)).await;
}
