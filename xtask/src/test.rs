//! `cargo xtask test`: servers up, `cargo test`, servers down, one line that sums it up.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdout, Command};

use crate::command::{self, Group, cargo};
use crate::install;
use crate::progress::{Stopwatch, say};
use crate::servers::Servers;
use crate::servers::plan::{FAULT_TESTS, Plan};
use crate::tally::Tally;
use crate::{conformance_page, faults_page};

pub(crate) async fn run(plan: Plan, may_install: bool, args: &[OsString]) -> Result<ExitCode> {
    let since = Stopwatch::start();
    let chosen = chosen_packages(args);
    let plan = plan.for_packages(&chosen);
    install::ensure(&plan, may_install)?;
    let servers = Servers::start(&plan).await?;
    let reports = Path::new(conformance_page::REPORTS);
    let command = cargo_test_command(args, left_out(&plan, &chosen));
    let (status, mut tally) = cargo_test(command, &servers, reports, &mut io::stdout()).await?;
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

/// The package whose tests cannot be run by this plan, where nobody asks for them by name.
fn left_out(plan: &Plan, chosen: &[String]) -> Option<&'static str> {
    if plan.has_fault_tests() || !chosen.is_empty() {
        return None;
    }
    say(format_args!(
        "not run: {FAULT_TESTS}, which needs the servers' programs on this machine"
    ));
    Some(FAULT_TESTS)
}

/// All of the workspace, unless the arguments choose packages.
fn cargo_test_command(args: &[OsString], left_out: Option<&str>) -> Command {
    let mut command = cargo(["test"]);
    if let Some(package) = left_out {
        command.args(["--exclude", package]);
    }
    let chosen = cargo_options(args)
        .any(|arg| is_package_option(&arg) || arg == "--workspace" || arg == "--all");
    if !chosen {
        command.arg("--workspace");
    }
    // Without --no-fail-fast the sum would leave out what comes after the first failing program.
    command
        .args(["--all-features", "--no-fail-fast"])
        .args(args);
    command
}

/// The packages that the arguments choose by name; none where they choose all.
fn chosen_packages(args: &[OsString]) -> Vec<String> {
    let mut packages = Vec::new();
    let mut options = cargo_options(args);
    while let Some(option) = options.next() {
        if option == "-p" || option == "--package" {
            packages.extend(options.next());
        } else if is_package_option(&option) {
            let name = option
                .trim_start_matches("--package")
                .trim_start_matches("-p");
            packages.push(name.trim_start_matches('=').to_owned());
        } else if option == "--workspace" || option == "--all" {
            return Vec::new();
        }
    }
    packages
}

fn is_package_option(option: &str) -> bool {
    option.starts_with("-p") || option.starts_with("--package")
}

/// Those before `--`, which are cargo's own.
fn cargo_options(args: &[OsString]) -> impl Iterator<Item = String> {
    let args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    args.take_while(|arg| arg != "--")
}

/// Its output goes to `output`, and the reports of the conformance suites to the folder `reports`, those of the fault tests
/// to theirs.
pub(crate) async fn cargo_test(
    mut command: Command,
    servers: &Servers,
    reports: &Path,
    output: &mut dyn Write,
) -> Result<(ExitStatus, Tally)> {
    say(command::show(&command));
    command
        .envs(servers.variables())
        .env(
            "DISTLOCK_CONFORMANCE_REPORT",
            env::current_dir()?.join(reports),
        )
        .env(
            "DISTLOCK_FAULTS_REPORT",
            env::current_dir()?.join(faults_page::REPORTS),
        )
        .stdout(Stdio::piped());
    let mut group = Group::spawn(&mut command)?;
    let stdout = group.stdout().context("cargo has no stdout")?;
    let tally = pass_on(stdout, output).await?;
    Ok((group.wait().await?, tally))
}

/// Copies the output as it comes and counts on the way.
async fn pass_on(stdout: ChildStdout, output: &mut dyn Write) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await? > 0 {
        output.write_all(&line)?;
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
        command::show(&cargo_test_command(&args, None))
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

    #[test]
    fn the_chosen_packages_are_known_in_every_spelling() {
        let chosen = |args: &[&str]| {
            let args: Vec<_> = args.iter().map(OsString::from).collect();
            chosen_packages(&args)
        };
        assert_eq!(
            chosen(&["-p", "a", "-pb", "name", "--", "-p", "x"]),
            ["a", "b"]
        );
        assert_eq!(chosen(&["--package", "a", "--package=b"]), ["a", "b"]);
        assert!(chosen(&["-p", "a", "--workspace"]).is_empty());
        assert!(chosen(&["name"]).is_empty());
    }
}
