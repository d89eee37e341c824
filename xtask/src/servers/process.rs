//! One server process: started, watched until it answers, stopped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ready::{self, Life, last_lines};
use crate::command::Group;
use crate::programs;
use crate::progress::{Stopwatch, say};

const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A child that is stopped when it is dropped.
pub(super) struct Process {
    name: String,
    child: Child,
    stop: Signal,
    log: PathBuf,
    since: Stopwatch,
}

impl Process {
    /// Starts `command`; its output goes to a log in `folder`.
    ///
    /// `stop` asks the server to end at once, with its clients still there.
    pub(super) fn start(
        name: String,
        command: &mut Command,
        stop: Signal,
        folder: &Path,
    ) -> Result<Self> {
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
            stop,
            log,
            since: Stopwatch::start(),
        })
    }
}

impl Life for Process {
    fn name(&self) -> &str {
        &self.name
    }

    fn since(&self) -> Stopwatch {
        self.since
    }

    async fn still_runs(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status})\n{}", self.name, self.log_tail()),
        }
    }

    fn log_tail(&self) -> String {
        ready::log_tail(&self.name, &fs::read(&self.log).unwrap_or_default())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let _ = kill(pid, self.stop);
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

/// A command for `program` that gets the signal when we die, even by SIGKILL, where `setpriv` can do that.
pub(super) fn tied_to_us(program: &Path, stop: Signal) -> Command {
    if !setpriv_works() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let signal = stop.as_str().trim_start_matches("SIG");
    command.args(["--pdeathsig", signal]).arg(program);
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

/// Runs to the end; what it printed is shown only when it fails.
pub(super) async fn succeed(
    name: &str,
    command: Command,
    input: impl Into<Stdio>,
    folder: &Path,
) -> Result<()> {
    let log = folder.join(format!("{name}.log"));
    let output = File::create(&log)?;
    let mut command = tokio::process::Command::from(command);
    command.stdout(output.try_clone()?).stderr(output);
    let status = Group::spawn_fed(&mut command, input)?.wait().await?;
    if status.success() {
        return Ok(());
    }
    let printed = fs::read(&log).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    bail!("{name} failed ({status}):\n{}", last_lines(&printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_ends_shows_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such option; exit 3"]);
        let mut process = Process::start(
            "stub".to_owned(),
            &mut command,
            Signal::SIGINT,
            folder.path(),
        )
        .unwrap();
        let error = ready::ready(&mut process, async || false)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("no such option"), "{error}");
    }

    #[test]
    fn dropping_stops_the_child() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tied_to_us(Path::new("sleep"), Signal::SIGTERM);
        let command = command.arg("600");
        let process =
            Process::start("stub".to_owned(), command, Signal::SIGTERM, folder.path()).unwrap();
        let pid = Pid::from_raw(process.child.id().cast_signed());
        drop(process);
        assert!(kill(pid, None).is_err(), "{pid} is still there");
    }
}
