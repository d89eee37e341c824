//! Child programs that end when we do.

use std::env;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdout, Command};

use crate::progress::{Stopwatch, say};

/// The cargo that runs us, so that nested calls use the same toolchain.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Runs the command to its end; a failure is an error.
pub(crate) async fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    say(&shown);
    let status = Group::spawn(command)?.wait().await?;
    ensure!(status.success(), "`{shown}` failed ({status})");
    Ok(())
}

pub(crate) fn show(command: &Command) -> String {
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

/// A child with all its descendants, in a process group of its own: dropping it ends them all.
///
/// Without the group a signal to us would end cargo, but leave the test program that cargo started.
pub(crate) struct Group(Child);

impl Group {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        // A group in the background must not read from the terminal: it would be stopped.
        Self::spawn_fed(command, Stdio::null())
    }

    pub(crate) fn spawn_fed(command: &mut Command, input: impl Into<Stdio>) -> Result<Self> {
        let child = command.stdin(input).process_group(0).spawn();
        Ok(Self(child.with_context(|| {
            format!("cannot run `{}`", show(command))
        })?))
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    pub(crate) async fn wait(&mut self) -> Result<ExitStatus> {
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
