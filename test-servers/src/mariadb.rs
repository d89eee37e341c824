//! A private MariaDB, with Debian's binaries: a user that may do everything, the disk flushed as in production, and the
//! time zones loaded, because tests set sessions to them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::access::{self, Access};
use crate::account::Account;
use crate::process::{succeed, tied_to_us};
use crate::programs::{self, Version};
use crate::server::{Plan, copy, free_port};
use crate::{Protocol, Server, Setup, ZONES, own_folder};

/// It takes no notice of SIGINT.
const STOP: Signal = Signal::SIGTERM;

/// Whether its programs are on this machine.
pub fn is_installed() -> bool {
    Binaries::find().is_some()
}

/// Starts one that knows the time zones.
pub async fn start(setup: &Setup) -> Result<Server> {
    let template = Template::new().await?;
    template.load_zones().await?;
    template.start(setup).await
}

/// Where the programs are that start a server from nothing.
#[derive(Debug)]
struct Binaries {
    server: PathBuf,
    install: PathBuf,
    zones: PathBuf,
}

impl Binaries {
    fn find() -> Option<Self> {
        let zones = programs::on_path("mariadb-tzinfo-to-sql");
        Some(Self {
            server: programs::find("mariadbd")?,
            install: programs::on_path("mariadb-install-db")?,
            zones: zones.or_else(|| programs::on_path("mysql_tzinfo_to_sql"))?,
        })
    }
}

/// The data of a new server, of which any number of servers get a copy.
#[derive(Debug)]
pub struct Template {
    binaries: Binaries,
    version: Version,
    account: Account,
    folder: TempDir,
}

impl Template {
    /// Makes the data, without time zones, which takes a second or two.
    pub async fn new() -> Result<Self> {
        let binaries = Binaries::find().context("mariadbd and mariadb-install-db are missing")?;
        let template = Self {
            version: Version::of(&binaries.server, (10, 6))?,
            binaries,
            account: Account::unprivileged("mysql")?,
            folder: own_folder("mariadb")?,
        };
        template.install().await?;
        Ok(template)
    }

    /// Starts a server with a copy of the data.
    pub async fn start(&self, setup: &Setup) -> Result<Server> {
        let folder = own_folder("mariadb")?;
        self.account.own(folder.path())?;
        copy(&self.folder.path().join("data"), folder.path())?;
        let (access, port) = (Access::random()?, free_port()?);
        let plan = Plan {
            name: format!("mariadb {}", self.version),
            command: self.server(folder.path(), port, &access)?,
            protocol: Protocol::MySql,
            port,
            url: access.url("mysql", port),
            folder,
        };
        plan.start(setup).await
    }

    async fn install(&self) -> Result<()> {
        let folder = self.folder.path();
        self.account.own(folder)?;
        let mut install = self.command(Command::new(&self.binaries.install), folder);
        // With the test database come accounts without a name, which would win over ours on this machine.
        install.args(["--skip-test-db", "--auth-root-authentication-method=socket"]);
        succeed("mariadb-install-db", install, Stdio::null(), folder).await
    }

    /// Into tables of the system, by the mode without network that the installation uses, too.
    async fn load_zones(&self) -> Result<()> {
        let folder = self.folder.path();
        let file = folder.join("zones.sql");
        fs::write(&file, "USE mysql;\n")?;
        let output = File::options().append(true).open(&file)?;
        let status = Command::new(&self.binaries.zones)
            .arg(ZONES)
            .stdout(output)
            // It warns of every file there that is no zone.
            .stderr(Stdio::null())
            .status()?;
        ensure!(
            status.success(),
            "cannot read the time zones in {ZONES}: install tzdata"
        );
        let mut bootstrap = self.command(Command::new(&self.binaries.server), folder);
        bootstrap.arg("--bootstrap");
        succeed("mariadbd", bootstrap, File::open(&file)?, folder).await
    }

    fn server(&self, folder: &Path, port: u16, access: &Access) -> Result<Command> {
        let init = folder.join("init.sql");
        access::write(&init, &access.mysql_statements())?;
        self.account.own(&init)?;
        let mut server = self.command(tied_to_us(&self.binaries.server, STOP), folder);
        server
            .arg(format!("--socket={}/mariadb.sock", folder.display()))
            .arg(format!("--pid-file={}/mariadb.pid", folder.display()))
            .arg(format!("--init-file={}", init.display()))
            .arg(format!("--port={port}"))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve"])
            // Some tests count statements and flushes, and some hold many connections.
            .args(["--performance-schema=ON", "--max-connections=500"]);
        Ok(server)
    }

    fn command(&self, mut command: Command, folder: &Path) -> Command {
        self.account.runs(&mut command);
        command
            // What /etc and the home folder set is not for this server. It must come first.
            .arg("--no-defaults")
            .arg(format!("--datadir={}/data", folder.display()))
            // One that starts deletes the temporary tables of others in a common folder.
            .arg(format!("--tmpdir={}", folder.display()))
            .current_dir(folder);
        command
    }
}
