use std::process::Command;
use std::time::Duration;

use distlock::options::OPERATION_LIMIT;
use distlock::{Acquisition, Error, ErrorKind, Guard, Locks, Loss, Release};
use nix::sys::signal::Signal;

use crate::args::{IfUnavailable, RunArgs};
use crate::child::Child;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{self, complain, visible};
use crate::signals::Signals;
use crate::supervise::{Bound, Term as _, stop, supervise};

/// Runs the command under the lock.
pub(crate) async fn run(args: RunArgs) -> Result<Exit, Failure> {
    let store = args.store.resolve()?;
    if let Some(notice) = store.notice() {
        complain(&notice);
    }
    let mut signals = Signals::listen()?;
    let locks = tokio::select! {
        biased;
        signal = signals.next() => return Err(ended_by(signal, &args)),
        // Not checked: a fault fails the first lock all the same, and a warning would be told at every run.
        backend = store.open_or_make() => match backend {
            Ok(backend) => Locks::from_arc(backend),
            Err(failure) => return without_lock(&args, failure, &mut signals).await,
        },
    };
    let Ended {
        end,
        release,
        patience,
    } = under_lock(&args, &locks, &mut signals).await;
    // What was cut off in mid-request is given back before we go, and a release that failed is tried again.
    let pending = patience
        .wait(&mut signals, locks.shutdown(OPERATION_LIMIT))
        .await;
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
    patience: Patience,
}

/// For how long the store is waited for when there is nothing more to run.
struct Patience(Bound);

impl Patience {
    fn usual() -> Self {
        Self(Bound::from_now(Some(OPERATION_LIMIT)))
    }

    /// The release of a lock that is lost is worth little.
    fn with(guard: &Guard) -> Self {
        match guard.is_valid() {
            true => Self::usual(),
            false => Self(Bound::from_now(Some(OPERATION_LIMIT / 5))),
        }
    }

    /// What comes of it, unless that takes too long, or somebody wants us to end.
    async fn wait<T>(
        &self,
        signals: &mut Signals,
        work: impl Future<Output = distlock::Result<T>>,
    ) -> distlock::Result<T> {
        let ended = async {
            loop {
                let signal = signals.next().await;
                if !matches!(signal, Signal::SIGCHLD | Signal::SIGCONT) {
                    return signal;
                }
            }
        };
        let given_up = tokio::select! {
            biased;
            done = work => return done,
            signal = ended => format!("{signal} came before the store had answered"),
            () = self.0.ends_in(Duration::ZERO) => "the store did not answer in time".to_owned(),
        };
        Err(Error::new(ErrorKind::Timeout, given_up))
    }
}

async fn under_lock(args: &RunArgs, locks: &Locks, signals: &mut Signals) -> Ended {
    let guard = match acquire(args, locks, signals).await {
        Ok(guard) => guard,
        Err(failure) => {
            return Ended {
                end: without_lock(args, failure, signals).await,
                release: None,
                patience: Patience::usual(),
            };
        }
    };
    match start(args, &guard, signals) {
        Ok(child) => {
            let end = see_through(args, child, &guard, signals).await;
            let patience = Patience::with(&guard);
            let release = Some(patience.wait(signals, guard.release()).await);
            Ended {
                end,
                release,
                patience,
            }
        }
        // Nothing ran that others would have to keep their distance from.
        Err(failure) => {
            let patience = Patience::with(&guard);
            let release = patience.wait(signals, guard.release_unused()).await;
            Ended {
                end: Err(failure),
                release: release.err().map(Err),
                patience,
            }
        }
    }
}

async fn acquire(args: &RunArgs, locks: &Locks, signals: &mut Signals) -> Result<Guard, Failure> {
    let mut lock = locks.lock(&args.name)?;
    if let Some(at_most) = args.at_most {
        lock = lock.at_most_for(at_most);
    }
    if let Some(ttl) = args.watchdog() {
        lock = lock.watchdog(ttl);
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
    let mut command = command(args);
    command.env("DISTLOCK_OWNER", guard.owner());
    if let Some(token) = guard.fencing_token() {
        command.env("DISTLOCK_FENCING_TOKEN", token.to_string());
    }
    Child::spawn(command, args.foreground)
}

/// What was chosen for a store that is down; any other failure stays one.
async fn without_lock(
    args: &RunArgs,
    failure: Failure,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let is_down = failure.error.as_ref().is_some_and(Error::is_store_down);
    let name = visible(args.name.as_str());
    match args.if_unavailable {
        IfUnavailable::Skip if is_down => Err(Failure::ending(
            Exit::Conflict(args.conflict_exit_code),
            format!(
                "skipped \"{name}\", because the store is down: {}",
                failure.text
            ),
        )),
        IfUnavailable::Run if is_down => {
            complain(&format!(
                "warning: running without the lock \"{name}\", because the store is down: {}",
                failure.text
            ));
            run_unlocked(args, signals).await
        }
        _ => Err(failure),
    }
}

/// Nothing keeps another from running meanwhile. The time is bounded all the same.
async fn run_unlocked(args: &RunArgs, signals: &mut Signals) -> Result<Exit, Failure> {
    if let Some(signal) = signals.pending() {
        return Err(ended_by(signal, args));
    }
    signals.listen_for_child()?;
    let mut child = Child::spawn(command(args), args.foreground)?;
    let term = Bound::from_now(args.at_most);
    if let Some(exit) = supervise(&mut child, &term, args.kill_after(), signals).await? {
        return Ok(exit);
    }
    stop(child, &term, args.kill_after(), signals).await?;
    Err(Failure::ending(
        Exit::Stopped,
        format!(
            "the time of \"{}\" was up: the command, which ran without the lock, was stopped",
            visible(args.name.as_str())
        ),
    ))
}

/// Sees the child through to its end.
async fn see_through(
    args: &RunArgs,
    mut child: Child,
    guard: &Guard,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let hold = &**guard;
    if let Some(exit) = supervise(&mut child, hold, args.kill_after(), signals).await? {
        return Ok(exit);
    }
    // Asked for now: a renewal may still get through while the child is stopped.
    let (was_final, failure) = (hold.is_final(), hold.failure());
    stop(child, hold, args.kill_after(), signals).await?;
    let loss = match hold.is_valid() {
        true => None,
        false => Some(hold.lost().await),
    };
    let text = why_stopped(args, was_final, failure, loss);
    Err(Failure::ending(Exit::Stopped, text))
}

/// `was_final`: when the command was asked to end, no renewal could have helped.
fn why_stopped(
    args: &RunArgs,
    was_final: bool,
    failure: Option<Error>,
    loss: Option<Loss>,
) -> String {
    let (why, of) = match loss {
        None | Some(Loss::TimeUp) if was_final => ("its time was up".to_owned(), of_at_most(args)),
        None | Some(Loss::TimeUp) => (
            format!(
                "the lease could not be renewed before --kill-after was left of it{}",
                failure.map_or_else(String::new, |failure| format!(": {failure}"))
            ),
            None,
        ),
        Some(loss) => (loss.to_string(), None),
    };
    format!(
        "lock \"{}\": {why}; the command was stopped{}",
        visible(args.name.as_str()),
        of.unwrap_or_default()
    )
}

/// What the command had of the time that was given. A third of it has more digits than anybody wants to read.
fn of_at_most(args: &RunArgs) -> Option<String> {
    let at_most = args.at_most?;
    let kill_after = args.kill_after().as_millis().try_into().ok()?;
    let left = at_most.saturating_sub(Duration::from_millis(kill_after));
    Some(format!(
        " (of --at-most {} it has {}, the rest is --kill-after)",
        duration::show(at_most),
        duration::show(left),
    ))
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
            "lock \"{name}\" may stay held until its lease is over: {reason}"
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
fn command(args: &RunArgs) -> Command {
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove("DISTLOCK_STORE")
        .env_remove("DISTLOCK_FENCING_TOKEN")
        .env_remove("DISTLOCK_OWNER")
        .env("DISTLOCK_NESTED", "1")
        .env("DISTLOCK_NAME", args.name.as_str());
    command
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
