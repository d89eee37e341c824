//! Docker, for the servers that this machine does not have as programs.

mod container;
mod daemon;
pub(crate) mod image;
mod reaper;

use std::process::Command;

use anyhow::{Context, Result, ensure};

pub(crate) use self::container::{Container, Request};
use self::daemon::Daemon;
use self::reaper::Reaper;
use crate::progress::say;

/// A daemon that answers. Dropping it removes every container that was started with it.
pub(crate) struct Docker {
    // Goes first: what it removes needs the daemon.
    reaper: Reaper,
    _daemon: Daemon,
}

impl Docker {
    pub(crate) async fn open() -> Result<Self> {
        let daemon = Daemon::open().await?;
        Ok(Self {
            reaper: Reaper::start()?,
            _daemon: daemon,
        })
    }

    /// Of the containers that are removed at the end; for those that somebody else starts.
    pub(crate) fn label(&self) -> String {
        self.reaper.label()
    }
}

/// Runs `docker` with these arguments, and gives what it prints.
pub(crate) fn docker(arguments: &[&str]) -> Result<String> {
    let shown = format!("docker {}", arguments.join(" "));
    let output = Command::new("docker")
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run `{shown}`"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{shown}` failed: {}",
        error.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether there is nothing to install and nothing to start.
pub(crate) fn answers() -> bool {
    version().is_ok()
}

fn version() -> Result<String> {
    docker(&["version", "--format", "{{.Server.Version}}"])
}

/// `cargo xtask images`: makes or fetches images, so that a later run finds them.
pub(crate) async fn images(names: &[String]) -> Result<()> {
    let _docker = Docker::open().await?;
    for image in image::chosen(names)? {
        let reference = image.obtain().await?;
        say(format_args!("{}: {reference}", image.name()));
    }
    Ok(())
}
