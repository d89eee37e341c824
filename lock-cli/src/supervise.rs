use std::time::Duration;

use distlock::clock::Instant;
use distlock::options::MAX_LEASE;
use distlock::{Hold, clock};
use nix::sys::signal::Signal;

use crate::child::Child;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;

/// How often a group that is being stopped is looked at.
const SWEEP: Duration = Duration::from_millis(20);

/// Until when a child may run.
pub(crate) trait Term {
    fn remaining(&self) -> Duration;

    /// Waits until no more than this is left.
    async fn ends_in(&self, margin: Duration);
}

impl Term for Hold {
    fn remaining(&self) -> Duration {
        Hold::remaining(self)
    }

    async fn ends_in(&self, margin: Duration) {
        self.endangered(margin).await;
    }
}

/// The term of a child that runs without a lock.
pub(crate) struct Bound {
    from: Instant,
    length: Duration,
}

impl Bound {
    pub(crate) fn from_now(length: Option<Duration>) -> Self {
        Self {
            from: Instant::now(),
            length: length.unwrap_or(MAX_LEASE),
        }
    }
}

impl Term for Bound {
    fn remaining(&self) -> Duration {
        self.length.saturating_sub(self.from.elapsed())
    }

    async fn ends_in(&self, margin: Duration) {
        clock::sleep(self.remaining().saturating_sub(margin)).await;
    }
}

/// Waits for the child's end: passes signals on, and stops it when its term is over, as when its lock is lost.
pub(crate) async fn supervise(
    mut child: Child,
    term: &impl Term,
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let mut stopping = Stopping::No;
    loop {
        tokio::select! {
            biased;
            () = term.ends_in(Duration::ZERO), if stopping < Stopping::Killed => {
                stopping = Stopping::Killed;
                child.send(Signal::SIGKILL);
            }
            () = term.ends_in(kill_after), if stopping == Stopping::No => {
                stopping = ask_to_end(&child, term);
            }
            signal = signals.next() => match signal {
                Signal::SIGCHLD => match child.catch_up()? {
                    Some(exit) if stopping == Stopping::No => return Ok(exit),
                    Some(_) => {
                        sweep(&child, term, signals).await;
                        return Ok(Exit::Stopped);
                    }
                    None => {}
                },
                // After Ctrl-Z, or any other freeze. If the lock was lost meanwhile, the child must not run again.
                Signal::SIGCONT if is_on(term) => child.resume(),
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

fn ask_to_end(child: &Child, term: &impl Term) -> Stopping {
    // After a freeze of our own the time may be up already, and nothing must be continued.
    if !is_on(term) {
        child.send(Signal::SIGKILL);
        return Stopping::Killed;
    }
    child.send(Signal::SIGTERM);
    // A stopped process sees TERM only when it is continued.
    child.send(Signal::SIGCONT);
    Stopping::Asked
}

/// What the child left in its group when it was stopped gets the same time to end, and the same signals.
async fn sweep(child: &Child, term: &impl Term, signals: &mut Signals) {
    while child.group_is_left() {
        if !is_on(term) {
            return child.send(Signal::SIGKILL);
        }
        tokio::select! {
            signal = signals.next() => {
                if signal != Signal::SIGCHLD && is_on(term) {
                    child.send(signal);
                }
            }
            () = clock::sleep(SWEEP.min(term.remaining())) => {}
        }
    }
}

fn is_on(term: &impl Term) -> bool {
    !term.remaining().is_zero()
}
