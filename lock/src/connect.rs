use std::sync::Arc;

use distlock_api::{Error, ErrorKind, LockAdmin, Locks, MemoryBackend, Result};

/// The locks of the store that this URL names.
///
/// | URL | Cargo feature | store |
/// |---|---|---|
/// | `postgres://user@host/database` | `postgres` | a table in PostgreSQL |
/// | `mysql://user@host/database`, `mariadb://…` | `mysql` | a table in MySQL or MariaDB |
/// | `redis://host`, `rediss://host`, `valkey://…`, `valkeys://…` | `redis` | keys in Redis or Valkey |
/// | `sqlite:///path/to/locks.db` | `sqlite` | one file, for the processes of one machine |
/// | `memory:` | | this process: an empty store for each call |
///
/// # Errors
///
/// [`ErrorKind::Config`] for an unknown scheme, one whose Cargo feature is off, or a URL that the store does not
/// understand; [`ErrorKind::Unavailable`], [`ErrorKind::Denied`], [`ErrorKind::SchemaMissing`] and the others of the
/// store's start-up check. No error carries the URL's password.
///
/// # Cancel safety
///
/// Safe: a dropped call leaves nothing but a connection that closes.
pub async fn connect(url: &str) -> Result<Locks> {
    Locks::checked(open(url).await?).await
}

/// The store that this URL names, for tools and for whoever wants to make its schema: it is connected to, but not
/// checked, so that [`migrate`](LockAdmin::migrate) can make what is missing.
///
/// # Errors
///
/// As those of [`connect`], without those of the start-up check.
///
/// # Cancel safety
///
/// Safe: a dropped call leaves nothing but a connection that closes.
pub async fn open(url: &str) -> Result<Arc<dyn LockAdmin>> {
    let (scheme, rest) = url
        .split_once(':')
        .ok_or_else(|| unknown("without a scheme"))?;
    match scheme {
        "memory" if rest.is_empty() => Ok(Arc::new(MemoryBackend::new())),
        "memory" => Err(Error::new(
            ErrorKind::Config,
            "a memory store has no name: write `memory:` alone",
        )),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(
            distlock_postgres::PostgresBackend::connect(url).await?,
        )),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(feature_is_off("postgres")),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(distlock_mysql::MySqlBackend::connect(url).await?)),
        #[cfg(not(feature = "mysql"))]
        "mysql" | "mariadb" => Err(feature_is_off("mysql")),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "valkey" | "valkeys" => {
            Ok(Arc::new(distlock_redis::RedisBackend::connect(url).await?))
        }
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "valkey" | "valkeys" => Err(feature_is_off("redis")),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(
            distlock_sqlite::SqliteBackend::connect(url).await?,
        )),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(feature_is_off("sqlite")),
        scheme if is_scheme(scheme) => Err(unknown(&format!("with the scheme \"{scheme}\""))),
        // Whatever it is, it may be a password.
        _ => Err(unknown("without a scheme")),
    }
}

/// Whether it can be nothing but a scheme.
fn is_scheme(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase();
    text.len() <= 16
        && text.starts_with(letter)
        && text
            .chars()
            .all(|c| letter(c) || c.is_ascii_digit() || "+-.".contains(c))
}

fn unknown(what: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "a store URL {what} is not known: use postgres://…, mysql://…, mariadb://…, redis://…, rediss://…, sqlite://… or memory:"
        ),
    )
}

#[allow(dead_code, reason = "not needed where every feature is on")]
fn feature_is_off(feature: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "the Cargo feature `{feature}` of distlock is off: turn it on to use {feature} URLs"
        ),
    )
}
