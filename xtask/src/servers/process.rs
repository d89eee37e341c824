//! One server process: started, watched until it answers, stopped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::programs;
use crate::progress::{Stopwatch, say};

/// PostgreSQL on a slow disk is the slowest; past this, something is wrong.
const START_LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_PINGS: Duration = Duration::from_millis(50);
const STOP_LIMIT: Duration = Duration::from_secs(10);
const LOG_LINES: usize = 40;

/// A child that is stopped when it is dropped.
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    since: Stopwatch,
}

impl Process {
    /// Starts `command`; its output goes to a log in `folder`.
    pub(super) fn start(name: String, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join("server.log");
        let output = File::create(&log)?;
        // A group of its own: Ctrl-C must not take the servers away from tests that still run.
        let child = std::os::unix::process::CommandExt::process_group(command, 0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        Ok(Self {
            name,
            child,
            log,
            since: Stopwatch::start(),
        })
    }

    /// Waits until `ping` says that the server answers.
    pub(super) async fn ready(&mut self, ping: impl AsyncFn() -> bool) -> Result<()> {
        loop {
            // Asked before and after: a stranger on our port must not pass for our server.
            self.still_runs()?;
            if ping().await {
                self.still_runs()?;
                say(format_args!("{} ready after {}", self.name, self.since));
                return Ok(());
            }
            if self.since.elapsed() > START_LIMIT {
                bail!(
                    "{} does not answer after {}\n{}",
                    self.name,
                    self.since,
                    self.log_tail()
                );
            }
            tokio::time::sleep(BETWEEN_PINGS).await;
        }
    }

    pub(super) fn still_runs(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status})\n{}", self.name, self.log_tail()),
        }
    }

    pub(super) fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        format!("end of the log of {}:\n{}", self.name, last_lines(&log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // To PostgreSQL an interrupt is the fast shutdown; TERM would wait for its clients.
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let _ = kill(pid, Signal::SIGINT);
        let since = Stopwatch::start();
        while since.elapsed() < STOP_LIMIT {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        say(format_args!("{} does not stop, killing it", self.name));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command for `program` that is interrupted when we die, even by SIGKILL, where `setpriv` can do that.
pub(super) fn tied_to_us(program: &Path) -> Command {
    if !setpriv_works() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]).arg(program);
    command
}

/// The setpriv of busybox does not know the option.
fn setpriv_works() -> bool {
    programs::on_path("setpriv").is_some()
        && Command::new("setpriv")
            .args(["--pdeathsig", "INT", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let first = lines.len().saturating_sub(LOG_LINES);
    lines[first..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_at_its_start() {
        let log: String = (1..=50).map(|n| format!("line {n}\n")).collect();
        let tail = last_lines(&log);
        assert!(tail.starts_with("line 11\n") && tail.ends_with("line 50"));
        assert_eq!(last_lines("one"), "one");
    }

    #[tokio::test]
    async fn a_server_that_ends_shows_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such option; exit 3"]);
        let mut process = Process::start("stub".to_owned(), &mut command, folder.path()).unwrap();
        let error = process.ready(async || false).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("no such option"), "{error}");
    }

    #[test]
    fn dropping_stops_the_child() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tied_to_us(Path::new("sleep"));
        let process = Process::start("stub".to_owned(), command.arg("600"), folder.path()).unwrap();
        let pid = Pid::from_raw(process.child.id().cast_signed());
        drop(process);
        assert!(kill(pid, None).is_err(), "{pid} is still there");
    }
}
