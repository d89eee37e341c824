//! Licences, bans and sources of the dependencies, by cargo-deny; the rules are in `deny.toml`.

use std::process::Stdio;

use anyhow::{Result, bail};

use crate::command::{cargo, run};

pub(crate) async fn check(may_install: bool) -> Result<()> {
    if !is_installed().await {
        if !may_install {
            bail!("cargo-deny is missing; install it: cargo install cargo-deny --locked");
        }
        // Unoptimised it builds in half the time, and still runs for a second or two only.
        run(&mut cargo(["install", "cargo-deny", "--locked", "--debug"])).await?;
    }
    // Without the graphs, which bury the answer under hundreds of lines for each doubled crate.
    run(&mut cargo([
        "deny",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
    .await
}

async fn is_installed() -> bool {
    let status = cargo(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    status.is_ok_and(|status| status.success())
}
