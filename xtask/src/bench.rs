//! `cargo xtask bench`: servers up, the benchmarks in a release build, servers down.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::command::{cargo, run as step};
use crate::install;
use crate::servers::Servers;
use crate::servers::kind::Kind;
use crate::servers::plan::Plan;

pub(crate) async fn run(may_install: bool, args: &[OsString]) -> Result<ExitCode> {
    let plan = Plan::usual().for_packages(&packages(args));
    // What must be built is built before servers take part of the machine.
    step(&mut cargo([
        "build",
        "--release",
        "--package",
        "distlock-bench",
    ]))
    .await?;
    install::ensure(&plan, may_install)?;
    let servers = Servers::start(&plan).await?;
    let mut bench = cargo([
        "run",
        "--quiet",
        "--release",
        "--package",
        "distlock-bench",
        "--",
    ]);
    step(bench.args(args).envs(servers.variables())).await?;
    Ok(ExitCode::SUCCESS)
}

/// The packages of the stores that are asked for, whose tests need the same servers; none for all.
fn packages(args: &[OsString]) -> Vec<String> {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let mut packages = Vec::new();
    if args.is_empty() || args.iter().any(|arg| matches!(&**arg, "-h" | "--help")) {
        // To be told what there is takes no server.
        packages.push("distlock-sqlite".to_owned());
    }
    for (place, arg) in args.iter().enumerate() {
        let (option, value) = arg.split_once('=').unwrap_or((arg, ""));
        if !matches!(option, "--only" | "--store") {
            continue;
        }
        let next = args.get(place + 1).map_or("", |next| &**next);
        packages.push(package(if value.is_empty() { next } else { value }).to_owned());
    }
    packages
}

fn package(store: &str) -> &'static str {
    let kinds = Kind::ALL.into_iter();
    let package = kinds
        .filter(|kind| kind.name() == store)
        .map(Kind::tested_by)
        .next();
    package.unwrap_or("distlock-sqlite")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages_of(args: &[&str]) -> Vec<String> {
        packages(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn only_the_servers_of_the_stores_that_are_asked_for_are_started() {
        assert_eq!(packages_of(&["hold"]), [""; 0]);
        assert_eq!(packages_of(&["hold", "--help"]), ["distlock-sqlite"]);
        let some = ["held", "--store", "redis", "--ttl", "5s", "--only=mariadb"];
        assert_eq!(packages_of(&some), ["distlock-redis", "distlock-mysql"]);
        assert_eq!(
            packages_of(&["hold", "--only", "sqlite"]),
            ["distlock-sqlite"]
        );
    }
}
