//! How the conformance suite opens and spoils a store. The tables stay, so that second processes find them by name.

use std::process::ExitCode;

use distlock_api::{LockName, Result};
use distlock_conformance::{StoreError, Suite};
use distlock_mysql::{MySqlBackend, Table, schema_sql};
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::common::{RIGHTS, Server};

const TABLE: &str = "test_conformance";
const FLUSHED: &str = "test_conformance_flushed";
const USER: &str = "'test_conformance'@'%'";

pub(crate) fn run(name: &str, server: Server) -> ExitCode {
    Suite::with_admin(name, move || open(server, TABLE))
        .forget(move |name| forget(server, name))
        .flush(move || open(server, FLUSHED), move || empty(server))
        .server(move || version(server))
        .rules_run(96)
        .run()
}

/// The backend under test may do what its documentation asks for, on this one table, and nothing else.
async fn open(
    server: Server,
    table: &'static str,
) -> std::result::Result<MySqlBackend, StoreError> {
    let mut session = server.session().await;
    let table = Table::new(table)?;
    execute(&mut session, &schema_sql(&table)).await?;
    execute(
        &mut session,
        &format!("CREATE USER IF NOT EXISTS {USER} IDENTIFIED BY 'canary'"),
    )
    .await?;
    execute(
        &mut session,
        &format!("GRANT {RIGHTS} ON {table} TO {USER}"),
    )
    .await?;
    let options = server
        .options()
        .username("test_conformance")
        .password("canary");
    Ok(backend(table, options)?)
}

fn backend(table: Table, options: sqlx::mysql::MySqlConnectOptions) -> Result<MySqlBackend> {
    MySqlBackend::builder().table(table).for_options(options)
}

async fn forget(server: Server, name: LockName) -> sqlx::Result<()> {
    let delete = sqlx::query(AssertSqlSafe(format!("DELETE FROM {TABLE} WHERE name = ?")));
    let mut session = server.session().await;
    delete.bind(name.as_str()).execute(&mut session).await?;
    Ok(())
}

async fn empty(server: Server) -> sqlx::Result<()> {
    let mut session = server.session().await;
    execute(&mut session, &format!("TRUNCATE {FLUSHED}")).await
}

async fn version(server: Server) -> sqlx::Result<String> {
    let version = sqlx::query_scalar("SELECT VERSION()");
    let version: String = version.fetch_one(&mut server.session().await).await?;
    let number = version.split('-').next().unwrap_or_default();
    Ok(match server {
        Server::MySql => format!("MySQL {number}"),
        Server::MariaDb => format!("MariaDB {number}"),
    })
}

async fn execute(session: &mut MySqlConnection, sql: &str) -> sqlx::Result<()> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(session)
        .await;
    done.map(drop)
}
