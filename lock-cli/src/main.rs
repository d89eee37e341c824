//! `distlock`: runs a command under a distributed lock, and shows who holds which.
//!
//! The pieces, in the order in which a run goes through them: `args` (what was asked, checked before anything is
//! touched), `store` (which store), `run` (the lock around the child), `supervise` (the child's end, or the lock's),
//! `child`, `terminal` and `signals` (the process under the lock), `exit` (how it all ends). The other
//! commands have a file each: `list`, `show`, `release`, `check`, `migrate`, `schema`, `purge`, `completions`, `man`.
//! `output` is how they print, `address` the store's URL as it may be shown, `usage` what is said of wrong arguments,
//! `secrecy` what other processes may see of this one.

mod address;
mod args;
mod check;
mod child;
mod completions;
mod duration;
mod exit;
mod list;
mod man;
mod migrate;
mod output;
mod purge;
mod release;
mod run;
mod schema;
mod secrecy;
mod show;
mod signals;
mod store;
mod supervise;
mod terminal;
mod usage;

use std::process::ExitCode;

use args::Command;
use exit::{Exit, Failure};

fn main() -> ExitCode {
    secrecy::close_to_others();
    let exit = match args::parse() {
        Ok(Some(command)) => perform(command),
        Ok(None) => Ok(Exit::Done),
        Err(failure) => Err(failure),
    };
    let tell = match args::wants_json() {
        true => Failure::tell_as_json,
        false => Failure::tell,
    };
    exit.unwrap_or_else(tell).into()
}

fn perform(command: Command) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start: {error}")))?;
    let exit = runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(args).await,
            Command::List(args) => list::list(&args).await,
            Command::Show(args) => show::show(&args).await,
            Command::Release(args) => release::release(&args).await,
            Command::Check(args) => check::check(&args).await,
            Command::Migrate(args) => migrate::migrate(&args).await,
            Command::Schema(args) => schema::schema(&args),
            Command::Purge(args) => purge::purge(&args).await,
            Command::Completions(args) => completions::completions(&args),
            Command::Man => man::man(),
        }
    });
    // A name look-up that hangs in a thread must not keep the program from ending.
    runtime.shutdown_background();
    exit
}
