//! A private Redis: no persistence unless it is asked for, no password (tests make their own ACL users).

use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::process::tied_to_us;
use crate::programs::{self, Version};
use crate::server::{Plan, free_port};
use crate::{Protocol, Server, Setup, own_folder};

const STOP: Signal = Signal::SIGINT;

/// Whether its program is on this machine.
pub fn is_installed() -> bool {
    find().is_some()
}

fn find() -> Option<PathBuf> {
    programs::on_path("redis-server")
}

/// Starts one.
pub async fn start(setup: &Setup) -> Result<Server> {
    let program = find().context("redis-server is missing")?;
    let version = Version::of(&program, (6, 2))?;
    let folder = own_folder("redis")?;
    let port = free_port()?;

    let mut command = tied_to_us(&program, STOP);
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--databases", "16", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(folder.path());
    if version.numbers >= (7, 0) {
        command.args(["--enable-debug-command", "local"]);
    }
    let plan = Plan {
        name: format!("redis {version}"),
        command,
        protocol: Protocol::Redis,
        port,
        url: format!("redis://127.0.0.1:{port}/0"),
        folder,
    };
    plan.start(setup).await
}

/// Starts a replica of another one; how far it follows is for the caller to ask.
pub async fn replica(primary: &Server, setup: &Setup) -> Result<Server> {
    let port = primary.port().to_string();
    let setup = setup.clone().with(["--replicaof", "127.0.0.1", &port]);
    start(&setup).await
}
