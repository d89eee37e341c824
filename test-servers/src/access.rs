//! The user of a test server, with a password that nobody else knows.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Result;

/// The user, and the name of the database.
pub(crate) const NAME: &str = "distlock";

/// The user `distlock`, who may do everything in a server, and the database of that name.
#[derive(Clone)]
pub struct Access {
    /// Hexadecimal, so that it needs no escapes in a URL or in SQL.
    pub password: String,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// With a new password.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self {
            password: bytes.map(|byte| format!("{byte:02x}")).concat(),
        })
    }

    /// How clients on this machine get in.
    pub fn url(&self, scheme: &str, port: u16) -> String {
        format!(
            "{scheme}://{NAME}:{}@127.0.0.1:{port}/{NAME}",
            self.password
        )
    }

    /// What makes the user and the database in a MySQL or MariaDB, at its every start: one that may do everything, and pass
    /// it on.
    pub(crate) fn mysql_statements(&self) -> String {
        format!(
            "CREATE DATABASE IF NOT EXISTS {NAME};\n\
             CREATE USER IF NOT EXISTS '{NAME}'@'%' IDENTIFIED BY '{}';\n\
             GRANT ALL ON *.* TO '{NAME}'@'%' WITH GRANT OPTION;\n",
            self.password
        )
    }
}

/// A new file that only we can read.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
