//! A private MariaDB, with Debian's binaries: a user that may do everything, the disk flushed as in production, and the
//! time zones loaded, because tests set sessions to them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::access::{self, Access};
use super::account::Account;
use super::kind::Kind;
use super::process::{Process, succeed, tied_to_us};
use super::ready::ready;
use super::{Running, Server, ZONES, free_port, own_folder, ping};
use crate::programs::{self, Version};
use crate::progress::say;

/// It takes no notice of SIGINT.
const STOP: Signal = Signal::SIGTERM;

/// Where the programs are that start a server from nothing.
pub(super) struct Binaries {
    server: PathBuf,
    install: PathBuf,
    zones: PathBuf,
}

impl Binaries {
    pub(super) fn find() -> Option<Self> {
        let zones = programs::on_path("mariadb-tzinfo-to-sql");
        Some(Self {
            server: programs::find("mariadbd")?,
            install: programs::on_path("mariadb-install-db")?,
            zones: zones.or_else(|| programs::on_path("mysql_tzinfo_to_sql"))?,
        })
    }
}

pub(super) async fn start() -> Result<Server> {
    let binaries = Binaries::find().context("mariadbd and mariadb-install-db are missing")?;
    let version = Version::of(&binaries.server, (10, 6))?;
    let folder = own_folder("mariadb")?;
    let data = Data {
        binaries,
        account: Account::unprivileged("mysql")?,
        folder: folder.path(),
    };
    let access = Access::random()?;
    say(format_args!(
        "mariadb {version}: mariadb-install-db in {}",
        folder.path().display()
    ));
    data.install().await?;
    data.load_zones().await?;
    let port = free_port()?;
    let mut command = data.server(port, &access)?;
    let mut process = Process::start(
        format!("mariadb {version}"),
        &mut command,
        STOP,
        folder.path(),
    )?;
    ready(&mut process, async || ping::mysql(port).await).await?;
    Ok(Server {
        kind: Kind::Mariadb,
        url: access.url("mysql", port),
        running: Running::Process(process, folder),
    })
}

/// A data folder in the making, and the commands for it.
struct Data<'a> {
    binaries: Binaries,
    account: Account,
    folder: &'a Path,
}

impl Data<'_> {
    async fn install(&self) -> Result<()> {
        self.account.own(self.folder)?;
        let mut install = self.command(Command::new(&self.binaries.install));
        // With the test database come accounts without a name, which would win over ours on this machine.
        install.args(["--skip-test-db", "--auth-root-authentication-method=socket"]);
        succeed("mariadb-install-db", install, Stdio::null(), self.folder).await
    }

    /// Into tables of the system, by the mode without network that the installation uses, too.
    async fn load_zones(&self) -> Result<()> {
        let file = self.folder.join("zones.sql");
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
        let mut bootstrap = self.command(Command::new(&self.binaries.server));
        bootstrap.arg("--bootstrap");
        succeed("mariadbd", bootstrap, File::open(&file)?, self.folder).await
    }

    fn server(&self, port: u16, access: &Access) -> Result<Command> {
        let init = self.folder.join("init.sql");
        access::write(&init, &access.mysql_statements())?;
        self.account.own(&init)?;
        let mut server = self.command(tied_to_us(&self.binaries.server, STOP));
        server
            .arg(format!("--socket={}/mariadb.sock", self.folder.display()))
            .arg(format!("--pid-file={}/mariadb.pid", self.folder.display()))
            .arg(format!("--init-file={}", init.display()))
            .arg(format!("--port={port}"))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve"])
            // Some tests count statements and flushes, and some hold many connections.
            .args(["--performance-schema=ON", "--max-connections=500"]);
        Ok(server)
    }

    fn command(&self, mut command: Command) -> Command {
        self.account.runs(&mut command);
        command
            // What /etc and the home folder set is not for this server. It must come first.
            .arg("--no-defaults")
            .arg(format!("--datadir={}/data", self.folder.display()))
            // One that starts deletes the temporary tables of others in a common folder.
            .arg(format!("--tmpdir={}", self.folder.display()))
            .current_dir(self.folder);
        command
    }
}
