//! The statements that a program would send that does without locks: as much work at the store, and nothing around it.

mod redis;
mod sql;

use anyhow::Result;

pub(crate) use self::redis::RawRedis;
pub(crate) use self::sql::{RawMySql, RawPostgres, RawSqlite};
use crate::store::{Place, Store};

/// The lock, and the row or key of the raw statements.
pub(crate) const NAME: &str = "bench";

/// What the raw row is in: a table like that of the locks.
pub(crate) const TABLE: &str = "distlock_bench_raw";

/// A connection of the driver's.
pub(crate) enum Raw {
    Redis(RawRedis),
    Postgres(RawPostgres),
    MySql(RawMySql),
    Sqlite(RawSqlite),
}

impl Raw {
    pub(crate) async fn open(place: &Place) -> Result<Self> {
        let url = &place.url;
        Ok(match place.store {
            Store::Redis => Self::Redis(RawRedis::open(url).await?),
            Store::Postgres => Self::Postgres(RawPostgres::open(url).await?),
            Store::Mysql | Store::Mariadb => Self::MySql(RawMySql::open(url).await?),
            Store::Sqlite => Self::Sqlite(RawSqlite::open(url).await?),
        })
    }

    /// Two commands, or two commits.
    pub(crate) async fn cycle(&mut self) -> Result<()> {
        match self {
            Self::Redis(raw) => raw.cycle().await,
            Self::Postgres(raw) => raw.cycle().await,
            Self::MySql(raw) => raw.cycle().await,
            Self::Sqlite(raw) => raw.cycle().await,
        }
    }

    /// The server's version.
    pub(crate) async fn version(&mut self) -> Result<String> {
        match self {
            Self::Redis(raw) => raw.version().await,
            Self::Postgres(raw) => raw.version().await,
            Self::MySql(raw) => raw.version().await,
            Self::Sqlite(raw) => raw.version().await,
        }
    }

    /// How much the server has done since it was started, and of what; nothing where there is no server.
    pub(crate) async fn served(&mut self) -> Result<Option<Served>> {
        Ok(match self {
            Self::Redis(raw) => Some(raw.served().await?),
            Self::Postgres(raw) => Some(raw.served().await?),
            Self::MySql(raw) => Some(raw.served().await?),
            Self::Sqlite(_) => None,
        })
    }

    /// Drops this table, or all keys that begin with this.
    pub(crate) async fn drop_all(&mut self, named: &str) -> Result<()> {
        match self {
            Self::Redis(raw) => raw.drop_all(named).await,
            Self::Postgres(raw) => raw.drop_all(named).await,
            Self::MySql(raw) => raw.drop_all(named).await,
            // The file goes with its folder.
            Self::Sqlite(_) => Ok(()),
        }
    }
}

/// What a server counts by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) unit: &'static str,
    pub(crate) count: u64,
}
