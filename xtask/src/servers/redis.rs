//! A private Redis: no persistence, no password (tests make their own ACL users).

use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::kind::Kind;
use super::process::{Process, tied_to_us};
use super::ready::ready;
use super::{Running, Server, free_port, own_folder, ping};
use crate::programs::{self, Version};
use crate::progress::say;

const STOP: Signal = Signal::SIGINT;

pub(super) fn find() -> Option<PathBuf> {
    programs::on_path("redis-server")
}

pub(super) async fn start() -> Result<Server> {
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
    let name = format!("redis {version}");
    let mut process = Process::start(name, &mut command, STOP, folder.path())?;
    say(format_args!("waiting for redis on 127.0.0.1:{port} (ping)"));
    ready(&mut process, async || ping::redis(port).await).await?;
    Ok(Server {
        kind: Kind::Redis,
        url: format!("redis://127.0.0.1:{port}/0"),
        running: Running::Process(process, folder),
    })
}
