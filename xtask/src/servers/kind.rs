//! Which servers there are, and where each comes from in a run.

use std::env;

use distlock_test_servers::{Protocol, mariadb, mysql, pgbouncer, postgres, redis};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Redis,
    Mariadb,
    Mysql,
    Pgbouncer,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Postgres,
        Self::Redis,
        Self::Mariadb,
        Self::Mysql,
        Self::Pgbouncer,
    ];

    /// Those that the fault tests start for themselves.
    pub(crate) const WITH_FAULTS: [Self; 3] = [Self::Postgres, Self::Redis, Self::Mariadb];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
            Self::Pgbouncer => "pgbouncer",
        }
    }

    /// Where the tests look for the server.
    pub(crate) fn url_variable(self) -> &'static str {
        match self {
            Self::Postgres => "DISTLOCK_TEST_POSTGRES_URL",
            Self::Redis => "DISTLOCK_TEST_REDIS_URL",
            Self::Mariadb => "DISTLOCK_TEST_MARIADB_URL",
            Self::Mysql => "DISTLOCK_TEST_MYSQL_URL",
            Self::Pgbouncer => "DISTLOCK_TEST_PGBOUNCER_URL",
        }
    }

    /// The package whose tests run against it.
    pub(crate) fn tested_by(self) -> &'static str {
        match self {
            Self::Postgres | Self::Pgbouncer => "distlock-postgres",
            Self::Redis => "distlock-redis",
            Self::Mariadb | Self::Mysql => "distlock-mysql",
        }
    }

    /// All servers that these tests need.
    pub(super) fn tested_with(self) -> &'static [Self] {
        match self {
            Self::Postgres | Self::Pgbouncer => &[Self::Postgres, Self::Pgbouncer],
            Self::Redis => &[Self::Redis],
            Self::Mariadb | Self::Mysql => &[Self::Mariadb, Self::Mysql],
        }
    }

    /// The server that the environment names.
    pub(super) fn given_url(self) -> Option<String> {
        env::var(self.url_variable())
            .ok()
            .filter(|url| !url.is_empty())
    }

    /// Debian's package, where it has one.
    pub(crate) fn package(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("postgresql"),
            Self::Redis => Some("redis-server"),
            Self::Mariadb => Some("mariadb-server"),
            Self::Mysql => None,
            Self::Pgbouncer => Some("pgbouncer"),
        }
    }

    /// Whether a start on this machine reads its time zones.
    pub(crate) fn loads_zones(self) -> bool {
        matches!(self, Self::Mariadb | Self::Mysql)
    }

    pub(crate) fn is_installed(self) -> bool {
        match self {
            Self::Postgres => postgres::is_installed(),
            Self::Redis => redis::is_installed(),
            Self::Mariadb => mariadb::is_installed(),
            Self::Mysql => mysql::is_installed(),
            Self::Pgbouncer => pgbouncer::is_installed(),
        }
    }

    /// How it is asked whether it answers.
    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::Postgres | Self::Pgbouncer => Protocol::Postgres,
            Self::Redis => Protocol::Redis,
            Self::Mariadb | Self::Mysql => Protocol::MySql,
        }
    }
}
