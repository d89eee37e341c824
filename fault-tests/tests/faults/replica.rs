//! A replica of a server: how it follows, and how it takes over.

use distlock_test_servers::{Server, Setup, redis};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use crate::catalogue::Store;
use crate::ground::{Ground, mariadb_told, postgres_asked, redis_asked, soon};

impl Ground {
    /// A server that can have replicas.
    pub(crate) async fn primary(&self) -> Server {
        let setup = self.with_memory();
        self.start(match self.store {
            Store::MariaDb => setup.with(["--log-bin=binary", "--server-id=1"]),
            Store::Redis | Store::Postgres => setup,
        })
        .await
    }

    /// One that follows the other until it is [promoted](Self::promote).
    pub(crate) async fn replica(&self, primary: &Server, setup: Setup) -> Server {
        match self.store {
            Store::Redis => redis::replica(primary, &setup).await.unwrap(),
            Store::Postgres => {
                let template = self.postgres().await;
                template.standby(primary, &setup).await.unwrap()
            }
            Store::MariaDb => {
                // It has its own table of locks, which is as empty as that of the primary.
                let replica = self.start(setup.with(["--server-id=2"])).await;
                let (file, position) = log_end(primary).await;
                let password = primary.url().split([':', '@']).nth(2).unwrap();
                let follow = format!(
                    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'distlock',
                     MASTER_PASSWORD = '{password}', MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {position};
                     START SLAVE",
                    primary.port()
                );
                mariadb_told(&replica, &follow).await;
                replica
            }
        }
    }

    /// Waits until the replica has all that the primary has.
    pub(crate) async fn caught_up(&self, primary: &Server, replica: &Server) {
        match self.store {
            Store::Redis => {
                let replicas: i64 = redis_asked(primary, &["WAIT", "1", "60000"]).await;
                assert_eq!(replicas, 1, "no replica follows");
            }
            Store::Postgres => {
                let written = "SELECT pg_current_wal_flush_lsn()::text";
                let written: String = postgres_asked(primary, written).await;
                let there = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
                while !postgres_asked::<bool>(replica, &there).await {
                    soon().await;
                }
            }
            Store::MariaDb => {
                let (file, position) = log_end(primary).await;
                let wait = format!("SELECT MASTER_POS_WAIT('{file}', {position}, 60) >= 0");
                let mut session = MySqlConnection::connect(replica.url()).await.unwrap();
                let there =
                    sqlx::query_scalar::<_, bool>(AssertSqlSafe(wait)).fetch_one(&mut session);
                assert!(there.await.unwrap(), "the replica does not follow");
            }
        }
    }

    pub(crate) async fn promote(&self, replica: &Server) {
        match self.store {
            Store::Redis => redis_asked(replica, &["REPLICAOF", "NO", "ONE"]).await,
            Store::Postgres => {
                assert!(postgres_asked::<bool>(replica, "SELECT pg_promote()").await);
            }
            Store::MariaDb => mariadb_told(replica, "STOP SLAVE").await,
        }
    }
}

/// Up to where a MariaDB has written its binary log.
async fn log_end(primary: &Server) -> (String, u64) {
    let mut session = MySqlConnection::connect(primary.url()).await.unwrap();
    let status = sqlx::raw_sql("SHOW MASTER STATUS").fetch_one(&mut session);
    let status = status.await.unwrap();
    (status.get("File"), status.get("Position"))
}
