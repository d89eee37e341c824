//! The chores of the project: `cargo xtask --help`.

#![allow(
    clippy::disallowed_methods,
    reason = "times and waits for child processes; no lock and no lease is in play here"
)]

mod bench;
mod besides;
mod ci;
mod command;
mod conformance_page;
mod deny;
mod doc_links;
mod docker;
mod faults_page;
mod features;
mod install;
mod matrix;
mod mutants;
mod namespaces;
mod page;
mod progress;
mod races;
mod report;
mod servers;
mod servers_page;
mod tally;
mod test;

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::progress::say;
use crate::servers::plan::Plan;

/// Chores of the project
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Subcommand)]
enum Verb {
    /// Run every test, against private servers
    Test {
        #[command(flatten)]
        missing: Missing,
        #[command(flatten)]
        place: Place,
        /// Passed on to `cargo test`, e.g. `-- -p distlock-redis -- --nocapture`
        #[arg(last = true)]
        args: Vec<OsString>,
    },
    /// Keep the test servers up until Ctrl-C, to run single tests against them
    Servers {
        #[command(flatten)]
        missing: Missing,
        #[command(flatten)]
        place: Place,
    },
    /// Fetch or make the images of servers, so that a later run finds them
    Images {
        /// E.g. `mysql-9.7`; without names those that `test --containers` needs
        names: Vec<String>,
    },
    /// The checks besides the tests: format, links, clippy, docs, dependencies
    Ci {
        #[command(flatten)]
        missing: Missing,
    },
    /// Run the tests of the backends against many versions of their servers, in containers
    Matrix {
        /// The name of an image, e.g. `postgres-13`; may be given more than once
        #[arg(long)]
        only: Vec<String>,
    },
    /// Measure what locks cost, in a release build, against private servers: `bench hold`, `bench held`
    #[command(disable_help_flag = true)]
    Bench {
        #[command(flatten)]
        missing: Missing,
        /// Passed on, e.g. `hold --only redis`, or `--help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Try the engine's races in many orders
    Races,
    /// Break a copy of the code in many places, and see that the tests find each
    Mutants {
        #[command(flatten)]
        missing: Missing,
        /// A part of the name of a mutant, e.g. `release`; may be given more than once
        #[arg(long)]
        only: Vec<String>,
    },
    /// Make the pages of results, from the reports of the last `test` and the data of `matrix`
    Docs,
    /// Check the links of the documents and the table of contents
    DocLinks,
}

#[derive(Args, Clone)]
struct Missing {
    /// Install what is missing (CI=true means the same)
    #[arg(long)]
    install: bool,
}

impl Missing {
    fn may_install(&self) -> bool {
        self.install || env::var_os("CI").is_some_and(|value| value == "true")
    }
}

#[derive(Args, Clone)]
struct Place {
    /// Run every server in a container: only Docker and Rust are needed
    #[arg(long)]
    containers: bool,
}

impl Place {
    fn plan(&self) -> Plan {
        match self.containers {
            true => Plan::containers(),
            false => Plan::usual(),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let verb = Cli::parse().verb;
    // A signal drops the verb's future, and with it every server and child that the verb started.
    let outcome = tokio::select! {
        biased;
        stopped = stop_signal() => stopped.map(|signal| after_signal(&verb, signal)),
        outcome = run(verb.clone()) => outcome,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(verb: Verb) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    env::set_current_dir(&root).with_context(|| format!("cannot enter {}", root.display()))?;
    match verb {
        Verb::Test {
            missing,
            place,
            args,
        } => test::run(place.plan(), missing.may_install(), &args).await,
        Verb::Servers { missing, place } => {
            servers::hold(&place.plan(), missing.may_install()).await
        }
        Verb::Images { names } => docker::images(&names).await.map(|()| ExitCode::SUCCESS),
        Verb::Ci { missing } => ci::run(missing.may_install()).await,
        Verb::Matrix { only } => matrix::run(&only).await,
        Verb::Bench { missing, args } => bench::run(missing.may_install(), &args).await,
        Verb::Races => races::test().await.map(|()| ExitCode::SUCCESS),
        Verb::Mutants { missing, only } => mutants::run(&only, missing.may_install()).await,
        Verb::Docs => docs().map(|()| ExitCode::SUCCESS),
        Verb::DocLinks => doc_links::run(Path::new(".")),
    }
}

fn docs() -> Result<()> {
    servers_page::write()?;
    conformance_page::write()?;
    faults_page::write()
}

/// Resolves with the first signal that asks this program to end.
async fn stop_signal() -> Result<Signal> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => Signal::SIGINT,
        _ = terminate.recv() => Signal::SIGTERM,
        _ = hangup.recv() => Signal::SIGHUP,
    })
}

/// By now everything that was started is gone.
fn after_signal(verb: &Verb, signal: Signal) -> ExitCode {
    say(format_args!("stopped by {signal}"));
    match verb {
        // Here a signal is the way to end.
        Verb::Servers { .. } => ExitCode::SUCCESS,
        _ => ExitCode::from(128 + signal as u8),
    }
}
