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

/// What a group that was asked to end still has. It is never longer than it was then: a lease that is renewed all the same
/// would keep a child that ignores TERM, and the lock with it, for as long as renewals get through.
struct Grace<'a, T> {
    term: &'a T,
    bound: Bound,
}

impl<'a, T: Term> Grace<'a, T> {
    fn from_now(term: &'a T, kill_after: Duration) -> Self {
        Self {
            term,
            bound: Bound::from_now(Some(term.remaining().min(kill_after))),
        }
    }
}

impl<T: Term> Term for Grace<'_, T> {
    fn remaining(&self) -> Duration {
        self.term.remaining().min(self.bound.remaining())
    }

    async fn ends_in(&self, margin: Duration) {
        tokio::select! {
            () = self.term.ends_in(margin) => {}
            () = self.bound.ends_in(margin) => {}
        }
    }
}

/// Waits for the child's end, and passes signals on. `None` when no more than `kill_after` is left of its term: then it is
/// to be [stopped](stop).
pub(crate) async fn supervise(
    child: &mut Child,
    term: &impl Term,
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<Option<Exit>, Failure> {
    loop {
        tokio::select! {
            biased;
            // It may have ended while we were frozen.
            () = term.ends_in(kill_after) => return child.catch_up(),
            signal = signals.next() => {
                if let Some(exit) = attend(child, term, signal)? {
                    return Ok(Some(exit));
                }
            }
        }
    }
}

/// Ends the child and what it has started: asks with TERM, and kills after `kill_after`, or before if its term is over.
pub(crate) async fn stop(
    mut child: Child,
    term: &impl Term,
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let grace = Grace::from_now(term, kill_after);
    // After a freeze of our own the time may be up already, and nothing must be continued.
    if is_on(&grace) {
        child.send(Signal::SIGTERM);
        // A stopped process sees TERM only when it is continued.
        child.send(Signal::SIGCONT);
    }
    let mut killed = false;
    loop {
        tokio::select! {
            biased;
            () = grace.ends_in(Duration::ZERO), if !killed => {
                killed = true;
                child.send(Signal::SIGKILL);
            }
            signal = signals.next() => {
                if attend(&mut child, &grace, signal)?.is_some() {
                    sweep(&child, &grace, signals).await;
                    return Ok(());
                }
            }
        }
    }
}

/// Passes a signal on, or learns from it what happened to the child: how it ended, if it has.
fn attend(child: &mut Child, term: &impl Term, signal: Signal) -> Result<Option<Exit>, Failure> {
    match signal {
        Signal::SIGCHLD => return child.catch_up(),
        // After Ctrl-Z, or any other freeze. If the lock was lost meanwhile, the child must not run again.
        Signal::SIGCONT if is_on(term) => child.resume(),
        Signal::SIGCONT => {}
        other => child.send(other),
    }
    Ok(None)
}

/// What the child left in its group when it was stopped gets the same time to end, and the same signals.
async fn sweep(child: &Child, grace: &impl Term, signals: &mut Signals) {
    while child.group_is_left() {
        if !is_on(grace) {
            return child.send(Signal::SIGKILL);
        }
        tokio::select! {
            signal = signals.next() => {
                if signal != Signal::SIGCHLD && is_on(grace) {
                    child.send(signal);
                }
            }
            () = clock::sleep(SWEEP.min(grace.remaining())) => {}
        }
    }
}

fn is_on(term: &impl Term) -> bool {
    !term.remaining().is_zero()
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};
    use std::process::Command;

    use super::*;

    const KILL_AFTER: Duration = Duration::from_secs(60);

    /// A lease that could not be renewed in time, and is when the child has been asked to end.
    struct Healed {
        lease: Bound,
        taken_away: Bound,
    }

    impl Healed {
        fn for_long() -> Self {
            Self::taken_away_after(6 * KILL_AFTER)
        }

        fn taken_away_after(time: Duration) -> Self {
            Self {
                lease: Bound::from_now(Some(6 * KILL_AFTER)),
                taken_away: Bound::from_now(Some(time)),
            }
        }
    }

    impl Term for Healed {
        fn remaining(&self) -> Duration {
            self.lease.remaining()
        }

        async fn ends_in(&self, margin: Duration) {
            if margin.is_zero() {
                self.taken_away.ends_in(margin).await;
            }
        }
    }

    /// What is left of it holds the pipe open; the paused clock must not run on before it is ready.
    fn start(script: &str) -> (Child, Signals, PipeReader) {
        let mut signals = Signals::listen().unwrap();
        signals.listen_for_child().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(writer);
        let child = Child::spawn(command, false).unwrap();
        reader.read_exact(&mut [0; 6]).unwrap();
        (child, signals, reader)
    }

    fn assert_is_kill_after(elapsed: Duration) {
        assert!(elapsed >= KILL_AFTER, "{elapsed:?}");
        assert!(elapsed < 2 * KILL_AFTER, "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_renewed_after_term_does_not_move_the_kill() {
        let script = "trap '' TERM; echo ready; exec sleep 1000";
        let (mut child, mut signals, mut pipe) = start(script);
        let term = Healed::for_long();
        let from = Instant::now();
        let end = supervise(&mut child, &term, KILL_AFTER, &mut signals).await;
        assert_eq!(end.unwrap(), None);
        stop(child, &term, KILL_AFTER, &mut signals).await.unwrap();
        assert_is_kill_after(from.elapsed());
        pipe.read_to_end(&mut Vec::new()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nor_the_kill_of_what_the_command_has_left() {
        let script = "(trap '' TERM; echo ready; exec sleep 1000) &";
        let (child, mut signals, mut pipe) = start(script);
        let term = Healed::for_long();
        let grace = Grace::from_now(&term, KILL_AFTER);
        let from = Instant::now();
        sweep(&child, &grace, &mut signals).await;
        assert_is_kill_after(from.elapsed());
        pipe.read_to_end(&mut Vec::new()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_taken_away_after_term_brings_the_kill_at_once() {
        let script = "trap '' TERM; echo ready; exec sleep 1000";
        let (child, mut signals, _pipe) = start(script);
        let term = Healed::taken_away_after(KILL_AFTER / 10);
        let from = Instant::now();
        stop(child, &term, KILL_AFTER, &mut signals).await.unwrap();
        let elapsed = from.elapsed();
        assert!(elapsed < KILL_AFTER, "{elapsed:?}");
    }
}
