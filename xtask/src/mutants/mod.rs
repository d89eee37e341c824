//! `cargo xtask mutants`: breaks a copy of the code in one place after the other, and sees that the tests named for it fail.

mod list;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

use crate::command::{cargo, show};
use crate::install;
use crate::progress::{Stopwatch, say};
use crate::servers::Servers;
use crate::servers::plan::Plan;
use list::MUTANTS;

/// The copy that is broken, and what is built of it: with the locks of the races apart, so that nothing is built anew.
const TREE: &str = "target/mutants/tree";
const BUILD: &str = "target/mutants/build";
const RACES_BUILD: &str = "target/mutants/races";

/// One place to break.
struct Mutant {
    name: &'static str,
    file: &'static str,
    /// What stands there, once.
    from: &'static str,
    to: &'static str,
    tests: &'static [Test],
}

/// A test by its program and a part of its name.
#[derive(Clone, Copy)]
struct Test {
    package: &'static str,
    target: &'static str,
    name: &'static str,
}

impl Test {
    const fn of(package: &'static str, target: &'static str) -> Self {
        Self {
            package,
            target,
            name: "",
        }
    }

    const fn races() -> Self {
        Self::of("distlock-api", super::races::TARGET)
    }

    const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

pub(crate) async fn run(only: &[String], may_install: bool) -> Result<ExitCode> {
    let since = Stopwatch::start();
    let chosen = |mutant: &&Mutant| {
        only.is_empty() || only.iter().any(|part| mutant.name.contains(part.as_str()))
    };
    let chosen: Vec<_> = MUTANTS.iter().filter(chosen).collect();
    ensure!(!chosen.is_empty(), "no mutant has this in its name");
    copy_tree().await?;
    let packages = chosen.iter().flat_map(|mutant| mutant.tests);
    let packages: Vec<_> = packages.map(|test| test.package.to_owned()).collect();
    let plan = Plan::usual().for_packages(&packages);
    install::ensure(&plan, may_install)?;
    let servers = Servers::start(&plan).await?;
    let mut survivors = 0;
    for mutant in &chosen {
        survivors += mutant.try_all(&servers).await?;
    }
    let tests: usize = chosen.iter().map(|mutant| mutant.tests.len()).sum();
    let mutants = chosen.len();
    println!("{mutants} mutants, {tests} tests that must fail, {survivors} did not ({since})");
    Ok(match survivors {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

impl Mutant {
    /// How many of its tests did not find it.
    async fn try_all(&self, servers: &Servers) -> Result<usize> {
        let path = Path::new(TREE).join(self.file);
        let right = fs::read_to_string(&path)?;
        fs::write(&path, self.applied_to(&right)?)?;
        let mut survived = 0;
        for test in self.tests {
            let caught = test.fails(servers).await;
            let caught = caught.with_context(|| format!("mutant \"{}\"", self.name))?;
            println!(
                "{}: {} by {} {}",
                self.name,
                if caught { "caught" } else { "NOT CAUGHT" },
                test.package,
                test.name
            );
            survived += usize::from(!caught);
        }
        fs::write(&path, right)?;
        Ok(survived)
    }

    fn applied_to(&self, right: &str) -> Result<String> {
        let found = right.matches(self.from).count();
        ensure!(
            found == 1,
            "mutant \"{}\": {} has what it changes {found} times",
            self.name,
            self.file
        );
        Ok(right.replace(self.from, self.to))
    }
}

impl Test {
    /// Whether the test ran and failed. Code that does not compile proves nothing.
    async fn fails(&self, servers: &Servers) -> Result<bool> {
        let (mut command, build) = match self.target {
            super::races::TARGET => (super::races::command(self.name), RACES_BUILD),
            target => {
                let mut command = cargo(["test", "--all-features", "-p", self.package]);
                command.args(["--test", target, "--", self.name]);
                (command, BUILD)
            }
        };
        let build = std::env::current_dir()?.join(build);
        command
            .current_dir(TREE)
            .env("CARGO_TARGET_DIR", build)
            .envs(servers.variables())
            .stdin(Stdio::null());
        say(show(&command));
        let output = command.output().await?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let failed = printed.contains("test result: FAILED");
        let ran = printed.contains("test result: ") && !printed.contains("running 0 tests");
        if !ran {
            bail!(
                "`{}` ran no test:\n{printed}\n{}",
                show(&command),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(failed)
    }
}

/// The files that git knows, and those that it would take, as they are now.
async fn copy_tree() -> Result<()> {
    let mut list = Command::new("git");
    list.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let listed = list.output().await?;
    ensure!(listed.status.success(), "`git ls-files` failed");
    let _ = fs::remove_dir_all(TREE);
    for file in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (PathBuf::from(file), Path::new(TREE).join(file));
        if !from.is_file() {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file without a folder")?)?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_finds_its_place() {
        for mutant in MUTANTS {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let right = fs::read_to_string(path.join(mutant.file)).unwrap();
            let wrong = mutant.applied_to(&right).unwrap();
            assert_ne!(right, wrong, "{}", mutant.name);
        }
    }
}
