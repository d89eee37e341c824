//! `cargo xtask ci`: the checks besides the tests, the cheap ones first.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::command::{cargo, run as step};
use crate::progress::{Stopwatch, say};
use crate::{
    conformance_page, deny, doc_links, faults_page, features, namespaces, races, servers_page,
};

pub(crate) async fn run(may_install: bool) -> Result<ExitCode> {
    let since = Stopwatch::start();
    step(&mut cargo(["fmt", "--all", "--check"])).await?;
    doc_links::run(Path::new("."))?;
    conformance_page::check()?;
    faults_page::check()?;
    servers_page::check()?;
    step(&mut clippy()).await?;
    step(&mut docs()).await?;
    namespaces::test().await?;
    races::test().await?;
    features::check().await?;
    deny::check(may_install).await?;
    say(format_args!("all checks passed, {since} in all"));
    Ok(ExitCode::SUCCESS)
}

fn clippy() -> tokio::process::Command {
    cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ])
}

fn docs() -> tokio::process::Command {
    let mut command = cargo(["doc", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-Dwarnings");
    command
}
