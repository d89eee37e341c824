//! The account that a server runs as, where it refuses to run as root.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::{Uid, User};

/// A user without rights if we are root, and nobody else but us if we are not.
#[derive(Debug)]
pub(crate) struct Account(Option<User>);

impl Account {
    /// `name`: the user that the server's package makes.
    pub(crate) fn unprivileged(name: &str) -> Result<Self> {
        if !Uid::effective().is_root() {
            return Ok(Self(None));
        }
        let user = User::from_name(name)?.with_context(|| {
            format!("the server does not run as root, and there is no user `{name}` to run it as")
        })?;
        Ok(Self(Some(user)))
    }

    pub(crate) fn own(&self, path: &Path) -> Result<()> {
        if let Some(user) = &self.0 {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .with_context(|| format!("cannot give {} to {}", path.display(), user.name))?;
        }
        Ok(())
    }

    pub(crate) fn runs(&self, command: &mut Command) {
        if let Some(user) = &self.0 {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
    }
}
