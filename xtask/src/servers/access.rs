//! The user of a test server, with a password that nobody else knows.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Result;

/// The user, and the name of the database.
pub(super) const NAME: &str = "distlock";

pub(super) struct Access {
    pub(super) password: String,
}

impl Access {
    /// Hexadecimal, so that it needs no escapes in a URL or in SQL.
    pub(super) fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self {
            password: bytes.map(|byte| format!("{byte:02x}")).concat(),
        })
    }

    pub(super) fn url(&self, scheme: &str, port: u16) -> String {
        format!(
            "{scheme}://{NAME}:{}@127.0.0.1:{port}/{NAME}",
            self.password
        )
    }

    /// What makes the user and the database in a new MySQL or MariaDB: one that may do everything, and pass it on.
    pub(super) fn mysql_statements(&self) -> String {
        format!(
            "CREATE DATABASE {NAME};\n\
             CREATE USER '{NAME}'@'%' IDENTIFIED BY '{}';\n\
             GRANT ALL ON *.* TO '{NAME}'@'%' WITH GRANT OPTION;\n",
            self.password
        )
    }
}

/// A new file that only we can read.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
