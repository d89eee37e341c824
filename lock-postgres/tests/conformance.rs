//! The rules of the family, on a real server. The tables stay, so that second processes find them by name.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use distlock_api::{LockAdmin, LockName, Result};
use distlock_conformance::Suite;
use distlock_postgres::{PostgresBackend, Table};
use sqlx::AssertSqlSafe;

const TABLE: &str = "test_conformance";
const FLUSHED: &str = "test_conformance_flushed";

async fn open(table: &str) -> Result<PostgresBackend> {
    let builder = PostgresBackend::builder().table(Table::new(table)?);
    let backend = builder.connect(&common::url()).await?;
    backend.migrate().await?;
    Ok(backend)
}

/// Where the server is.
fn server() -> String {
    let options = common::options();
    format!("{}:{}", options.get_host(), options.get_port())
}

async fn open_at(address: SocketAddr) -> Result<PostgresBackend> {
    let options = common::options().host("127.0.0.1").port(address.port());
    PostgresBackend::builder()
        .table(Table::new(TABLE)?)
        .for_options(options)
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

fn main() -> ExitCode {
    Suite::with_admin("postgres", || open(TABLE))
        .forget(forget)
        .flush(|| open(FLUSHED), empty)
        .link(&server(), open_at)
        .rules_run(106)
        .run()
}
