use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use distlock::{FencingToken, LockAdmin, LockName};
use serde_json::json;

use crate::exit::Failure;
use crate::store::{Store, StoreArgs};
use crate::{duration, man, output, usage};

mod run;

pub(crate) use run::{IfUnavailable, RunArgs};

/// Runs a command under a lock that machines share, so that it runs once at a time.
#[derive(Parser)]
#[command(name = "distlock", version, after_help = man::STORES, arg_required_else_help = false)]
#[command(disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs a command while holding a lock, and not where it is held.
    Run(RunArgs),
    /// Lists the locks that the store knows, by name.
    List(AdminArgs),
    /// Shows one lock: who has it, since when and until when.
    ///
    /// A lock that the store has no record of is free: that is no error.
    Show(ShowArgs),
    /// Frees a lock, whoever holds it.
    ///
    /// Whoever has it is neither asked nor stopped: what still runs under the lock goes on, and only what checks the
    /// fencing token keeps it out. So without --force this frees nothing, and says who would lose the lock.
    Release(ReleaseArgs),
    /// Looks for what keeps the store from being used, or weakens it.
    ///
    /// A fault keeps every lock from being had; a warning weakens what locks promise. Each is told with what to do
    /// about it. No lock is touched.
    Check(CheckArgs),
    /// Makes what is missing in the store.
    ///
    /// Safe to run again, and on many machines at once. Locks that are held stay as they are.
    Migrate(AdminArgs),
    /// Prints the SQL that makes the table.
    ///
    /// For those who run it themselves. Touches no store.
    Schema(SchemaArgs),
    /// Deletes the records of locks that have been free for long.
    ///
    /// For stores that keep a record for each name ever used. Held and resting locks stay, and so do records whose
    /// fencing counter is ahead of the store's clock, so that fencing tokens keep growing. The last tick of a lock is
    /// forgotten with its record: choose a time longer than any run can be late. Redis forgets free locks by itself:
    /// there is nothing to delete.
    Purge(PurgeArgs),
    /// Prints the completions for a shell.
    ///
    /// For bash: distlock completions bash > /etc/bash_completion.d/distlock
    Completions(CompletionsArgs),
    /// Prints the manual page, for man -l -.
    Man,
}

/// What all commands share that ask the store something.
#[derive(Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Print JSON: the answer on stdout, an error on stderr.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// The lock's name; after -- if it begins with -.
    #[arg(value_parser = lock_name)]
    pub(crate) name: LockName,
}

#[derive(Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// Free it, though it is held or resting.
    #[arg(long)]
    pub(crate) force: bool,

    /// Only if this is the fencing token that it is held under: another holder, who came since you looked, keeps it.
    #[arg(long, value_name = "FENCE", value_parser = fencing_token)]
    pub(crate) only_if: Option<FencingToken>,

    /// The lock's name; after -- if it begins with -.
    #[arg(value_parser = lock_name)]
    pub(crate) name: LockName,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// Let warnings count as faults do, for the exit code.
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// How long a lock must have been free, such as 720h: longer than any run can be late.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) older_than: Duration,
}

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

#[derive(Args)]
pub(crate) struct SchemaArgs {
    /// The store that the SQL is for.
    #[arg(long = "for", value_name = "STORE")]
    pub(crate) store: SqlStore,

    /// The table's name, where it is not the default one.
    #[arg(long)]
    pub(crate) table: Option<String>,

    /// The schema that the table is in, which is a database in MySQL; SQLite has none.
    #[arg(long)]
    pub(crate) schema: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SqlStore {
    #[value(alias = "mariadb")]
    Mysql,
    Postgres,
    Sqlite,
}

/// The command that was asked for, or `None` where only help or the version was and has been printed.
pub(crate) fn parse() -> Result<Option<Command>, Failure> {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) if is_help(error.kind()) => {
            output::print(&error.render().to_string())?;
            return Ok(None);
        }
        Err(error) => return Err(Failure::new(usage::line(&error, std::env::args_os()))),
    };
    if let Command::Run(run) = &command {
        run.check()?;
    }
    Ok(Some(command))
}

/// Whether `--json` stands among the arguments: known even where they are wrong.
pub(crate) fn wants_json() -> bool {
    let mut options = std::env::args_os().take_while(|argument| argument != "--");
    options.any(|argument| argument == "--json")
}

/// All commands and options as clap knows them.
pub(crate) fn grammar() -> clap::Command {
    Cli::command()
}

impl AdminArgs {
    /// The store, connected to but not checked.
    pub(crate) async fn open(&self) -> Result<Arc<dyn LockAdmin>, Failure> {
        self.existing_store()?.open().await
    }

    /// The store by the arguments, the environment, or the default if that is there.
    pub(crate) fn existing_store(&self) -> Result<Store, Failure> {
        let store = self.store.resolve()?.must_exist()?;
        self.announce(&store);
        Ok(store)
    }

    /// Says on stderr which store is used, where none was named.
    pub(crate) fn announce(&self, store: &Store) {
        if let Some(notice) = store.notice() {
            match self.json {
                true => output::complain_in_json(&json!({ "notice": { "text": notice } })),
                false => output::complain(&notice),
            }
        }
    }
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

fn lock_name(text: &str) -> Result<LockName, String> {
    LockName::new(text).map_err(|error| error.message().to_owned())
}

fn fencing_token(text: &str) -> Result<FencingToken, String> {
    let number = text
        .parse()
        .map_err(|_| "not a fencing token: a whole number, as show tells it")?;
    Ok(FencingToken::new(number))
}
