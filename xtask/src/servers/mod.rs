//! The servers that the tests run against: private processes on loopback, each with its own data folder, or containers.
//!
//! Where the environment already names a server, that one is used and none is started.

mod containers;
pub(crate) mod kind;
mod own_redis;
pub(crate) mod plan;

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use distlock_test_servers::ready::{self, Life};
use distlock_test_servers::{Setup, mariadb, mysql, pgbouncer, postgres, redis};
use tokio::try_join;

use self::kind::Kind;
use self::own_redis::OwnRedis;
use self::plan::{Plan, Source};
use crate::docker::{Container, Docker};
use crate::install;
use crate::progress::{Stopwatch, say};

/// Every server that had to be started; dropping it stops them.
pub(crate) struct Servers {
    servers: Vec<Server>,
    own_redis: Option<OwnRedis>,
    // Goes after the containers.
    _docker: Option<Docker>,
}

impl Servers {
    pub(crate) async fn start(plan: &Plan) -> Result<Self> {
        let docker = match plan.needs_docker() {
            true => Some(Docker::open().await?),
            false => None,
        };
        // One after the other, and before servers take part of the machine.
        for image in plan.images() {
            image.obtain().await?;
        }
        let since = Stopwatch::start();
        let starter = Starter {
            plan,
            docker: docker.as_ref(),
        };
        let (postgres, redis, mariadb, mysql) = try_join!(
            starter.postgres_and_pgbouncer(),
            starter.start(Kind::Redis),
            starter.start(Kind::Mariadb),
            starter.start(Kind::Mysql),
        )?;
        let mut servers = postgres;
        servers.extend([redis, mariadb, mysql].into_iter().flatten());
        say(format_args!("servers up after {since}"));
        Ok(Self {
            servers,
            own_redis: starter.own_redis().await?,
            _docker: docker,
        })
    }

    /// What the tests must find in their environment.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let servers = self.servers.iter();
        let own_redis = self.own_redis.iter();
        servers
            .map(|server| (server.kind.url_variable(), server.url.as_str()))
            .chain(own_redis.map(|own| (own_redis::VARIABLE, own.program())))
    }

    pub(crate) fn show_logs(&self) {
        for server in &self.servers {
            say(server.running.log_tail());
        }
    }

    /// Resolves only when a server ends by itself.
    async fn watch(&mut self) -> Result<Infallible> {
        loop {
            for server in &mut self.servers {
                server.running.still_runs().await?;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// `cargo xtask servers`: lines to copy on stdout, then the servers stay until a signal.
pub(crate) async fn hold(plan: &Plan, may_install: bool) -> Result<ExitCode> {
    install::ensure(plan, may_install)?;
    let mut servers = Servers::start(plan).await?;
    for (variable, url) in servers.variables() {
        println!("export {variable}='{url}'");
    }
    say("servers stay up until Ctrl-C");
    match servers.watch().await? {}
}

/// What it takes to start the servers of a plan.
struct Starter<'a> {
    plan: &'a Plan,
    docker: Option<&'a Docker>,
}

impl Starter<'_> {
    /// Nothing where the server is given or not wanted.
    async fn start(&self, kind: Kind) -> Result<Option<Server>> {
        let server = match self.plan.source(kind) {
            None => return Ok(None),
            Some(Source::Given(_)) => {
                say_given(kind);
                return Ok(None);
            }
            Some(Source::Image(image)) => containers::start(self.docker()?, image).await,
            Some(Source::Local) => process(kind).await,
        };
        Ok(Some(server?))
    }

    async fn postgres_and_pgbouncer(&self) -> Result<Vec<Server>> {
        let postgres = self.start(Kind::Postgres).await?;
        let pgbouncer = match self.plan.source(Kind::Pgbouncer) {
            None => None,
            Some(Source::Given(_)) => {
                say_given(Kind::Pgbouncer);
                None
            }
            Some(Source::Local) => {
                let url = postgres.as_ref().map(|server| server.url.as_str());
                let url = url.or(self.plan.given_url(Kind::Postgres));
                let url = url.context("PgBouncer needs a PostgreSQL behind it")?;
                let started = pgbouncer::start(url, &Setup::new()).await?;
                Some(Server::process(Kind::Pgbouncer, started))
            }
            Some(Source::Image(image)) => {
                let postgres = postgres.as_ref().context(
                    "a PgBouncer in a container needs a PostgreSQL in one: name both by their variables, or neither",
                )?;
                Some(containers::beside_postgres(self.docker()?, image, postgres).await?)
            }
        };
        // PgBouncer first: it shares the network of the other.
        Ok(pgbouncer.into_iter().chain(postgres).collect())
    }

    /// Only where Redis itself comes from an image, which may be of a version that this machine does not have.
    async fn own_redis(&self) -> Result<Option<OwnRedis>> {
        let Some(Source::Image(image)) = self.plan.source(Kind::Redis) else {
            return Ok(None);
        };
        let label = self.docker()?.label();
        Ok(Some(OwnRedis::new(&image.obtain().await?, &label)?))
    }

    fn docker(&self) -> Result<&Docker> {
        self.docker.context("an image needs Docker")
    }
}

fn say_given(kind: Kind) {
    let (name, variable) = (kind.name(), kind.url_variable());
    say(format_args!("{name}: the one that {variable} names"));
}

/// A private process, ready.
async fn process(kind: Kind) -> Result<Server> {
    say(format_args!("starting {}", kind.name()));
    let setup = Setup::new();
    let started = match kind {
        Kind::Postgres => postgres::start(&setup).await?,
        Kind::Redis => redis::start(&setup).await?,
        Kind::Mariadb => mariadb::start(&setup).await?,
        Kind::Mysql => mysql::start(&setup).await?,
        Kind::Pgbouncer => unreachable!("it is started with its PostgreSQL"),
    };
    Ok(Server::process(kind, started))
}

/// Waits until what was started answers.
async fn ready(server: &mut impl Life, kind: Kind, port: u16) -> Result<()> {
    let protocol = kind.protocol();
    ready::ready(server, async || protocol.answers(port).await).await?;
    say_ready(server);
    Ok(())
}

fn say_ready(server: &impl Life) {
    say(format_args!(
        "{} ready after {}",
        server.name(),
        server.since()
    ));
}

/// A running server and how tests reach it.
struct Server {
    kind: Kind,
    url: String,
    running: Running,
}

impl Server {
    fn process(kind: Kind, started: distlock_test_servers::Server) -> Self {
        say_ready(&started);
        Self {
            kind,
            url: started.url().to_owned(),
            running: Running::Process(Box::new(started)),
        }
    }
}

enum Running {
    Process(Box<distlock_test_servers::Server>),
    Container(Box<Container>),
}

impl Life for Running {
    fn name(&self) -> &str {
        match self {
            Self::Process(process) => process.name(),
            Self::Container(container) => container.name(),
        }
    }

    fn since(&self) -> Stopwatch {
        match self {
            Self::Process(process) => process.since(),
            Self::Container(container) => container.since(),
        }
    }

    async fn still_runs(&mut self) -> Result<()> {
        match self {
            Self::Process(process) => process.still_runs().await,
            Self::Container(container) => container.still_runs().await,
        }
    }

    fn log_tail(&self) -> String {
        match self {
            Self::Process(process) => process.log_tail(),
            Self::Container(container) => container.log_tail(),
        }
    }
}
