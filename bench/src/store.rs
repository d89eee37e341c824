//! The stores, where each is, and what is made there.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::ValueEnum;
use distlock::LockAdmin;
use tempfile::TempDir;
use url::Url;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Redis,
    Postgres,
    Mysql,
    Mariadb,
    Sqlite,
}

impl Store {
    pub(crate) const ALL: &[Self] = &[
        Self::Redis,
        Self::Postgres,
        Self::Mysql,
        Self::Mariadb,
        Self::Sqlite,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
            Self::Sqlite => "sqlite",
        }
    }

    /// Where the environment says that the server is; none for a file.
    fn variable(self) -> Option<&'static str> {
        match self {
            Self::Redis => Some("DISTLOCK_TEST_REDIS_URL"),
            Self::Postgres => Some("DISTLOCK_TEST_POSTGRES_URL"),
            Self::Mysql => Some("DISTLOCK_TEST_MYSQL_URL"),
            Self::Mariadb => Some("DISTLOCK_TEST_MARIADB_URL"),
            Self::Sqlite => None,
        }
    }
}

/// A store that is there, and a SQLite file for as long as this lives.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) url: Url,
    _folder: Option<TempDir>,
}

impl Place {
    pub(crate) fn of(store: Store) -> Result<Self> {
        let Some(variable) = store.variable() else {
            return Self::in_a_file();
        };
        let url = env::var(variable).with_context(|| {
            format!("{variable} is not set: run `cargo xtask bench`, or set it")
        })?;
        Ok(Self {
            store,
            url: Url::parse(&url).with_context(|| format!("{variable} is no URL"))?,
            _folder: None,
        })
    }

    /// On the disk that this is built on: the folder for temporary files may be in memory.
    fn in_a_file() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("sqlite-")
            .tempdir_in(results()?)?;
        let path = folder.path().join("locks.db");
        Ok(Self {
            store: Store::Sqlite,
            url: Url::parse(&format!("sqlite://{}?mode=rwc", path.display()))?,
            _folder: Some(folder),
        })
    }

    /// Locks in a table of this name, or under keys that begin with it.
    pub(crate) async fn locks(&self, named: &str) -> Result<Arc<dyn LockAdmin>> {
        let mut url = self.url.clone();
        match self.store {
            Store::Redis => url.query_pairs_mut().append_pair("lock_prefix", named),
            _ => url.query_pairs_mut().append_pair("lock_table", named),
        };
        let locks = distlock::open(url.as_str()).await?;
        locks.migrate().await?;
        Ok(locks)
    }
}

/// The folder of the results.
pub(crate) fn results() -> Result<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).with_file_name("target/bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
