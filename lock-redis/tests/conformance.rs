//! The rules that every store is held to, under no more rights than the documentation names.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use distlock_api::LockName;
use distlock_conformance::{StoreError, Suite};
use distlock_redis::RedisBackend;
use distlock_redis::redis::aio::MultiplexedConnection;
use distlock_redis::redis::{Client, cmd};
use url::Url;

/// Of users who may use the keys of these rules only.
const PASSWORD: &str = "conformance";
const PREFIX: &str = "conformance:";
const DISPOSABLE: &str = "conformance-disposable:";

fn main() -> ExitCode {
    Suite::with_admin("redis", || open(PREFIX))
        .forget(forget)
        .flush(|| open(DISPOSABLE), empty)
        .link(&address().unwrap_or_default(), open_at)
        .server(version)
        .rules_run(111)
        .run()
}

/// A client whose user may do no more than locks need, on the keys of locks.
async fn open(prefix: &str) -> Result<RedisBackend, StoreError> {
    let url = least(prefix).await?;
    Ok(RedisBackend::builder()
        .prefix(prefix)
        .connect(url.as_str())
        .await?)
}

/// The URL of a user who may do that.
async fn least(prefix: &str) -> Result<Url, StoreError> {
    let mut url = Url::parse(&given_url()?)?;
    let user = format!("least-{}", prefix.trim_end_matches(':'));
    let mut admin = connection().await?;
    let rights = common::documented_rights(&mut admin).await;
    let mut set_user = cmd("ACL");
    set_user.arg("SETUSER").arg(&user);
    set_user.arg(&["reset", "on", &format!(">{PASSWORD}")]);
    let () = set_user
        .arg(format!("~{prefix}*"))
        .arg(rights)
        .query_async(&mut admin)
        .await?;
    let no_url = |()| "the server's URL takes no user";
    url.set_username(&user).map_err(no_url)?;
    url.set_password(Some(PASSWORD)).map_err(no_url)?;
    Ok(url)
}

async fn version() -> Result<String, StoreError> {
    let mut connection = connection().await?;
    let info: String = cmd("INFO").query_async(&mut connection).await?;
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
    Ok(match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => return Err("the server does not tell its version".into()),
    })
}

/// Where the server is.
fn address() -> Result<String, StoreError> {
    let server = Client::open(given_url()?)?;
    Ok(server.get_connection_info().addr().to_string())
}

async fn open_at(address: SocketAddr) -> Result<RedisBackend, StoreError> {
    let mut url = least(PREFIX).await?;
    url.set_ip_host(address.ip()).map_err(|()| "no host")?;
    url.set_port(Some(address.port())).map_err(|()| "no port")?;
    Ok(RedisBackend::builder()
        .prefix(PREFIX)
        .connect(url.as_str())
        .await?)
}

/// Deletes the keys of one lock.
async fn forget(name: LockName) -> Result<(), StoreError> {
    let name = name.as_str().replace('%', "%25");
    let name = name.replace('{', "%7B").replace('}', "%7D");
    let keys = ["", ":f", ":t"].map(|suffix| format!("{PREFIX}{{{name}}}{suffix}"));
    delete(&mut connection().await?, &keys).await
}

/// Deletes all keys under the prefix; the rest of the server may be in use.
async fn empty() -> Result<(), StoreError> {
    let mut connection = connection().await?;
    let mut keys = cmd("KEYS");
    let keys: Vec<String> = keys
        .arg(format!("{DISPOSABLE}*"))
        .query_async(&mut connection)
        .await?;
    if keys.is_empty() {
        return Ok(());
    }
    delete(&mut connection, &keys).await
}

async fn delete(connection: &mut MultiplexedConnection, keys: &[String]) -> Result<(), StoreError> {
    Ok(cmd("DEL").arg(keys).query_async(connection).await?)
}

async fn connection() -> Result<MultiplexedConnection, StoreError> {
    let client = Client::open(given_url()?)?;
    Ok(client.get_multiplexed_async_connection().await?)
}

fn given_url() -> Result<String, StoreError> {
    std::env::var("DISTLOCK_TEST_REDIS_URL").map_err(|_| {
        "no Redis server: run `cargo xtask test`, or set DISTLOCK_TEST_REDIS_URL=redis://127.0.0.1:6379/0".into()
    })
}
