use std::time::Duration;

use distlock::{Guard, clock};
use nix::sys::signal::Signal;

use crate::child::Child;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// How often a group that is being stopped is looked at.
const SWEEP: Duration = Duration::from_millis(20);

/// Waits for the child's end: passes signals on, and stops it when the lock's time is up.
pub(crate) async fn supervise(
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
                stopping = ask_to_end(&child, guard);
            }
            signal = signals.next() => match signal {
                Signal::SIGCHLD => match child.catch_up()? {
                    Some(exit) if stopping == Stopping::No => return Ok(exit),
                    Some(_) => {
                        sweep(&child, guard, signals).await;
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

fn ask_to_end(child: &Child, guard: &Guard) -> Stopping {
    // After a freeze of our own the time may be up already, and nothing must be continued.
    if !guard.is_valid() {
        child.send(Signal::SIGKILL);
        return Stopping::Killed;
    }
    child.send(Signal::SIGTERM);
    // A stopped process sees TERM only when it is continued.
    child.send(Signal::SIGCONT);
    Stopping::Asked
}

/// What the child left in its group when it was stopped gets the same time to end, and the same signals.
async fn sweep(child: &Child, guard: &Guard, signals: &mut Signals) {
    while child.group_is_left() {
        if !guard.is_valid() {
            return child.send(Signal::SIGKILL);
        }
        tokio::select! {
            signal = signals.next() => {
                if signal != Signal::SIGCHLD && guard.is_valid() {
                    child.send(signal);
                }
            }
            () = clock::sleep(SWEEP.min(guard.remaining())) => {}
        }
    }
}
