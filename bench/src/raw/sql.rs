//! Two updates of a row that is like that of a lock, each committed by itself.

use anyhow::{Result, ensure};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, PgConnection, SqliteConnection,
};
use url::Url;

use super::{NAME, Served};

pub(crate) struct RawPostgres(PgConnection);

impl RawPostgres {
    pub(super) async fn open(url: &Url) -> Result<Self> {
        Ok(Self(PgConnection::connect(url.as_str()).await?))
    }

    pub(super) async fn cycle(&mut self) -> Result<()> {
        for _ in 0..2 {
            let update = "UPDATE distlock_bench_raw SET fence = fence + 1 WHERE name = $1";
            let done = sqlx::query(update).bind(NAME).execute(&mut self.0).await?;
            ensure!(done.rows_affected() == 1, "no raw row");
        }
        Ok(())
    }

    pub(super) async fn version(&mut self) -> Result<String> {
        let question = "SELECT split_part(current_setting('server_version'), ' ', 1)";
        let version: String = sqlx::query_scalar(question).fetch_one(&mut self.0).await?;
        Ok(format!("PostgreSQL {version}"))
    }

    pub(super) async fn served(&mut self) -> Result<Served> {
        // The next id: transactions that write take one each. The counts of pg_stat_database come seconds late.
        let question = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
        let count: i64 = sqlx::query_scalar(question).fetch_one(&mut self.0).await?;
        Ok(Served {
            unit: "writing transactions",
            count: count.cast_unsigned(),
        })
    }

    pub(super) async fn drop_all(&mut self, table: &str) -> Result<()> {
        let drop = AssertSqlSafe(format!("DROP TABLE IF EXISTS {table}"));
        sqlx::raw_sql(drop).execute(&mut self.0).await?;
        Ok(())
    }
}

/// MySQL or MariaDB.
pub(crate) struct RawMySql(MySqlConnection);

impl RawMySql {
    pub(super) async fn open(url: &Url) -> Result<Self> {
        Ok(Self(MySqlConnection::connect(url.as_str()).await?))
    }

    pub(super) async fn cycle(&mut self) -> Result<()> {
        for _ in 0..2 {
            let update = "UPDATE distlock_bench_raw SET fence = fence + 1 WHERE name = ?";
            let done = sqlx::query(update).bind(NAME).execute(&mut self.0).await?;
            ensure!(done.rows_affected() == 1, "no raw row");
        }
        Ok(())
    }

    pub(super) async fn version(&mut self) -> Result<String> {
        let question = "SELECT VERSION()";
        let version: String = sqlx::query_scalar(question).fetch_one(&mut self.0).await?;
        Ok(match version.split_once("-MariaDB") {
            Some((version, _)) => format!("MariaDB {version}"),
            None => format!("MySQL {version}"),
        })
    }

    pub(super) async fn served(&mut self) -> Result<Served> {
        let question = "SHOW GLOBAL STATUS LIKE 'Questions'";
        let (_, count): (String, String) = sqlx::query_as(question).fetch_one(&mut self.0).await?;
        Ok(Served {
            unit: "statements",
            count: count.parse()?,
        })
    }

    pub(super) async fn drop_all(&mut self, table: &str) -> Result<()> {
        let drop = AssertSqlSafe(format!("DROP TABLE IF EXISTS {table}"));
        sqlx::raw_sql(drop).execute(&mut self.0).await?;
        Ok(())
    }
}

pub(crate) struct RawSqlite(SqliteConnection);

impl RawSqlite {
    /// With the pragmas of the locks' own connection; the write-ahead log is a property of the file.
    pub(super) async fn open(url: &Url) -> Result<Self> {
        let options: SqliteConnectOptions = url.as_str().parse()?;
        let options = options.synchronous(SqliteSynchronous::Extra);
        Ok(Self(options.connect().await?))
    }

    pub(super) async fn cycle(&mut self) -> Result<()> {
        for _ in 0..2 {
            let update = "BEGIN IMMEDIATE; \
                          UPDATE distlock_bench_raw SET fence = fence + 1 WHERE name = ?1; \
                          COMMIT";
            sqlx::query(update).bind(NAME).execute(&mut self.0).await?;
        }
        Ok(())
    }

    pub(super) async fn version(&mut self) -> Result<String> {
        let question = "SELECT sqlite_version()";
        let version: String = sqlx::query_scalar(question).fetch_one(&mut self.0).await?;
        Ok(format!("SQLite {version}"))
    }
}
