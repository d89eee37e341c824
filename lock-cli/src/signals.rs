use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::exit::Failure;

/// What ends distlock before it has a child, and is passed on to the child afterwards.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The signals that distlock gets, in place of what they would do by default.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Listens to the signals that end a program.
    ///
    /// Those that whoever started distlock has ignored (`nohup`, a shell's background jobs) stay ignored, here and in
    /// the child.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Self {
            streams: Vec::new(),
        };
        let ignored = ignored_signals();
        for signal in PASSED_ON {
            if !ignored.contains(signal) {
                signals.add(signal)?;
            }
        }
        Ok(signals)
    }

    /// Listens, from now on, also to what concerns a child: its changes, and the terminal's stop and continue.
    pub(crate) fn listen_for_child(&mut self) -> Result<(), Failure> {
        // They are taken in this order. A stop comes first: taken after the child's change, which may stop us, it would
        // stop the child again when all have been continued.
        if !ignored_signals().contains(Signal::SIGTSTP) {
            self.add(Signal::SIGTSTP)?;
        }
        self.add(Signal::SIGCONT)?;
        self.add(Signal::SIGCHLD)?;
        unblock(&[Signal::SIGTSTP, Signal::SIGCONT, Signal::SIGCHLD])
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// Safe: a signal that came is kept until it is taken.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// A signal that has come already.
    pub(crate) fn pending(&mut self) -> Option<Signal> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(signal) => Some(signal),
            Poll::Pending => None,
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.streams {
            if stream.poll_recv(context).is_ready() {
                let signal = *signal;
                if signal == Signal::SIGCONT {
                    self.forget_stop(context);
                }
                return Poll::Ready(signal);
            }
        }
        Poll::Pending
    }

    /// A stop that was not acted on before the continue came is void, as it is to the kernel.
    fn forget_stop(&mut self, context: &mut Context<'_>) {
        for (signal, stream) in &mut self.streams {
            if *signal == Signal::SIGTSTP {
                let _ = stream.poll_recv(context);
            }
        }
    }

    fn add(&mut self, signal: Signal) -> Result<(), Failure> {
        let stream = unix::signal(SignalKind::from_raw(signal as i32))
            .map_err(|error| Failure::new(format!("cannot listen to {signal}: {error}")))?;
        self.streams.push((signal, stream));
        Ok(())
    }
}

/// Whoever started distlock may have blocked some, and a blocked SIGCHLD would never tell that the child has ended.
///
/// It is enough that one thread of the process takes them.
fn unblock(signals: &[Signal]) -> Result<(), Failure> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_unblock()
        .map_err(|error| Failure::new(format!("cannot unblock signals: {error}")))
}

/// A set of signals as the kernel writes it: bit n - 1 for signal n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn contains(self, signal: Signal) -> bool {
        self.0 >> (signal as i32 - 1) & 1 == 1
    }
}

/// The signals that are ignored now. Where the system does not tell, none.
fn ignored_signals() -> Set {
    let status = std::fs::read_to_string("/proc/self/status");
    parse_ignored(status).unwrap_or(Set(0))
}

fn parse_ignored(status: io::Result<String>) -> Option<Set> {
    let status = status.ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok().map(Set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_mask_is_read() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n".to_owned();
        let set = parse_ignored(Ok(status)).unwrap();
        assert!(set.contains(Signal::SIGHUP));
        assert!(set.contains(Signal::SIGPIPE));
        assert!(!set.contains(Signal::SIGTERM));
    }
}
