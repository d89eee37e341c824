use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::process::Process;
use crate::ready::{Life, ready};
use crate::{Clock, Protocol, Stopwatch};

/// What a server is started with besides the usual.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    arguments: Vec<OsString>,
    own_clock: bool,
}

impl Setup {
    /// Nothing besides.
    pub fn new() -> Self {
        Self::default()
    }

    /// Arguments of the command line, which come last.
    pub fn with<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// A clock that can be shifted: [`Server::clock`].
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }
}

/// A private server on a port of 127.0.0.1, with a data folder of its own. Dropping it kills it and deletes its data.
#[derive(Debug)]
pub struct Server {
    process: Process,
    protocol: Protocol,
    port: u16,
    url: String,
    clock: Option<Clock>,
    // Goes after the process that lives in it.
    folder: TempDir,
}

/// A server that is about to be started.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) url: String,
    pub(crate) folder: TempDir,
}

impl Plan {
    /// Starts it, and waits until it answers.
    pub(crate) async fn start(mut self, setup: &Setup) -> Result<Server> {
        self.command.args(&setup.arguments);
        let clock = match setup.own_clock {
            true => Some(Clock::new(self.folder.path())?),
            false => None,
        };
        if let Some(clock) = &clock {
            clock.rules(&mut self.command);
        }
        let process = Process::start(self.name, self.command, self.folder.path())?;
        let mut server = Server {
            process,
            protocol: self.protocol,
            port: self.port,
            url: self.url,
            clock,
            folder: self.folder,
        };
        server.answers().await?;
        Ok(server)
    }
}

impl Server {
    /// How clients find it: as a user who may do everything.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its data is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The clock that it lives on, where it has [its own](Setup::own_clock).
    ///
    /// # Errors
    ///
    /// Where it lives on the machine's.
    pub fn clock(&self) -> Result<&Clock> {
        let clock = self.clock.as_ref();
        clock.with_context(|| format!("{} has no clock of its own", self.name()))
    }

    /// Freezes it (SIGSTOP), with all of its processes: connections stay open, and nothing is answered.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Lets it go on (SIGCONT).
    pub fn go_on(&self) -> Result<()> {
        self.process.go_on()
    }

    /// Ends it as a crash would (SIGKILL), with all of its processes.
    pub fn crash(&mut self) -> Result<()> {
        self.process.crash()
    }

    /// Starts it again after a crash, on its data and port, and waits until it answers.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.answers().await
    }

    async fn answers(&mut self) -> Result<()> {
        let (protocol, port) = (self.protocol, self.port);
        ready(&mut self.process, async || protocol.answers(port).await).await
    }
}

impl Drop for Server {
    /// A PostgreSQL that is killed leaves its segment of shared memory to the one that comes after it, and none does.
    fn drop(&mut self) {
        let _ = self.process.crash();
        let lock = self.folder().join("data/postmaster.pid");
        let lock = fs::read_to_string(lock).unwrap_or_default();
        let segment = lock
            .lines()
            .nth(6)
            .and_then(|line| line.split_whitespace().nth(1));
        if let Some(segment) = segment {
            let _ = Command::new("ipcrm").args(["--shmem-id", segment]).status();
        }
    }
}

impl Life for Server {
    fn name(&self) -> &str {
        self.process.name()
    }

    fn since(&self) -> Stopwatch {
        self.process.since()
    }

    async fn still_runs(&mut self) -> Result<()> {
        self.process.still_runs().await
    }

    fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

/// A port that nobody listens on, and that a server can have again after a crash: below those that the system gives to
/// connections.
pub(crate) fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 16_384;
    const COUNT: u16 = 16_384;
    let mut random = [0; 2];
    getrandom::fill(&mut random)?;
    // Whoever else runs starts elsewhere.
    let _ = NEXT.compare_exchange(
        0,
        u16::from_ne_bytes(random),
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
    let tries = 0..COUNT;
    let mut ports = tries.map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT);
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(free).context("no port is free")
}

/// A folder that goes with the server that lives in it.
pub fn own_folder(name: &str) -> Result<TempDir> {
    Ok(tempfile::Builder::new()
        .prefix(&format!("distlock-{name}-"))
        .tempdir()?)
}

/// Copies a folder with what is in it, owners included.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    anyhow::ensure!(status.success(), "cannot copy {}", from.display());
    Ok(())
}
