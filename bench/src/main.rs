//! What locks cost, on real servers: `cargo xtask bench` starts them and calls this.
//!
//! One connection for each contender, one thread: what is compared is the way to the server and back.

mod counting;
mod held;
mod hold;
mod raw;
mod report;
mod stats;
mod store;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// What locks cost
#[derive(Parser)]
#[command(name = "bench", bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Acquire and release, beside the raw statements that do as much at the store
    Hold(hold::Options),
    /// Many leases held at a time by one process, kept alive by the watchdog
    Held(held::Options),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match Cli::parse().verb {
        Verb::Hold(options) => hold::run(&options).await,
        Verb::Held(options) => held::run(&options).await,
    }
}
