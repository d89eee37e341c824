//! The rules of the family through PgBouncer in transaction mode, which the backend finds out by itself.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use distlock_api::{LockAdmin, LockName, Result};
use distlock_conformance::Suite;
use distlock_postgres::{PostgresBackend, Table};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

const TABLE: &str = "test_pgbouncer";
const FLUSHED: &str = "test_pgbouncer_flushed";

async fn open(table: &str) -> Result<PostgresBackend> {
    let builder = PostgresBackend::builder().table(Table::new(table)?);
    let backend = builder.connect(&common::pooler_url()).await?;
    backend.migrate().await?;
    Ok(backend)
}

/// Where the pooler is.
fn address() -> String {
    let options = common::pooler_options();
    format!("{}:{}", options.get_host(), options.get_port())
}

async fn open_at(address: SocketAddr) -> Result<PostgresBackend> {
    open(TABLE).await?;
    let url = common::pooler_url().replace(&self::address(), &address.to_string());
    let builder = PostgresBackend::builder().table(Table::new(TABLE)?);
    builder.connect(&url).await
}

async fn forget(name: LockName) -> sqlx::Result<()> {
    let delete = sqlx::query(AssertSqlSafe(format!(
        "DELETE FROM {TABLE} WHERE name = $1"
    )));
    let mut session = common::session().await;
    delete.bind(name.as_str()).execute(&mut session).await?;
    Ok(())
}

async fn empty() -> sqlx::Result<()> {
    let truncate = sqlx::raw_sql(AssertSqlSafe(format!("TRUNCATE {FLUSHED}")));
    truncate.execute(&mut common::session().await).await?;
    Ok(())
}

/// Its console is a database of this name, which speaks in texts only.
async fn version() -> sqlx::Result<String> {
    let console = common::pooler_options().database("pgbouncer");
    let mut console = PgConnection::connect_with(&console).await?;
    let row = sqlx::raw_sql("SHOW VERSION")
        .fetch_one(&mut console)
        .await?;
    row.try_get(0)
}

fn main() -> ExitCode {
    Suite::with_admin("pgbouncer", || open(TABLE))
        .forget(forget)
        .flush(|| open(FLUSHED), empty)
        .link(&address(), open_at)
        .server(version)
        .rules_run(116)
        .run()
}
