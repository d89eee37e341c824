//! A private Redis: no persistence, no password (tests make their own ACL users).

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::process::{Process, tied_to_us};
use super::{Server, free_port, own_folder};
use crate::programs::{self, Version};
use crate::progress::say;

pub(crate) const URL_VARIABLE: &str = "DISTLOCK_TEST_REDIS_URL";

pub(crate) fn is_given() -> bool {
    super::is_given(URL_VARIABLE)
}

pub(crate) fn find() -> Option<PathBuf> {
    programs::on_path("redis-server")
}

pub(super) async fn start() -> Result<Server> {
    let program = find().context("redis-server is missing")?;
    let version = Version::of(&program, (6, 2))?;
    let folder = own_folder("redis")?;
    let port = free_port()?;

    let mut command = tied_to_us(&program);
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--databases", "16", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(folder.path());
    if version.numbers >= (7, 0) {
        command.args(["--enable-debug-command", "local"]);
    }
    let name = format!("redis {version}");
    let mut process = Process::start(name, &mut command, folder.path())?;
    say(format_args!("waiting for redis on 127.0.0.1:{port} (ping)"));
    process.ready(async || answers(port).await).await?;
    Ok(Server {
        url_variable: URL_VARIABLE,
        url: format!("redis://127.0.0.1:{port}/0"),
        process,
        _folder: folder,
    })
}

/// One PING on a connection of its own.
async fn answers(port: u16) -> bool {
    let ping = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).await?;
        std::io::Result::Ok(reply == *b"+PONG\r\n")
    };
    matches!(timeout(Duration::from_secs(1), ping).await, Ok(Ok(true)))
}
