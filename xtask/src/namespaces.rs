//! The tests that need the right to make a namespace, which only root has, and not everywhere.

use std::process::Stdio;

use anyhow::Result;
use tokio::process::Command;

use crate::command::{cargo, run};
use crate::progress::say;

pub(crate) async fn test() -> Result<()> {
    if !may_make_namespaces().await {
        say(
            "not run, for want of the right to make a time namespace: a_time_namespace_changes_nothing",
        );
        return Ok(());
    }
    let mut command = cargo(["test", "--quiet", "-p", "distlock-sqlite", "--all-features"]);
    command.args(["--test", "processes", "--", "--ignored", "--exact"]);
    run(command.arg("a_time_namespace_changes_nothing")).await
}

async fn may_make_namespaces() -> bool {
    let status = Command::new("unshare")
        .args(["--time", "--fork", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    status.is_ok_and(|status| status.success())
}
