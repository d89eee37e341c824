//! `cargo xtask test`: servers up, `cargo test`, servers down, one line that sums it up.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdout, Command};

use crate::command::{self, Group, cargo};
use crate::conformance_page;
use crate::install;
use crate::progress::{Stopwatch, say};
use crate::servers::Servers;
use crate::tally::Tally;

pub(crate) async fn run(may_install: bool, args: &[OsString]) -> Result<ExitCode> {
    let since = Stopwatch::start();
    install::ensure(may_install)?;
    let servers = Servers::start().await?;
    let (status, mut tally) = cargo_test(cargo_test_command(args), &servers).await?;
    if !status.success() {
        servers.show_logs();
        if tally.failed == 0 {
            say("no test failed, yet the run did (see above); it counts as one failure");
            tally.failed = 1;
        }
    }
    drop(servers);
    let outcome = if status.success() { "passed" } else { "FAILED" };
    say(format_args!("cargo test {outcome}, {since} in all"));
    println!("{tally}");
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// All of the workspace, unless the arguments choose packages.
fn cargo_test_command(args: &[OsString]) -> Command {
    let mut command = cargo(["test"]);
    if !chooses_packages(args) {
        command.arg("--workspace");
    }
    // Without --no-fail-fast the sum would leave out what comes after the first failing program.
    command
        .args(["--all-features", "--no-fail-fast"])
        .args(args);
    command
}

fn chooses_packages(args: &[OsString]) -> bool {
    args.iter()
        .map(|arg| arg.to_string_lossy())
        .take_while(|arg| arg != "--")
        .any(|arg| arg.starts_with("-p") || arg.starts_with("--package") || arg == "--workspace")
}

async fn cargo_test(mut command: Command, servers: &Servers) -> Result<(ExitStatus, Tally)> {
    say(command::show(&command));
    let reports = env::current_dir()?.join(conformance_page::REPORTS);
    command
        .envs(servers.variables())
        .env("DISTLOCK_CONFORMANCE_REPORT", reports)
        .stdout(Stdio::piped());
    let mut group = Group::spawn(&mut command)?;
    let stdout = group.stdout().context("cargo has no stdout")?;
    let tally = pass_on(stdout).await?;
    Ok((group.wait().await?, tally))
}

/// Copies the output as it comes and counts on the way.
async fn pass_on(stdout: ChildStdout) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await? > 0 {
        io::stdout().write_all(&line)?;
        tally.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(args: &[&str]) -> String {
        let args: Vec<_> = args.iter().map(OsString::from).collect();
        command::show(&cargo_test_command(&args))
    }

    #[test]
    fn everything_by_default() {
        assert_eq!(
            shown(&[]),
            "cargo test --workspace --all-features --no-fail-fast"
        );
    }

    #[test]
    fn arguments_may_choose_packages() {
        assert_eq!(
            shown(&["-p", "distlock", "--", "-p"]),
            "cargo test --all-features --no-fail-fast -p distlock -- -p"
        );
        assert!(shown(&["name", "--", "-p"]).contains("--workspace"));
    }
}
