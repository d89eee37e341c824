//! The programs that the tests need, and how they get onto a Debian or Ubuntu machine.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use distlock_test_servers::{ZONES, programs};
use nix::unistd::Uid;

use crate::docker;
use crate::progress::{Stopwatch, say};
use crate::servers::kind::Kind;
use crate::servers::plan::Plan as Servers;

/// Makes sure that every needed program is there: installs it, or fails and says how to.
pub(crate) fn ensure(servers: &Servers, may_install: bool) -> Result<()> {
    let missing = missing_packages(servers);
    let machine = Machine {
        has_apt: programs::on_path("apt-get").is_some(),
        is_root: Uid::effective().is_root(),
    };
    match plan(&missing, may_install, &machine) {
        Plan::Nothing => Ok(()),
        Plan::Refuse(message) if missing.contains(&"docker.io") => bail!("{message}{OTHER_WAY}"),
        Plan::Refuse(message) => bail!(message),
        Plan::Install => {
            install(&missing)?;
            let still = missing_packages(servers);
            ensure!(
                still.is_empty(),
                "installed, yet not found: {}",
                still.join(" ")
            );
            Ok(())
        }
    }
}

/// The daemon, what it sets up its network with, and what images are made with where no registry answers.
const DOCKER: [(&str, &str); 3] = [
    ("docker.io", "dockerd"),
    ("iptables", "iptables"),
    ("debootstrap", "debootstrap"),
];

/// Said where a container is needed, and packages are missing that we may not install.
const OTHER_WAY: &str = "\ndocker.io, iptables and debootstrap are for servers in containers, as MySQL, which Debian does \
    not have: a Docker that answers is as good, or DISTLOCK_TEST_MYSQL_URL=mysql://user:password@host:3306/database";

/// A server that the environment already names is not needed here, nor one that runs in a container.
fn missing_packages(servers: &Servers) -> Vec<&'static str> {
    let mut missing: Vec<_> = servers
        .local()
        .filter(|kind| !kind.is_installed())
        .filter_map(Kind::package)
        .collect();
    let mut need = |package, found: bool| {
        if !found {
            missing.push(package);
        }
    };
    if servers.local().any(Kind::loads_zones) {
        need("tzdata", Path::new(ZONES).exists());
    }
    need("faketime", programs::on_path("faketime").is_some());
    if servers.needs_docker() && !docker::answers() {
        for (package, program) in DOCKER {
            need(package, programs::find(program).is_some());
        }
    }
    missing
}

struct Machine {
    has_apt: bool,
    is_root: bool,
}

#[derive(Debug, PartialEq)]
enum Plan {
    Nothing,
    Install,
    Refuse(String),
}

fn plan(missing: &[&str], may_install: bool, machine: &Machine) -> Plan {
    if missing.is_empty() {
        return Plan::Nothing;
    }
    let names = missing.join(", ");
    if !machine.has_apt {
        return Plan::Refuse(format!(
            "missing: {names} (these are Debian's names); there is no apt-get here, \
             install them with this system's package manager"
        ));
    }
    if may_install && machine.is_root {
        return Plan::Install;
    }
    let sudo = if machine.is_root { "" } else { "sudo " };
    let command = format!(
        "{sudo}apt-get update && {sudo}apt-get {}",
        apt_arguments(missing).join(" ")
    );
    Plan::Refuse(if may_install {
        format!("missing: {names}; only root can install them: {command}")
    } else {
        format!("missing: {names}; install them: {command} (as root, --install does it)")
    })
}

fn apt_arguments<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    arguments
}

fn install(packages: &[&str]) -> Result<()> {
    let since = Stopwatch::start();
    let _no_services = NoServices::new(Path::new("/usr/sbin/policy-rc.d"))?;
    apt_get(&["update"])?;
    apt_get(&apt_arguments(packages))?;
    say(format_args!("installed {} in {since}", packages.join(", ")));
    Ok(())
}

/// In the foreground and to its end, whatever signal comes: a package half installed helps nobody.
fn apt_get(arguments: &[&str]) -> Result<()> {
    let shown = format!("apt-get {}", arguments.join(" "));
    say(&shown);
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        // stdout is for the tests' output.
        .stdout(std::io::stderr())
        .status()
        .context("cannot run apt-get")?;
    ensure!(status.success(), "`{shown}` failed ({status})");
    Ok(())
}

/// While it lives, packages start no services when they are installed; those that run already stay.
///
/// The means is Debian's: `policy-rc.d` answers 101, "not allowed". One that exists is left as it is.
struct NoServices<'a> {
    made_by_us: Option<&'a Path>,
}

impl<'a> NoServices<'a> {
    fn new(policy: &'a Path) -> Result<Self> {
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(policy);
        match file {
            Ok(mut file) => {
                let this = Self {
                    made_by_us: Some(policy),
                };
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                Ok(this)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { made_by_us: None }),
            Err(error) => Err(error).with_context(|| format!("cannot make {}", policy.display())),
        }
    }
}

impl Drop for NoServices<'_> {
    fn drop(&mut self) {
        if let Some(policy) = self.made_by_us
            && let Err(error) = fs::remove_file(policy)
        {
            say(format_args!("cannot remove {}: {error}", policy.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(missing: &[&str], may_install: bool, is_root: bool) -> Plan {
        let machine = Machine {
            has_apt: true,
            is_root,
        };
        plan(missing, may_install, &machine)
    }

    fn refusal(plan: Plan) -> String {
        match plan {
            Plan::Refuse(message) => message,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn nothing_missing_is_nothing_to_do() {
        assert_eq!(planned(&[], true, true), Plan::Nothing);
        assert_eq!(planned(&[], false, false), Plan::Nothing);
    }

    #[test]
    fn root_installs_only_when_told_to() {
        assert_eq!(planned(&["faketime"], true, true), Plan::Install);
        let message = refusal(planned(&["redis-server", "faketime"], false, true));
        let command = "apt-get update && \
                       apt-get install -y --no-install-recommends redis-server faketime";
        assert!(message.contains(command), "{message}");
        assert!(!message.contains("sudo"), "{message}");
    }

    #[test]
    fn others_get_the_sudo_command() {
        let message = refusal(planned(&["postgresql"], true, false));
        let command = "sudo apt-get update && \
                       sudo apt-get install -y --no-install-recommends postgresql";
        assert!(message.contains(command), "{message}");
    }

    #[test]
    fn without_apt_only_the_names() {
        let machine = Machine {
            has_apt: false,
            is_root: true,
        };
        let message = refusal(plan(&["postgresql"], true, &machine));
        assert!(message.contains("postgresql"), "{message}");
        assert!(!message.contains("-y"), "{message}");
    }

    #[test]
    fn own_service_policy_goes_and_a_foreign_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy-rc.d");
        drop(NoServices::new(&policy).unwrap());
        assert!(!policy.exists());

        fs::write(&policy, "theirs").unwrap();
        drop(NoServices::new(&policy).unwrap());
        assert_eq!(fs::read_to_string(&policy).unwrap(), "theirs");
    }
}
