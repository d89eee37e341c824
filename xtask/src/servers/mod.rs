//! The servers that the tests run against: private processes on loopback, each with its own data folder.
//!
//! Where the environment already names a server, that one is used and none is started.

pub(crate) mod postgres;
mod process;
pub(crate) mod redis;

use std::convert::Infallible;
use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use self::process::Process;
use crate::install;
use crate::progress::say;

/// Every server that had to be started; dropping it stops them.
#[derive(Default)]
pub(crate) struct Servers(Vec<Server>);

impl Servers {
    pub(crate) async fn start() -> Result<Self> {
        let mut servers = Self::default();
        if postgres::is_given() {
            say_given("postgres", postgres::URL_VARIABLE);
        } else {
            servers.0.push(postgres::start().await?);
        }
        if redis::is_given() {
            say_given("redis", redis::URL_VARIABLE);
        } else {
            servers.0.push(redis::start().await?);
        }
        Ok(servers)
    }

    /// What the tests must find in their environment.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0
            .iter()
            .map(|server| (server.url_variable, server.url.as_str()))
    }

    pub(crate) fn show_logs(&self) {
        for server in &self.0 {
            say(format_args!("{}", server.process.log_tail()));
        }
    }

    /// Resolves only when a server ends by itself.
    async fn watch(&mut self) -> Result<Infallible> {
        loop {
            for server in &mut self.0 {
                server.process.still_runs()?;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// `cargo xtask servers`: two lines to copy on stdout, then the servers stay until a signal.
pub(crate) async fn hold(may_install: bool) -> Result<ExitCode> {
    install::ensure(may_install)?;
    let mut servers = Servers::start().await?;
    for (variable, url) in servers.variables() {
        println!("export {variable}='{url}'");
    }
    say("servers stay up until Ctrl-C");
    match servers.watch().await? {}
}

/// A running server and how tests reach it.
struct Server {
    url_variable: &'static str,
    url: String,
    process: Process,
    /// Goes after the process that lives in it.
    _folder: TempDir,
}

fn is_given(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|url| !url.is_empty())
}

fn say_given(name: &str, variable: &str) {
    say(format_args!("{name}: the one that {variable} names"));
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn own_folder(name: &str) -> Result<TempDir> {
    Ok(tempfile::Builder::new()
        .prefix(&format!("distlock-{name}-"))
        .tempdir()?)
}
