//! Every server in a container: one script each, the same for the official image and for one made from Debian's packages.

use anyhow::{Context, Result};
use distlock_test_servers::{Access, pgbouncer};
use url::Url;

use super::kind::Kind;
use super::{Running, Server, ready};
use crate::docker::image::Image;
use crate::docker::{Container, Docker, Request};

const POSTGRES: u16 = 5432;
const PGBOUNCER: u16 = 6432;
const MYSQL: u16 = 3306;
const REDIS: u16 = 6379;

/// Not for PgBouncer, which is [beside](beside_postgres) another server.
pub(super) async fn start(docker: &Docker, image: &Image) -> Result<Server> {
    let access = Access::random()?;
    let request = Request {
        name: image.name(),
        image: image.obtain().await?,
        script: script(image.kind),
        variables: vec![("PASSWORD", access.password.clone())],
        ports: ports(image.kind),
        beside: None,
    };
    let mut container = Container::start(docker, request).await?;
    let port = container.port(ports(image.kind)[0]).await?;
    let kind = image.kind;
    ready(&mut container, kind, port).await?;
    let url = match kind {
        Kind::Redis => format!("redis://127.0.0.1:{port}/0"),
        Kind::Mysql | Kind::Mariadb => access.url("mysql", port),
        Kind::Postgres | Kind::Pgbouncer => access.url("postgres", port),
    };
    Ok(Server {
        kind,
        url,
        running: Running::Container(Box::new(container)),
    })
}

/// A PgBouncer in the network of a PostgreSQL in a container, which publishes its port, too.
pub(super) async fn beside_postgres(
    docker: &Docker,
    image: &Image,
    postgres: &Server,
) -> Result<Server> {
    let Running::Container(upstream) = &postgres.running else {
        anyhow::bail!("a PgBouncer in a container needs a PostgreSQL in one");
    };
    let mut url = Url::parse(&postgres.url)?;
    let password = url.password().context("we made one")?.to_owned();
    let request = Request {
        name: image.name(),
        image: image.obtain().await?,
        script: script(Kind::Pgbouncer),
        variables: vec![
            ("PASSWORD", password),
            ("SETTINGS", pgbouncer::SETTINGS.to_owned()),
        ],
        ports: &[],
        beside: Some(upstream.id()),
    };
    let mut container = Container::start(docker, request).await?;
    let port = upstream.port(PGBOUNCER).await?;
    ready(&mut container, Kind::Pgbouncer, port).await?;
    // It has a host, and so it can have a port.
    let _ = url.set_port(Some(port));
    Ok(Server {
        kind: Kind::Pgbouncer,
        url: url.into(),
        running: Running::Container(Box::new(container)),
    })
}

fn script(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => include_str!("postgres.sh"),
        Kind::Redis => include_str!("redis.sh"),
        Kind::Mariadb => include_str!("mariadb.sh"),
        Kind::Mysql => include_str!("mysql.sh"),
        Kind::Pgbouncer => include_str!("pgbouncer.sh"),
    }
}

fn ports(kind: Kind) -> &'static [u16] {
    match kind {
        Kind::Postgres => &[POSTGRES, PGBOUNCER],
        Kind::Redis => &[REDIS],
        Kind::Mariadb | Kind::Mysql => &[MYSQL],
        Kind::Pgbouncer => &[],
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_script_is_one_that_a_shell_reads() {
        let own_redis = include_str!("own_redis.sh");
        for script in Kind::ALL.map(script).into_iter().chain([own_redis]) {
            let status = Command::new("sh").args(["-n", "-c", script]).status();
            assert!(status.unwrap().success(), "{script}");
        }
    }
}
