#![doc = include_str!("../README.md")]

mod connect;

pub use connect::{connect, open};
pub use distlock_api::*;

#[cfg(feature = "mysql")]
pub use distlock_mysql as mysql;
#[cfg(feature = "postgres")]
pub use distlock_postgres as postgres;
#[cfg(feature = "redis")]
pub use distlock_redis as redis;
#[cfg(feature = "sqlite")]
pub use distlock_sqlite as sqlite;
