//! Oracle's MySQL. Debian's stable releases do not have it, so that mostly it runs in a container; where its own `mysqld`
//! is installed it is a private process. A user that may do everything, and the time zones loaded.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::access::{self, Access};
use crate::account::Account;
use crate::process::{succeed, tied_to_us};
use crate::programs::{self, Version};
use crate::server::{Plan, free_port};
use crate::{Protocol, Server, Setup, ZONES, own_folder};

/// It takes no notice of SIGINT.
const STOP: Signal = Signal::SIGTERM;

/// Whether its programs are on this machine.
pub fn is_installed() -> bool {
    Binaries::find().is_some()
}

/// Starts one.
pub async fn start(setup: &Setup) -> Result<Server> {
    let binaries = Binaries::find().context("Oracle's mysqld is missing")?;
    let version = Version::of(&binaries.server, (8, 0))?;
    let folder = own_folder("mysql")?;
    let data = Data {
        binaries,
        account: Account::unprivileged("mysql")?,
        folder: folder.path(),
    };
    data.initialize().await?;
    let (access, port) = (Access::random()?, free_port()?);
    let plan = Plan {
        name: format!("mysql {version}"),
        command: data.server(port, &access)?,
        protocol: Protocol::MySql,
        port,
        url: access.url("mysql", port),
        folder,
    };
    plan.start(setup).await
}

struct Binaries {
    server: PathBuf,
    zones: PathBuf,
}

impl Binaries {
    /// MariaDB has programs of the same names; they do not count.
    fn find() -> Option<Self> {
        let server = programs::find("mysqld")?;
        let output = Command::new(&server).arg("--version").output().ok()?;
        let is_oracles = !String::from_utf8_lossy(&output.stdout).contains("MariaDB");
        is_oracles.then_some(Self {
            server,
            zones: programs::on_path("mysql_tzinfo_to_sql")?,
        })
    }
}

/// A data folder in the making, and the commands for it.
struct Data<'a> {
    binaries: Binaries,
    account: Account,
    folder: &'a Path,
}

impl Data<'_> {
    async fn initialize(&self) -> Result<()> {
        self.account.own(self.folder)?;
        let mut initialize = self.command(Command::new(&self.binaries.server));
        // Its root has no password, but can come by the socket only, in a folder that is ours.
        initialize.arg("--initialize-insecure");
        succeed("initialize", initialize, Stdio::null(), self.folder).await
    }

    fn server(&self, port: u16, access: &Access) -> Result<Command> {
        let mut server = self.command(tied_to_us(&self.binaries.server, STOP));
        server
            .arg(format!("--socket={}/mysql.sock", self.folder.display()))
            .arg(format!("--pid-file={}/mysql.pid", self.folder.display()))
            .arg(format!("--init-file={}", self.init_file(access)?.display()))
            .arg(format!("--port={port}"))
            .args([
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--mysqlx=OFF",
            ])
            .arg("--max-connections=500");
        Ok(server)
    }

    /// Run by the server before it lets anybody in.
    fn init_file(&self, access: &Access) -> Result<PathBuf> {
        let file = self.folder.join("init.sql");
        access::write(&file, &format!("USE mysql;\n{}", access.mysql_statements()))?;
        let status = Command::new(&self.binaries.zones)
            .arg(ZONES)
            .stdout(File::options().append(true).open(&file)?)
            // It warns of every file there that is no zone.
            .stderr(Stdio::null())
            .status()?;
        ensure!(
            status.success(),
            "cannot read the time zones in {ZONES}: install tzdata"
        );
        self.account.own(&file)?;
        Ok(fs::canonicalize(file)?)
    }

    fn command(&self, mut command: Command) -> Command {
        self.account.runs(&mut command);
        command
            // What /etc and the home folder set is not for this server. It must come first.
            .arg("--no-defaults")
            .arg(format!("--datadir={}/data", self.folder.display()))
            .current_dir(self.folder);
        command
    }
}
