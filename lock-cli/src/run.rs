use std::process::Command;
use std::time::Duration;

use distlock::options::OPERATION_LIMIT;
use distlock::{Acquisition, Guard, Locks, Release};
use nix::sys::signal::Signal;

use crate::args::RunArgs;
use crate::child::Child;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, complain, visible};
use crate::signals::Signals;
use crate::supervise::supervise;

/// The longest time between TERM and KILL, unless it was asked for.
const KILL_AFTER: Duration = Duration::from_secs(10);

/// Runs the command under the lock.
pub(crate) async fn run(args: RunArgs) -> Result<Exit, Failure> {
    let store = args.store.resolve()?;
    if args.at_most.is_none() && !store.is_memory() {
        return Err(Failure::new(
            "give --at-most: how long the lock may be kept if this machine dies",
        ));
    }
    if let Some(notice) = store.notice() {
        complain(&notice);
    }
    let mut signals = Signals::listen()?;
    let locks = tokio::select! {
        biased;
        signal = signals.next() => return Err(ended_by(signal, &args)),
        // Not checked: a fault fails the first lock all the same, and a warning would be told at every run.
        backend = store.open_or_make() => Locks::from_arc(backend?),
    };
    let Ended { end, release } = under_lock(&args, &locks, &mut signals).await;
    // What was cut off in mid-request is given back before we go, and a release that failed is tried again.
    let pending = locks.shutdown(OPERATION_LIMIT).await;
    // Nothing is said before: a full pipe would keep the lock from others.
    let exit = end.unwrap_or_else(Failure::tell);
    if let Some(warning) = warning(&args, exit, release, pending) {
        complain(&format!("warning: {warning}"));
    }
    Ok(exit)
}

/// How a run ended.
struct Ended {
    end: Result<Exit, Failure>,
    /// What came of the release, where a command ran under the lock or the release failed.
    release: Option<distlock::Result<Release>>,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self {
            end: Err(failure),
            release: None,
        }
    }
}

async fn under_lock(args: &RunArgs, locks: &Locks, signals: &mut Signals) -> Ended {
    let guard = match acquire(args, locks, signals).await {
        Ok(guard) => guard,
        Err(failure) => return failure.into(),
    };
    match start(args, &guard, signals) {
        Ok(child) => {
            let end = see_through(args, child, &guard, signals).await;
            let release = Some(guard.release().await);
            Ended { end, release }
        }
        // Nothing ran that others would have to keep their distance from.
        Err(failure) => Ended {
            end: Err(failure),
            release: guard.release_unused().await.err().map(Err),
        },
    }
}

async fn acquire(args: &RunArgs, locks: &Locks, signals: &mut Signals) -> Result<Guard, Failure> {
    let mut lock = locks.lock(&args.name)?;
    if let Some(at_most) = args.at_most {
        lock = lock.at_most_for(at_most);
    }
    if let Some(at_least) = args.at_least {
        lock = lock.at_least_for(at_least);
    }
    let acquisition = tokio::select! {
        biased;
        signal = signals.next() => return Err(ended_by(signal, args)),
        acquisition = lock.try_acquire() => acquisition?,
    };
    match acquisition {
        Acquisition::Acquired(guard) => Ok(guard),
        Acquisition::Held(held) => Err(Failure::ending(
            Exit::Conflict(args.conflict_exit_code),
            output::holding(args.name.as_str(), &held),
        )),
        // A run without a tick is answered by no other kind of refusal.
        refused => Err(Failure::new(format!("unexpected answer: {refused:?}"))),
    }
}

/// Starts the child, unless something speaks against it by now.
fn start(args: &RunArgs, guard: &Guard, signals: &mut Signals) -> Result<Child, Failure> {
    if let Some(signal) = signals.pending() {
        return Err(ended_by(signal, args));
    }
    if !guard.is_valid() {
        return Err(Failure::ending(
            Exit::Stopped,
            format!(
                "the time of lock \"{}\" was up before the command could be started: give a longer --at-most",
                visible(args.name.as_str())
            ),
        ));
    }
    signals.listen_for_child()?;
    Child::spawn(command(args, guard), args.foreground)
}

/// Sees the child through to its end.
async fn see_through(
    args: &RunArgs,
    child: Child,
    guard: &Guard,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let exit = supervise(child, guard, kill_after(args), signals).await?;
    if exit != Exit::Stopped {
        return Ok(exit);
    }
    let text = format!(
        "the time of lock \"{}\" was up: the command was stopped{}",
        visible(args.name.as_str()),
        args.at_most.map_or_else(String::new, |at_most| format!(
            "; it had {} of --at-most {}, the rest is --kill-after",
            duration::show(at_most.saturating_sub(kill_after(args))),
            duration::show(at_most)
        ))
    );
    Err(Failure::ending(exit, text))
}

/// What whoever reads stderr should know about a release that did not go as it should.
fn warning(
    args: &RunArgs,
    exit: Exit,
    release: Option<distlock::Result<Release>>,
    pending: distlock::Result<()>,
) -> Option<String> {
    let name = visible(args.name.as_str());
    match (release, pending) {
        (Some(Err(reason)), Err(_)) | (_, Err(reason)) => Some(format!(
            "lock \"{name}\" may stay held until --at-most is over: {reason}"
        )),
        (Some(Ok(Release::NotHeld { by })), Ok(())) if exit != Exit::Stopped => {
            let now = by.map_or_else(String::new, |by| format!(", now held by {}", visible(&by)));
            Some(format!(
                "lock \"{name}\" was lost before the command ended{now}: it may have run twice at a time"
            ))
        }
        _ => None,
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

fn ended_by(signal: Signal, args: &RunArgs) -> Failure {
    Failure::ending(
        Exit::Signal(signal as i32),
        format!(
            "{signal} came before the command under lock \"{}\" was started: it was not",
            visible(args.name.as_str())
        ),
    )
}
