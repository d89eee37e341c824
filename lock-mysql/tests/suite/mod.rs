//! How the conformance suite opens and spoils a store. The tables stay, so that second processes find them by name.

use std::net::SocketAddr;
use std::process::ExitCode;

use distlock_api::{LockName, Result};
use distlock_conformance::{StoreError, Suite};
use distlock_mysql::{MySqlBackend, Table, schema_sql};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::common::{RIGHTS, Server};

const TABLE: &str = "test_conformance";
const FLUSHED: &str = "test_conformance_flushed";
const USER: &str = "'test_conformance'@'%'";

pub(crate) fn run(name: &str, server: Server) -> ExitCode {
    Suite::with_admin(name, move || open(server, TABLE))
        .forget(move |name| forget(server, name))
        .flush(move || open(server, FLUSHED), move || empty(server))
        .link(&address(server), move |address| open_at(server, address))
        .server(move || version(server))
        .rules_run(116)
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
    Ok(backend(table, least(server))?)
}

fn least(server: Server) -> MySqlConnectOptions {
    let options = server.options().username("test_conformance");
    options.password("canary")
}

/// Where the server is.
fn address(server: Server) -> String {
    let options = server.options();
    format!("{}:{}", options.get_host(), options.get_port())
}

async fn open_at(
    server: Server,
    address: SocketAddr,
) -> std::result::Result<MySqlBackend, StoreError> {
    open(server, TABLE).await?;
    let options = least(server).host("127.0.0.1").port(address.port());
    Ok(backend(Table::new(TABLE)?, options)?)
}

fn backend(table: Table, options: MySqlConnectOptions) -> Result<MySqlBackend> {
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
