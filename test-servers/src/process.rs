//! One server process: started, watched until it answers, frozen, killed, started again, stopped.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ready::{self, Life, last_lines};
use crate::{Group, Stopwatch, programs};

/// A child that is killed when it is dropped: its data go with it, so that there is nothing to bring to a good end.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    command: Command,
    child: Child,
    log: PathBuf,
    since: Stopwatch,
}

impl Process {
    /// Starts `command`; its output goes to a log in `folder`.
    pub(crate) fn start(name: String, mut command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join("server.log");
        let output = File::create(&log)?;
        // A group of its own: Ctrl-C must not take the servers away from tests that still run.
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = spawn(&name, &mut command)?;
        Ok(Self {
            name,
            command,
            child,
            log,
            since: Stopwatch::start(),
        })
    }

    /// The same again, after it was killed.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(&self.name, &mut self.command)?;
        self.since = Stopwatch::start();
        Ok(())
    }

    /// Freezes it, with all that it started.
    pub(crate) fn freeze(&self) -> Result<()> {
        // First the one that could start others.
        self.signal(Signal::SIGSTOP)?;
        for child in self.children() {
            let _ = kill(child, Signal::SIGSTOP);
        }
        Ok(())
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) -> Result<()> {
        for child in self.children() {
            let _ = kill(child, Signal::SIGCONT);
        }
        self.signal(Signal::SIGCONT)
    }

    /// Ends it as a crash of the machine would, with all that it started; and waits until it is gone.
    pub(crate) fn crash(&mut self) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.freeze()?;
        let children = self.children();
        for child in &children {
            let _ = kill(*child, Signal::SIGKILL);
        }
        self.child.kill()?;
        self.child.wait()?;
        for child in children {
            // They are nobody's children now, and nobody waits for them but the system.
            while is_alive(child) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal).with_context(|| format!("{}: no {signal}", self.name))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Those of PostgreSQL are in groups of their own, so that its group's signal would not reach them.
    fn children(&self) -> Vec<Pid> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let pids = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        pids.map(Pid::from_raw).collect()
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
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
        let _ = self.crash();
    }
}

fn spawn(name: &str, command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .with_context(|| format!("cannot run {name}"))
}

/// Whether it runs; what waits to be buried does not.
fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().unwrap_or_default().trim_start();
    !(state.is_empty() || state.starts_with(['Z', 'X']))
}

/// A command for `program` that gets the signal `stop` when we die, even by SIGKILL, where `setpriv` can do that.
pub(crate) fn tied_to_us(program: &Path, stop: Signal) -> Command {
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
pub(crate) async fn succeed(
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

    fn stub(command: Command) -> (Process, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let name = "stub".to_owned();
        let process = Process::start(name, command, folder.path());
        (process.unwrap(), folder)
    }

    fn sleeping() -> Command {
        let mut command = tied_to_us(Path::new("sleep"), Signal::SIGTERM);
        command.arg("600");
        command
    }

    #[tokio::test]
    async fn a_server_that_ends_shows_its_log() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such option; exit 3"]);
        let (mut process, _folder) = stub(command);
        let error = ready::ready(&mut process, async || false)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("no such option"), "{error}");
    }

    #[test]
    fn dropping_ends_the_child_a_frozen_one_too() {
        for freeze in [false, true] {
            let (process, _folder) = stub(sleeping());
            if freeze {
                process.freeze().unwrap();
            }
            let pid = process.pid();
            drop(process);
            assert!(kill(pid, None).is_err(), "{pid} is still there");
        }
    }

    #[test]
    fn a_crash_takes_the_children_too() {
        let mut command = Command::new("sh");
        // The child is in a session of its own, as PostgreSQL's are.
        command.args(["-c", "setsid sleep 600 & wait"]);
        let (mut process, _folder) = stub(command);
        let children = loop {
            let children = process.children();
            if !children.is_empty() {
                break children;
            }
            thread::sleep(Duration::from_millis(1));
        };
        process.crash().unwrap();
        assert!(!children.into_iter().any(is_alive));
        process.start_again().unwrap();
        assert!(process.is_running());
    }
}
