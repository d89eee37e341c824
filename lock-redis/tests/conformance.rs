//! The rules that every store is held to.

use std::net::SocketAddr;
use std::process::ExitCode;

use distlock_api::LockName;
use distlock_conformance::{StoreError, Suite};
use distlock_redis::RedisBackend;
use distlock_redis::redis::aio::MultiplexedConnection;
use distlock_redis::redis::{Client, cmd};

const PREFIX: &str = "conformance:";
const DISPOSABLE: &str = "conformance-disposable:";

fn main() -> ExitCode {
    let server = given_url().and_then(server);
    Suite::with_admin("redis", || open(PREFIX))
        .forget(forget)
        .flush(|| open(DISPOSABLE), empty)
        .link(&server.unwrap_or_default(), open_at)
        .rules_run(102)
        .run()
}

async fn open(prefix: &str) -> Result<RedisBackend, StoreError> {
    let builder = RedisBackend::builder().prefix(prefix);
    Ok(builder.connect(&given_url()?).await?)
}

/// Where the server is.
fn server(url: String) -> Result<String, StoreError> {
    let server = Client::open(url)?;
    Ok(server.get_connection_info().addr().to_string())
}

async fn open_at(address: SocketAddr) -> Result<RedisBackend, StoreError> {
    let url = given_url()?;
    let url = url.replace(&server(url.clone())?, &address.to_string());
    Ok(RedisBackend::builder().prefix(PREFIX).connect(&url).await?)
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
