//! Private servers for tests: processes of programs that are installed, on free ports of 127.0.0.1, each with its own data
//! folder. They can be frozen, killed and started again, and live on a clock that can be shifted.
//!
//! ```no_run
//! use distlock_test_servers::{Setup, redis};
//!
//! # async fn example() -> anyhow::Result<()> {
//! let mut server = redis::start(&Setup::new().with(["--appendonly", "yes"])).await?;
//! println!("redis-cli -u {}", server.url());
//! server.crash()?;
//! server.start_again().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A server ends with the thread that started it, where the system can see to that, so that a test that is killed leaves none.

#![allow(
    clippy::disallowed_methods,
    reason = "times and waits for child processes; no lock and no lease is in play here"
)]

pub mod mariadb;
pub mod mysql;
pub mod pgbouncer;
pub mod postgres;
pub mod programs;
pub mod ready;
pub mod redis;

mod access;
mod account;
mod clock;
mod group;
mod ping;
mod process;
mod server;
mod stopwatch;

pub use access::Access;
pub use clock::Clock;
pub use group::{Group, show};
pub use ping::Protocol;
pub use server::{Server, Setup, own_folder};
pub use stopwatch::Stopwatch;

/// Where the time zones are that MySQL and MariaDB load.
pub const ZONES: &str = "/usr/share/zoneinfo";
