//! `cargo xtask races`: the engine's tests of races, built with locks that try many orders.

use tokio::process::Command;

use anyhow::Result;

use crate::command::{cargo, run};

/// Stands for the tests of races among the targets of tests.
pub(crate) const TARGET: &str = "races";

/// What is built with other locks is kept apart, so that nothing else is built anew.
const BUILD: &str = "target/races";

pub(crate) async fn test() -> Result<()> {
    run(command("").env("CARGO_TARGET_DIR", BUILD)).await
}

/// The tests whose names contain this.
pub(crate) fn command(name: &str) -> Command {
    let mut command = cargo(["test", "-p", "distlock-api", "--lib"]);
    command.env("RUSTFLAGS", "--cfg shuttle");
    command.arg(format!("{TARGET}::{name}"));
    command
}
