use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use distlock::options::{MAX_LEASE, MIN_AT_LEAST, MIN_LEASE, MIN_WATCHDOG_TTL, WATCHDOG_TTL};
use distlock::{FencingToken, LockAdmin, LockName};
use serde_json::json;

use crate::exit::Failure;
use crate::store::{Store, StoreArgs};
use crate::{duration, man, output, usage};

/// The longest time between TERM and KILL, unless it was asked for.
const KILL_AFTER: Duration = Duration::from_secs(10);

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

#[derive(Args)]
#[command(after_help = man::run_notes(), next_line_help = true)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The lock's name, 1 to 255 bytes.
    #[arg(long, value_name = "NAME", value_parser = lock_name)]
    pub(crate) name: LockName,

    /// How long the lock may be kept: a command that is still running is stopped before. If this machine dies, the
    /// lock is free after that, or after the watchdog's time if there is one.
    #[arg(long, value_name = "DURATION", value_parser = at_most)]
    pub(crate) at_most: Option<Duration>,

    /// Renew a lease of this length for as long as the command runs, up to --at-most if that is given. If this machine
    /// dies, the lock is free after it [default: 30s without --at-most, none with it].
    #[arg(long, value_name = "DURATION", value_parser = watchdog)]
    watchdog: Option<Duration>,

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
    /// of --at-most, and half of --watchdog [default: 10s, or a third of the lease if that is shorter].
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// What to do where the store cannot be reached or does not answer: fail (125), skip the command as if the lock were
    /// held, or run it without the lock.
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) if_unavailable: IfUnavailable,

    /// Leave the command in distlock's own process group, as timeout(1) does: it can use the terminal like any member
    /// of a script, and signals reach the command itself but not what it has started.
    #[arg(long)]
    pub(crate) foreground: bool,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What a run does where the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IfUnavailable {
    Fail,
    Skip,
    Run,
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

impl RunArgs {
    /// The length of the lease that is renewed; `None` where it is fixed.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        let default = self.at_most.is_none().then_some(WATCHDOG_TTL);
        self.watchdog.or(default)
    }

    /// How long before the end of the lock the command gets TERM.
    pub(crate) fn kill_after(&self) -> Duration {
        let lease = self.watchdog().or(self.at_most);
        let third = lease.map_or(KILL_AFTER, |lease| lease / 3);
        self.kill_after.unwrap_or(third.min(KILL_AFTER))
    }

    /// What must fit together.
    fn check(&self) -> Result<(), Failure> {
        let is_over = |value: Option<Duration>, most: Option<Duration>| {
            value.zip(most).is_some_and(|(value, most)| value > most)
        };
        let complaint = if is_over(self.at_least, self.at_most) {
            "--at-least is longer than --at-most: make it shorter, or --at-most longer"
        } else if is_over(self.watchdog, self.at_most) {
            "--watchdog is longer than --at-most: make it shorter, or leave it out"
        } else if is_over(self.kill_after, self.at_most.map(|most| most * 9 / 10)) {
            "--kill-after may be at most nine tenths of --at-most: the command would be stopped as soon as it starts"
        } else if is_over(self.kill_after, self.watchdog().map(|ttl| ttl / 2)) {
            "--kill-after may be at most half of --watchdog (30s unless given): the command would be stopped although all \
             is well"
        } else {
            return Ok(());
        };
        Err(Failure::new(complaint))
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

fn at_most(text: &str) -> Result<Duration, String> {
    in_range(duration::parse(text)?, MIN_LEASE)
}

fn watchdog(text: &str) -> Result<Duration, String> {
    in_range(duration::parse(text)?, MIN_WATCHDOG_TTL)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<RunArgs, String> {
        let run = ["distlock", "run", "--name", "n"];
        let all = run.iter().chain(args).map(OsString::from);
        let parsed = Cli::try_parse_from(all.clone());
        let cli = parsed.map_err(|error| usage::line(&error, all))?;
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
                &["--at-most", "1s", "--at-least", "2s"][..],
                "--at-least is longer",
            ),
            (
                &["--at-most", "1s", "-k", "901ms"][..],
                "--kill-after may be at most nine tenths",
            ),
            (
                &["--at-most", "1s", "--watchdog", "2s"][..],
                "--watchdog is longer",
            ),
            (
                &["--watchdog", "3s", "-k", "1501ms"][..],
                "--kill-after may be at most half of --watchdog",
            ),
            (
                &["-k", "16s"][..],
                "--kill-after may be at most half of --watchdog (30s",
            ),
            (&["--watchdog", "299ms"][..], "too short"),
            (&["--at-most", "9ms", "-k", "1ms"][..], "too short"),
            (&["--at-most", "1s", "--at-least", "999us"][..], "too short"),
            (&["--at-most", "87601h", "-k", "1s"][..], "too long"),
            (
                &["--at-most", "1s", "-E", "256"][..],
                "256 is not in 0..=255",
            ),
        ] {
            let mut args = args.to_vec();
            args.extend(["--", "true"]);
            let error = parse(&args).err().expect(reason);
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_lease_is_renewed_unless_at_most_stands_alone() {
        let of = |args: &[&str]| {
            let run = parse(&[args, &["--", "true"]].concat()).unwrap();
            (run.watchdog(), run.kill_after())
        };
        let seconds = Duration::from_secs;
        assert_eq!(of(&[]), (Some(seconds(30)), seconds(10)));
        assert_eq!(of(&["--at-most", "6s"]), (None, seconds(2)));
        let both = ["--at-most", "60s", "--watchdog", "3s"];
        assert_eq!(of(&both), (Some(seconds(3)), seconds(1)));
    }

    #[test]
    fn nine_tenths_of_the_time_may_be_left_for_the_end() {
        let run = parse(&["--at-most", "1s", "-k", "900ms", "--", "true"]).unwrap();
        assert_eq!(run.kill_after, Some(Duration::from_millis(900)));
    }
}
