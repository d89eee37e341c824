//! A private PostgreSQL: role and database `distlock`, a random password, and the disk flushed as in
//! production, because tests count the flushes.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use url::Url;

use crate::access::{self, Access};
use crate::account::Account;
use crate::process::{succeed, tied_to_us};
use crate::programs::{self, Version};
use crate::server::{Plan, copy, free_port};
use crate::{Protocol, Server, Setup, own_folder};

/// The fast shutdown; SIGTERM would wait for the clients.
const STOP: Signal = Signal::SIGINT;
const NEEDED: [&str; 3] = ["initdb", "postgres", "pg_basebackup"];

/// Whether its programs are on this machine.
pub fn is_installed() -> bool {
    find().is_some()
}

/// Starts one.
pub async fn start(setup: &Setup) -> Result<Server> {
    Template::new().await?.start(setup).await
}

/// The data of a new server, of which any number of servers get a copy.
#[derive(Debug)]
pub struct Template {
    /// The folder with PostgreSQL's programs of one version.
    binaries: PathBuf,
    version: Version,
    account: Account,
    access: Access,
    folder: TempDir,
}

impl Template {
    /// Makes the data, which takes a second or two.
    pub async fn new() -> Result<Self> {
        let binaries = find().context("initdb, postgres and pg_basebackup are missing")?;
        let template = Self {
            version: Version::of(&binaries.join("postgres"), (13, 0))?,
            binaries,
            account: Account::unprivileged("postgres")?,
            access: Access::random()?,
            folder: own_folder("postgres")?,
        };
        template.initdb().await?;
        template.make_database().await?;
        Ok(template)
    }

    /// Starts a server with a copy of the data.
    pub async fn start(&self, setup: &Setup) -> Result<Server> {
        let folder = own_folder("postgres")?;
        self.account.own(folder.path())?;
        copy(&self.folder.path().join("data"), folder.path())?;
        self.plan(folder)?.start(setup).await
    }

    /// Starts a standby of a server that was started with a copy of the same data. It follows until it is promoted.
    pub async fn standby(&self, primary: &Server, setup: &Setup) -> Result<Server> {
        let folder = own_folder("postgres")?;
        self.account.own(folder.path())?;
        let mut backup = self.command("pg_basebackup", folder.path());
        backup
            .env("PGPASSWORD", &self.access.password)
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
            .arg(format!("--dbname={}", without_database(primary.url())?))
            .arg("--pgdata")
            .arg(folder.path().join("data"));
        succeed("pg_basebackup", backup, Stdio::null(), folder.path()).await?;
        self.plan(folder)?.start(setup).await
    }

    async fn initdb(&self) -> Result<()> {
        let folder = self.folder.path();
        self.account.own(folder)?;
        let password_file = folder.join("password");
        access::write(&password_file, &self.access.password)?;
        self.account.own(&password_file)?;

        let mut initdb = self.command("initdb", folder);
        initdb
            .args(["--username=distlock", "--auth=scram-sha-256"])
            .args(["--encoding=UTF8", "--locale=C", "--no-sync"])
            .arg("--pwfile")
            .arg(&password_file)
            .arg("--pgdata")
            .arg(folder.join("data"));
        succeed("initdb", initdb, Stdio::null(), folder).await
    }

    /// By the mode for one user, which needs no server.
    async fn make_database(&self) -> Result<()> {
        let folder = self.folder.path();
        let statement = folder.join("database.sql");
        fs::write(&statement, "CREATE DATABASE distlock\n")?;
        let mut single = self.command("postgres", folder);
        single.args(["--single", "-D"]).arg(folder.join("data"));
        single.arg("postgres");
        succeed("postgres", single, fs::File::open(&statement)?, folder).await
    }

    /// A server on the data that is in the folder.
    fn plan(&self, folder: TempDir) -> Result<Plan> {
        let port = free_port()?;
        let mut sockets = OsString::from("unix_socket_directories=");
        sockets.push(folder.path());
        let program = tied_to_us(&self.binaries.join("postgres"), STOP);
        let mut command = self.prepared(program, folder.path());
        command
            .arg("-D")
            .arg(folder.path().join("data"))
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=300"])
            // In the folder, where a server that crashes leaves nothing to others.
            .args(["-c", "dynamic_shared_memory_type=mmap"])
            .arg("-c")
            .arg(sockets);
        Ok(Plan {
            name: format!("postgres {}", self.version),
            command,
            protocol: Protocol::Postgres,
            port,
            url: self.access.url("postgres", port),
            folder,
        })
    }

    fn command(&self, program: &str, folder: &Path) -> Command {
        self.prepared(Command::new(self.binaries.join(program)), folder)
    }

    fn prepared(&self, mut command: Command, folder: &Path) -> Command {
        self.account.runs(&mut command);
        // The developer's own PGSSLMODE, PGOPTIONS and the like are not for this server.
        for (key, _) in env::vars_os() {
            if key.to_string_lossy().starts_with("PG") {
                command.env_remove(key);
            }
        }
        command.env("LC_ALL", "C").current_dir(folder);
        command
    }
}

/// Debian's newest, else those on the `PATH`.
fn find() -> Option<PathBuf> {
    let debian = newest(Path::new("/usr/lib/postgresql"));
    let on_path = || Some(programs::on_path("initdb")?.parent()?.to_owned());
    debian.or_else(on_path)
}

/// Also without the password, which is no secret of the command line then.
fn without_database(url: &str) -> Result<String> {
    let mut url = Url::parse(url)?;
    url.set_path("");
    // It has a host, and so it can have none.
    let _ = url.set_password(None);
    Ok(url.into())
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
        install(root.path(), "18", &["pg_basebackup"]);
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
