//! A private PostgreSQL: role and database `distlock`, a random password, and the disk flushed as in
//! production, because tests count the flushes.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::access::{self, Access};
use super::account::Account;
use super::kind::Kind;
use super::process::{Process, succeed, tied_to_us};
use super::ready::ready;
use super::{Running, Server, free_port, own_folder};
use crate::programs::{self, Version};
use crate::progress::say;

/// The fast shutdown; SIGTERM would wait for the clients.
const STOP: Signal = Signal::SIGINT;
const NEEDED: [&str; 4] = ["initdb", "postgres", "pg_isready", "createdb"];

pub(super) async fn start() -> Result<Server> {
    let binaries = Binaries::find().context("initdb and postgres are missing")?;
    let version = Version::of(&binaries.0.join("postgres"), (13, 0))?;
    let folder = own_folder("postgres")?;
    let cluster = Cluster {
        binaries,
        account: Account::unprivileged("postgres")?,
        folder: folder.path(),
        access: Access::random()?,
    };
    say(format_args!(
        "postgres {version}: initdb in {}",
        folder.path().display()
    ));
    cluster.initdb().await?;

    let port = free_port()?;
    let name = format!("postgres {version}");
    let mut process = Process::start(name, &mut cluster.server(port), STOP, folder.path())?;
    say(format_args!(
        "waiting for postgres on 127.0.0.1:{port} (ping)"
    ));
    ready(&mut process, async || cluster.answers(port).await).await?;
    cluster.createdb(port).await?;
    Ok(Server {
        kind: Kind::Postgres,
        url: cluster.access.url("postgres", port),
        running: Running::Process(process, folder),
    })
}

/// The folder with PostgreSQL's programs of one version.
pub(super) struct Binaries(PathBuf);

impl Binaries {
    /// Debian's newest, else those on the `PATH`.
    pub(super) fn find() -> Option<Self> {
        let debian = newest(Path::new("/usr/lib/postgresql"));
        let on_path = || programs::on_path("initdb")?.parent().map(Path::to_owned);
        debian.or_else(on_path).map(Self)
    }
}

/// `ROOT/VERSION/bin` of the greatest version that is complete: a client package alone brings only a part.
fn newest(root: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(root).ok()?.flatten();
    let versions = folders.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    versions
        .map(|version| (version, root.join(version.to_string()).join("bin")))
        .filter(|(_, bin)| is_complete(bin))
        .max()
        .map(|(_, bin)| bin)
}

fn is_complete(bin: &Path) -> bool {
    NEEDED
        .iter()
        .all(|name| programs::is_executable(&bin.join(name)))
}

/// A data folder in the making, and the commands for it.
struct Cluster<'a> {
    binaries: Binaries,
    account: Account,
    folder: &'a Path,
    access: Access,
}

impl Cluster<'_> {
    async fn initdb(&self) -> Result<()> {
        self.account.own(self.folder)?;
        let password_file = self.folder.join("password");
        access::write(&password_file, &self.access.password)?;
        self.account.own(&password_file)?;

        let mut initdb = self.command(Command::new(self.binaries.0.join("initdb")));
        initdb
            .args(["--username=distlock", "--auth=scram-sha-256"])
            .args(["--encoding=UTF8", "--locale=C", "--no-sync"])
            .arg("--pwfile")
            .arg(&password_file)
            .arg("--pgdata")
            .arg(self.folder.join("data"));
        succeed("initdb", initdb, Stdio::null(), self.folder).await
    }

    fn server(&self, port: u16) -> Command {
        let mut postgres = self.command(tied_to_us(&self.binaries.0.join("postgres"), STOP));
        let mut sockets = OsString::from("unix_socket_directories=");
        sockets.push(self.folder);
        postgres
            .arg("-D")
            .arg(self.folder.join("data"))
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=300"])
            .arg("-c")
            .arg(sockets);
        postgres
    }

    /// pg_isready sends a start-up packet, and is content only when sessions are let in.
    async fn answers(&self, port: u16) -> bool {
        let mut ping = self.client("pg_isready", port);
        ping.args(["--dbname=postgres", "--timeout=2"]);
        succeed("pg_isready", ping, Stdio::null(), self.folder)
            .await
            .is_ok()
    }

    async fn createdb(&self, port: u16) -> Result<()> {
        let mut createdb = self.client("createdb", port);
        createdb
            .env("PGPASSWORD", &self.access.password)
            .args(["--no-password", "distlock"]);
        succeed("createdb", createdb, Stdio::null(), self.folder).await
    }

    fn client(&self, name: &str, port: u16) -> Command {
        let mut client = self.command(Command::new(self.binaries.0.join(name)));
        client
            .args(["--host=127.0.0.1", "--username=distlock"])
            .arg(format!("--port={port}"));
        client
    }

    fn command(&self, mut command: Command) -> Command {
        self.account.runs(&mut command);
        // The developer's own PGSSLMODE, PGOPTIONS and the like are not for this server.
        for (key, _) in env::vars_os() {
            if key.to_string_lossy().starts_with("PG") {
                command.env_remove(key);
            }
        }
        command.env("LC_ALL", "C").current_dir(self.folder);
        command
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn install(root: &Path, version: &str, programs: &[&str]) {
        let bin = root.join(version).join("bin");
        fs::create_dir_all(&bin).unwrap();
        for name in programs {
            let file = bin.join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn the_newest_complete_version_is_taken() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "9", &NEEDED);
        install(root.path(), "15", &NEEDED);
        install(root.path(), "18", &["pg_isready", "createdb"]);
        install(root.path(), "old", &NEEDED);
        assert_eq!(newest(root.path()), Some(root.path().join("15/bin")));
    }

    #[test]
    fn no_version_is_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(newest(root.path()), None);
        assert_eq!(newest(&root.path().join("missing")), None);
    }
}
