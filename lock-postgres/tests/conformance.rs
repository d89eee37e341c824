//! The rules of the family, on a real server, for clients that have the least rights and nothing else. The tables stay, so
//! that second processes find them by name.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use distlock_api::{LockAdmin, LockName, Result};
use distlock_conformance::Suite;
use distlock_postgres::{PostgresBackend, Table};
use sqlx::AssertSqlSafe;
use tokio::sync::OnceCell;

const TABLE: &str = "test_conformance";
const FLUSHED: &str = "test_conformance_flushed";

/// Once in each process.
static LOCKS_MADE: OnceCell<()> = OnceCell::const_new();
static FLUSHED_MADE: OnceCell<()> = OnceCell::const_new();

/// What its clients act as. It cannot log in by itself.
const ROLE: &str = "test_conformance_least";

/// As the role, which may not make a table: the owner has.
async fn open(table: &'static str, made: &OnceCell<()>) -> Result<PostgresBackend> {
    let builder = || Table::new(table).map(|table| PostgresBackend::builder().table(table));
    let make = async || {
        builder()?.connect(&common::url()).await?.migrate().await?;
        grant(table).await.expect("the owner may create a role");
        Ok::<_, distlock_api::Error>(())
    };
    made.get_or_try_init(make).await?;
    builder()?.connect(&least(&common::url())).await
}

fn least(url: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}options[role]={ROLE}")
}

/// The rights that the documentation asks for.
async fn grant(table: &str) -> sqlx::Result<()> {
    let sql = format!(
        "SELECT pg_advisory_xact_lock(hashtext('{ROLE}'));
         DO $$ BEGIN
             IF to_regrole('{ROLE}') IS NULL THEN
                 CREATE ROLE {ROLE};
                 GRANT USAGE ON SCHEMA public TO {ROLE};
             END IF;
             IF NOT has_table_privilege('{ROLE}', '{table}', 'DELETE') THEN
                 GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {ROLE};
             END IF;
         END $$"
    );
    let mut session = common::session().await;
    let granted = sqlx::raw_sql(AssertSqlSafe(sql));
    granted.execute(&mut session).await.map(drop)
}

/// Where the server is.
fn address() -> String {
    let options = common::options();
    format!("{}:{}", options.get_host(), options.get_port())
}

async fn open_at(address: SocketAddr) -> Result<PostgresBackend> {
    open(TABLE, &LOCKS_MADE).await?;
    let url = common::url().replace(&self::address(), &address.to_string());
    let builder = PostgresBackend::builder().table(Table::new(TABLE)?);
    builder.connect(&least(&url)).await
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

async fn version() -> sqlx::Result<String> {
    let version = sqlx::query_scalar("SHOW server_version");
    let version: String = version.fetch_one(&mut common::session().await).await?;
    // What follows a space names the package.
    let number = version.split(' ').next().unwrap_or_default();
    Ok(format!("PostgreSQL {number}"))
}

fn main() -> ExitCode {
    Suite::with_admin("postgres", || open(TABLE, &LOCKS_MADE))
        .forget(forget)
        .flush(|| open(FLUSHED, &FLUSHED_MADE), empty)
        .link(&address(), open_at)
        .server(version)
        .rules_run(116)
        .run()
}
