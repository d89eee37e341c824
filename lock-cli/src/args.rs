use std::error::Error;
use std::ffi::OsString;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use distlock::LockName;
use distlock::options::{MAX_LEASE, MIN_AT_LEAST, MIN_LEASE};

use crate::duration;
use crate::exit::Failure;
use crate::output::{self, may_be_secret};
use crate::store::StoreArgs;

/// Runs a command under a lock that machines share, so that it runs once at a time.
#[derive(Parser)]
#[command(name = "distlock", version, after_help = STORES, arg_required_else_help = false)]
#[command(disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs a command while holding a lock; does not run it where the lock is held.
    Run(RunArgs),
    /// Lists the locks that the store knows, by name.
    List(ListArgs),
    /// Shows one lock: who has it, since when and until when.
    Show(ShowArgs),
    /// Prints the SQL that makes the table, for those who run it themselves.
    Schema(SchemaArgs),
    /// Makes what is missing in the store. Safe to run again, and on many machines at once.
    Migrate(MigrateArgs),
}

#[derive(Args)]
#[command(after_help = EXIT_CODES, next_line_help = true)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The lock's name, 1 to 255 bytes.
    #[arg(long, value_name = "NAME", value_parser = lock_name)]
    pub(crate) name: LockName,

    /// How long the lock may be kept: if this machine dies it is free after that, and a command that is still running
    /// is stopped before.
    #[arg(long, value_name = "DURATION", value_parser = at_most)]
    pub(crate) at_most: Option<Duration>,

    /// How long others are kept out, however early the command ends.
    #[arg(long, value_name = "DURATION", value_parser = at_least)]
    pub(crate) at_least: Option<Duration>,

    /// The exit code where the lock is held or resting [default: 0].
    #[arg(
        short = 'E',
        long,
        value_name = "CODE",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) conflict_exit_code: u8,

    /// How long before the end of the lock a running command gets TERM; KILL comes at the end. At most nine tenths
    /// of --at-most [default: 10s, or a third of --at-most if that is shorter].
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// Leave the command in distlock's own process group, as timeout(1) does: it can use the terminal like any member
    /// of a script, and signals reach the command itself but not what it has started.
    #[arg(long)]
    pub(crate) foreground: bool,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A lock that the store has no record of is free: that is no error.
#[derive(Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// The lock's name.
    #[arg(value_parser = lock_name)]
    pub(crate) name: LockName,
}

#[derive(Args)]
pub(crate) struct SchemaArgs {
    /// The store that the SQL is for.
    #[arg(long = "for", value_name = "STORE")]
    pub(crate) store: SqlStore,

    /// The table's name, where it is not the default one.
    #[arg(long)]
    pub(crate) table: Option<String>,

    /// The schema that the table is in (postgres).
    #[arg(long)]
    pub(crate) schema: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SqlStore {
    Postgres,
    Sqlite,
}

#[derive(Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

const STORES: &str = "\
Stores: postgres://USER@HOST/DATABASE, redis://HOST, sqlite://PATH, memory: (this process alone).
Without --store and --store-file: $DISTLOCK_STORE, else the SQLite file distlock/locks.db in $XDG_STATE_HOME or
~/.local/state, for the processes of one user on one machine. Everybody on a machine can read its command lines, so
a URL with a password belongs in a file or in the environment.";

const EXIT_CODES: &str = "\
Exit code: the command's own; 128+n where signal n ended it; 0 or CODE where the lock is held or resting;
124 the lock was lost or its time was up, and the command was stopped; 125 distlock failed, usage errors too;
126 the command cannot be executed; 127 it was not found.

The command finds DISTLOCK_NAME, DISTLOCK_FENCING_TOKEN and DISTLOCK_OWNER in its environment, and not the store's URL.
The lock is given back when the command itself has ended; what it left running in the background is not waited for.
If distlock is killed with KILL, the command lives on and the lock ends with --at-most.";

/// The command that was asked for, or `None` where only help or the version was and has been printed.
pub(crate) fn parse() -> Result<Option<Command>, Failure> {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) if is_help(error.kind()) => {
            output::print(&error.render().to_string())?;
            return Ok(None);
        }
        Err(error) => return Err(Failure::new(usage_line(&error, std::env::args_os()))),
    };
    if let Command::Run(run) = &command {
        run.check()?;
    }
    Ok(Some(command))
}

impl RunArgs {
    /// What must fit together.
    fn check(&self) -> Result<(), Failure> {
        let Some(at_most) = self.at_most else {
            return Ok(());
        };
        if self.at_least.is_some_and(|at_least| at_least > at_most) {
            return Err(Failure::new(
                "--at-least is longer than --at-most: make it shorter, or --at-most longer",
            ));
        }
        if self.kill_after.is_some_and(|kill| kill > at_most * 9 / 10) {
            return Err(Failure::new(
                "--kill-after may be at most nine tenths of --at-most: the command would be stopped as soon as it starts",
            ));
        }
        Ok(())
    }
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

fn lock_name(text: &str) -> Result<LockName, String> {
    LockName::new(text).map_err(|error| error.message().to_owned())
}

fn at_most(text: &str) -> Result<Duration, String> {
    in_range(duration::parse(text)?, MIN_LEASE)
}

fn at_least(text: &str) -> Result<Duration, String> {
    in_range(duration::parse(text)?, MIN_AT_LEAST)
}

fn in_range(value: Duration, least: Duration) -> Result<Duration, String> {
    if value < least {
        return Err(format!("too short: at least {}", duration::show(least)));
    }
    if value > MAX_LEASE {
        return Err("too long: at most 3650 days".to_owned());
    }
    Ok(value)
}

/// clap's paragraphs as one line: what is wrong, without the usage that follows it.
fn usage_line(error: &clap::Error, mut args: impl Iterator<Item = OsString>) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text
        .find("\nUsage:")
        .or(text.find("\nFor more information"));
    let words = text[..end.unwrap_or(text.len())].split_whitespace();
    let mut line = words.collect::<Vec<_>>().join(" ");
    // A word that is out of place may also be the rest of a URL with a blank in it.
    let is_rest = is_word_out_of_place(error)
        && args.any(|argument| may_be_secret(&argument.to_string_lossy()));
    if is_rest || may_be_secret(&line) {
        line = without_values(error);
    }
    match error.kind() {
        ErrorKind::UnknownArgument => {
            format!("{line} (a command to run goes after --; try distlock --help)")
        }
        _ => format!("{line} (try distlock --help)"),
    }
}

fn is_word_out_of_place(error: &clap::Error) -> bool {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            context(error, ContextKind::InvalidArg).is_some_and(|word| !word.starts_with('-'))
        }
        kind => kind == ErrorKind::InvalidSubcommand,
    }
}

/// What is wrong, without a word of what was given.
fn without_values(error: &clap::Error) -> String {
    let what = error.kind().as_str().unwrap_or("wrong usage");
    let mut line = format!("{what}, not shown because it may be part of a URL with a password");
    if matches!(
        error.kind(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation
    ) {
        line += &context(error, ContextKind::InvalidArg)
            .map_or_else(String::new, |option| format!(": {option}"));
        line += &error
            .source()
            .map_or_else(String::new, |reason| format!(": {reason}"));
    }
    line
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<RunArgs, String> {
        let run = ["distlock", "run", "--name", "n"];
        let all = run.iter().chain(args).map(OsString::from);
        let parsed = Cli::try_parse_from(all.clone());
        let cli = parsed.map_err(|error| usage_line(&error, all))?;
        let Command::Run(run) = cli.command else {
            unreachable!("run was asked for")
        };
        run.check().map_err(|failure| failure.text)?;
        Ok(run)
    }

    #[test]
    fn a_run_takes_its_command_as_it_is() {
        let run = parse(&[
            "--at-most",
            "10s",
            "--",
            "sh",
            "-c",
            "exit 3",
            "--name",
            "x",
        ])
        .unwrap();
        assert_eq!(run.command, ["sh", "-c", "exit 3", "--name", "x"]);
        assert_eq!(run.conflict_exit_code, 0);
        assert_eq!(run.at_most, Some(Duration::from_secs(10)));
    }

    #[test]
    fn options_that_do_not_fit_together_are_refused() {
        for (args, reason) in [
            (
                &["--at-most", "1s", "--at-least", "2s"],
                "--at-least is longer",
            ),
            (
                &["--at-most", "1s", "-k", "901ms"],
                "--kill-after may be at most nine tenths",
            ),
            (&["--at-most", "9ms", "-k", "1ms"], "too short"),
            (&["--at-most", "1s", "--at-least", "999us"], "too short"),
            (&["--at-most", "87601h", "-k", "1s"], "too long"),
            (&["--at-most", "1s", "-E", "256"], "256 is not in 0..=255"),
        ] {
            let mut args = args.to_vec();
            args.extend(["--", "true"]);
            let error = parse(&args).err().expect(reason);
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn nine_tenths_of_the_time_may_be_left_for_the_end() {
        let run = parse(&["--at-most", "1s", "-k", "900ms", "--", "true"]).unwrap();
        assert_eq!(run.kill_after, Some(Duration::from_millis(900)));
    }

    #[test]
    fn a_usage_error_shows_nothing_that_may_be_a_password() {
        for args in [
            &["postgres://me:canary@host/db?password=canary"][..],
            &["postgres://me:can canary@host/db"],
            &["me:canary@host"],
            &["canary", "me@host"],
            &["--store", "postgres://me:blank", "canary", "word@host"],
            &["--at-most", "postgres://me:canary"],
            &["--postgres://me:canary@host"],
            &["-E", "canary@1"],
        ] {
            let error = parse(args).err().expect("no such argument");
            assert!(!error.contains("canary"), "{args:?}: {error}");
            assert!(!error.contains("postgres"), "{args:?}: {error}");
            assert!(error.contains("not shown"), "{args:?}: {error}");
        }
    }

    #[test]
    fn a_usage_error_names_what_cannot_be_a_password() {
        for (args, part) in [
            (&["--store", "redis://host", "--wat"][..], "--wat"),
            (&["word"], "word"),
            (
                &["--at-most", "me@9"],
                "--at-most <DURATION>: not a duration",
            ),
        ] {
            let error = parse(args).err().expect(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
