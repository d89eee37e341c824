use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use distlock::LockName;
use distlock::options::{MAX_LEASE, MIN_AT_LEAST, MIN_LEASE, MIN_WATCHDOG_TTL, WATCHDOG_TTL};

use super::lock_name;
use crate::exit::Failure;
use crate::store::StoreArgs;
use crate::{duration, man};

/// The longest time between TERM and KILL, unless it was asked for.
const KILL_AFTER: Duration = Duration::from_secs(10);

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
    /// of --at-most, and a third of --watchdog [default: 10s, or a third of the lease if that is shorter].
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
    pub(super) fn check(&self) -> Result<(), Failure> {
        let is_over = |value: Option<Duration>, most: Option<Duration>| {
            value.zip(most).is_some_and(|(value, most)| value > most)
        };
        let complaint = if is_over(self.at_least, self.at_most) {
            "--at-least is longer than --at-most: make it shorter, or --at-most longer"
        } else if is_over(self.watchdog, self.at_most) {
            "--watchdog is longer than --at-most: make it shorter, or leave it out"
        } else if is_over(self.kill_after, self.at_most.map(|most| most * 9 / 10)) {
            "--kill-after may be at most nine tenths of --at-most: the command would be stopped as soon as it starts"
        } else if is_over(self.kill_after, self.watchdog().map(|ttl| ttl / 3)) {
            "--kill-after may be at most a third of --watchdog (30s unless given): the command would be stopped although all \
             is well"
        } else {
            return Ok(());
        };
        Err(Failure::new(complaint))
    }
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
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::usage;

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
                &["--watchdog", "3s", "-k", "1001ms"][..],
                "--kill-after may be at most a third of --watchdog",
            ),
            (
                &["-k", "10001ms"][..],
                "--kill-after may be at most a third of --watchdog (30s",
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
    fn nine_tenths_of_the_time_may_be_left_for_the_end_or_a_third_of_a_lease_that_is_renewed() {
        for (option, most) in [("--at-most", 900), ("--watchdog", 333)] {
            let kill_after = format!("{most}ms");
            let run = parse(&[option, "1s", "-k", &kill_after, "--", "true"]).unwrap();
            assert_eq!(run.kill_after, Some(Duration::from_millis(most)));
        }
    }
}
