use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdout, Command};

use crate::Stopwatch;

/// A child with all its descendants, in a process group of its own: dropping it ends them all.
///
/// Without the group a signal to us would end cargo, but leave the test program that cargo started.
#[derive(Debug)]
pub struct Group(Child);

impl Group {
    /// Starts the command, which reads nothing.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        // A group in the background must not read from the terminal: it would be stopped.
        Self::spawn_fed(command, Stdio::null())
    }

    /// Starts the command, which reads `input`.
    pub fn spawn_fed(command: &mut Command, input: impl Into<Stdio>) -> Result<Self> {
        let child = command.stdin(input).process_group(0).spawn();
        Ok(Self(child.with_context(|| {
            format!("cannot run `{}`", show(command))
        })?))
    }

    /// Its output, where that was asked for, once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.0.wait().await?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // No id: it was waited for.
        let Some(leader) = self.0.id() else { return };
        let group = Pid::from_raw(leader.cast_signed());
        let _ = killpg(group, Signal::SIGTERM);
        let since = Stopwatch::start();
        while since.elapsed() < Duration::from_secs(3) {
            if let Ok(Some(_)) = self.0.try_wait() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        // The members that outlived their leader.
        let _ = killpg(group, Signal::SIGKILL);
    }
}

/// A command as people would type it.
pub fn show(command: &Command) -> String {
    let command = command.as_std();
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or(&program);
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    [name.into()]
        .into_iter()
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}
