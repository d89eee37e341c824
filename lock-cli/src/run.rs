use std::process::Command;
use std::time::Duration;

use distlock::options::OPERATION_LIMIT;
use distlock::{Acquisition, Error, Guard, Held, Locks, Release, clock};
use nix::sys::signal::Signal;

use crate::args::RunArgs;
use crate::child::Child;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, complain, visible};
use crate::signals::Signals;

/// The longest time between TERM and KILL, unless it was asked for.
const KILL_AFTER: Duration = Duration::from_secs(10);

/// How often a group that is being stopped is looked at.
const SWEEP: Duration = Duration::from_millis(20);

/// Runs the command under the lock.
pub(crate) async fn run(args: RunArgs) -> Result<Exit, Failure> {
    let store = args.store.resolve()?;
    if args.at_most.is_none() && !store.is_memory() {
        return Err(Failure::new(
            "give --at-most: how long the lock may be kept if this machine dies",
        ));
    }
    if let Some(file) = store.default_file() {
        // In a crontab, say, where the variable that names the store is easily missing.
        complain(&format!(
            "no store was named: locking in {}, for this user on this machine only",
            file.display()
        ));
    }
    let mut signals = Signals::listen()?;
    let locks = tokio::select! {
        biased;
        signal = signals.next() => return Ok(ended_by(signal, &args)),
        backend = store.open() => Locks::from_arc(backend?),
    };
    let ended = under_lock(&args, &locks, &mut signals).await;
    // What was cut off in mid-request is given back before we go, and a release that failed is tried again.
    let pending = locks.shutdown(OPERATION_LIMIT).await;
    let Ended { exit, unreleased } = ended?;
    if let Err(pending) = pending {
        let name = visible(args.name.as_str());
        let reason = unreleased.unwrap_or(pending);
        complain(&format!(
            "warning: lock \"{name}\" may stay held until --at-most is over: {reason}"
        ));
    }
    Ok(exit)
}

/// How a run ended, and why the lock could not be given back at once.
struct Ended {
    exit: Exit,
    unreleased: Option<Error>,
}

impl From<Exit> for Ended {
    fn from(exit: Exit) -> Self {
        Self {
            exit,
            unreleased: None,
        }
    }
}

async fn under_lock(
    args: &RunArgs,
    locks: &Locks,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let mut lock = locks.lock(&args.name)?;
    if let Some(at_most) = args.at_most {
        lock = lock.at_most_for(at_most);
    }
    if let Some(at_least) = args.at_least {
        lock = lock.at_least_for(at_least);
    }
    let acquisition = tokio::select! {
        biased;
        signal = signals.next() => return Ok(ended_by(signal, args).into()),
        acquisition = lock.try_acquire() => acquisition?,
    };
    match acquisition {
        Acquisition::Acquired(guard) => {
            let exit = with_guard(args, &guard, signals).await;
            let exit = exit.unwrap_or_else(Failure::tell);
            let unreleased = give_back(guard, exit).await;
            Ok(Ended { exit, unreleased })
        }
        Acquisition::Held(held) => {
            complain(&describe(args, &held));
            Ok(Exit::Conflict(args.conflict_exit_code).into())
        }
        // A run without a tick is answered by no other kind of refusal.
        refused => Err(Failure::new(format!("unexpected answer: {refused:?}"))),
    }
}

/// Starts the child, and sees it through to its end.
async fn with_guard(args: &RunArgs, guard: &Guard, signals: &mut Signals) -> Result<Exit, Failure> {
    if let Some(signal) = signals.pending() {
        return Ok(ended_by(signal, args));
    }
    if !guard.is_valid() {
        complain(&format!(
            "the time of lock \"{}\" was up before the command could be started: give a longer --at-most",
            visible(args.name.as_str())
        ));
        return Ok(Exit::Stopped);
    }
    signals.listen_for_child()?;
    let child = Child::spawn(command(args, guard), args.foreground)?;
    let supervised = supervise(child, guard, kill_after(args), signals).await?;
    if supervised == Exit::Stopped {
        complain(&format!(
            "the time of lock \"{}\" was up: the command was stopped{}",
            visible(args.name.as_str()),
            args.at_most.map_or_else(String::new, |at_most| format!(
                "; it had {} of --at-most {}, the rest is --kill-after",
                duration::show(at_most.saturating_sub(kill_after(args))),
                duration::show(at_most)
            ))
        ));
    }
    Ok(supervised)
}

/// Waits for the child's end: passes signals on, and stops it when the lock's time is up.
async fn supervise(
    mut child: Child,
    guard: &Guard,
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let mut stopping = Stopping::No;
    loop {
        let until_term = guard.remaining().saturating_sub(kill_after);
        tokio::select! {
            biased;
            _ = guard.lost(), if stopping < Stopping::Killed => {
                stopping = Stopping::Killed;
                child.send(Signal::SIGKILL);
            }
            () = clock::sleep(until_term), if stopping == Stopping::No => {
                stopping = Stopping::Asked;
                child.send(Signal::SIGTERM);
                // A stopped process sees TERM only when it is continued.
                child.send(Signal::SIGCONT);
            }
            signal = signals.next() => match signal {
                Signal::SIGCHLD => match child.catch_up()? {
                    Some(exit) if stopping == Stopping::No => return Ok(exit),
                    Some(_) => {
                        sweep(&child, guard).await;
                        return Ok(Exit::Stopped);
                    }
                    None => {}
                },
                // After Ctrl-Z, or any other freeze. If the lock was lost meanwhile, the child must not run again.
                Signal::SIGCONT if guard.is_valid() => child.resume(),
                Signal::SIGCONT => {}
                other => child.send(other),
            },
        }
    }
}

/// How far the child has been stopped because the lock's time is up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stopping {
    No,
    Asked,
    Killed,
}

/// What the child left in its group when it was stopped gets the same time to end.
async fn sweep(child: &Child, guard: &Guard) {
    while child.group_is_left() {
        if !guard.is_valid() {
            return child.send(Signal::SIGKILL);
        }
        clock::sleep(SWEEP.min(guard.remaining())).await;
    }
}

async fn give_back(guard: Guard, exit: Exit) -> Option<Error> {
    let name = visible(guard.name().as_str());
    match guard.release().await {
        Ok(Release::NotHeld { by }) if exit != Exit::Stopped => {
            let now = by.map_or_else(String::new, |by| format!(", now held by {}", visible(&by)));
            complain(&format!(
                "warning: lock \"{name}\" was lost before the command ended{now}: it may have run twice at a time"
            ));
            None
        }
        Ok(_) => None,
        Err(error) => Some(error),
    }
}

/// The command with its environment: ours last, so that an outer distlock's never shows through.
fn command(args: &RunArgs, guard: &Guard) -> Command {
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove("DISTLOCK_STORE")
        .env_remove("DISTLOCK_FENCING_TOKEN")
        .env("DISTLOCK_NESTED", "1")
        .env("DISTLOCK_NAME", guard.name().as_str())
        .env("DISTLOCK_OWNER", guard.owner());
    if let Some(token) = guard.fencing_token() {
        command.env("DISTLOCK_FENCING_TOKEN", token.to_string());
    }
    command
}

fn kill_after(args: &RunArgs) -> Duration {
    let third = args.at_most.map_or(KILL_AFTER, |at_most| at_most / 3);
    args.kill_after.unwrap_or(third.min(KILL_AFTER))
}

fn ended_by(signal: Signal, args: &RunArgs) -> Exit {
    complain(&format!(
        "{signal} came before the command under lock \"{}\" was started: it was not",
        visible(args.name.as_str())
    ));
    Exit::Signal(signal as i32)
}

/// `"nightly" is held by web1/42 until 2026-12-01T00:10:00Z (local …), 3.2 s left`
fn describe(args: &RunArgs, held: &Held) -> String {
    let mut text = format!("\"{}\" is ", visible(args.name.as_str()));
    let by = held.by.as_deref().map(visible);
    text += &match (held.resting, by) {
        (false, Some(by)) => format!("held by {by}"),
        (false, None) => "held: it changed hands in this very moment".to_owned(),
        (true, Some(by)) => format!("resting after a run of {by}"),
        (true, None) => "resting after a run".to_owned(),
    };
    if let Some(remaining) = held.remaining {
        let until = output::instant(clock::wall() + remaining);
        text += &format!(" until {until}, {} left", output::left(remaining));
    }
    text
}
