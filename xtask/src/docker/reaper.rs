//! What removes the containers of this run when it is over, in whatever way it ends.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// The label of every container of the tests; its value tells the runs apart.
pub(super) const LABEL: &str = "distlock-test";

/// Reads until its input ends, which happens even when this program is killed.
const SCRIPT: &str = r#"
read -r _
containers=$(docker ps --all --quiet --filter "label=$1")
[ -z "$containers" ] || docker rm --force --volumes $containers
"#;

/// A shell that waits for our end. The containers remove themselves when they are dropped; left over are those of a run
/// that was killed, and one that a signal caught between its making and its start.
pub(super) struct Reaper {
    run: String,
    shell: Child,
}

impl Reaper {
    pub(super) fn start() -> Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)?;
        let run = random.map(|byte| format!("{byte:02x}")).concat();
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "reaper", &format!("{LABEL}={run}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own: Ctrl-C must not end it before us.
            .process_group(0)
            .spawn()
            .context("cannot run sh")?;
        Ok(Self { run, shell })
    }

    pub(super) fn label(&self) -> String {
        format!("{LABEL}={}", self.run)
    }

    /// The value of the label for this run.
    pub(super) fn run(&self) -> &str {
        &self.run
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
