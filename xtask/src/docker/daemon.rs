//! The Docker daemon: the one that answers, else a private one, where root may start it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

use super::version;
use crate::progress::{Stopwatch, say};
use distlock_test_servers::programs;
use distlock_test_servers::ready::last_lines;

const PID_FILE: &str = "/run/distlock-dockerd.pid";
const LOG: &str = "/run/distlock-dockerd.log";
/// Locked (shared) by every run that uses the private daemon; whoever gets it alone was the last.
const USERS: &str = "/run/distlock-dockerd.users";

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(20);

const WAYS_OUT: &str = "a server comes in a container here, and there is no Docker that answers. Two ways out: \
    install Docker and start it (as root on Debian, `cargo xtask test --install` does both), \
    or name a server, e.g. by DISTLOCK_TEST_MYSQL_URL=mysql://user:password@host:3306/database";

/// Dropping it stops the daemon if it is the private one and nobody else uses it.
pub(super) struct Daemon(Option<File>);

impl Daemon {
    pub(super) async fn open() -> Result<Self> {
        let is_root = Uid::effective().is_root();
        if running()?.is_none() && version().is_ok() || !is_root {
            let version = version().context(WAYS_OUT)?;
            say(format_args!("docker {version}: the daemon that answers"));
            return Ok(Self(None));
        }
        let users = File::options()
            .create(true)
            .append(true)
            .open(USERS)
            .with_context(|| format!("cannot open {USERS}"))?;
        // Waits for one that is being stopped.
        users.lock_shared()?;
        if version().is_err() {
            start().await?;
        }
        Ok(Self(Some(users)))
    }
}

async fn start() -> Result<()> {
    let program = programs::find("dockerd");
    let program = program.context(WAYS_OUT)?;
    say(format_args!("starting a private dockerd, log in {LOG}"));
    let log = File::create(LOG)?;
    let since = Stopwatch::start();
    // Not tied to us: another run may use it by the time that we end.
    let mut child = Command::new(program)
        .args(["--pidfile", PID_FILE])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot run dockerd")?;
    let mut ended = false;
    while version().is_err() {
        // Of two that start at the same time one ends; it waits for the other's.
        ended = ended || child.try_wait()?.is_some();
        let is_hopeless = ended && running()?.is_none();
        if is_hopeless || since.elapsed() > START_LIMIT {
            let log = fs::read_to_string(LOG).unwrap_or_default();
            bail!("dockerd did not start:\n{}\n{WAYS_OUT}", last_lines(&log));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    say(format_args!("dockerd {} ready after {since}", version()?));
    Ok(())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(users) = &self.0 else { return };
        if users.try_lock().is_ok()
            && let Err(error) = stop()
        {
            say(format_args!("cannot stop the private dockerd: {error:#}"));
        }
    }
}

/// The private daemon's process. A file that outlived it names nobody, or a stranger.
fn running() -> Result<Option<Pid>> {
    let Ok(text) = fs::read_to_string(PID_FILE) else {
        return Ok(None);
    };
    let pid: i32 = text.trim().parse().context(PID_FILE)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Ok((name.trim() == "dockerd").then_some(Pid::from_raw(pid)))
}

fn stop() -> Result<()> {
    let Some(pid) = running()? else { return Ok(()) };
    say("stopping the private dockerd");
    kill(pid, Signal::SIGTERM)?;
    let since = Stopwatch::start();
    while running()?.is_some() {
        ensure!(since.elapsed() < STOP_LIMIT, "it does not end: {pid}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
