//! Child programs that end when we do.

use std::env;

use anyhow::{Result, ensure};
pub(crate) use distlock_test_servers::{Group, show};
use tokio::process::Command;

use crate::progress::say;

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
