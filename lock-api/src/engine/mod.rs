//! What stands above every backend alike: whatever, if left out, could make two holders or leave rubbish behind.
//!
//! An acquisition goes through, in this order: validation ([`options`](crate::options)), one attempt with its limit
//! ([`attempt`]), the deadline ([`deadline`]), renewals ([`watchdog`]), and the release, in the background where its caller does not wait for it
//! ([`cleanup`], [`background`]).

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::options::DRIFT;
use crate::{Capabilities, LockBackend};

mod attempt;
mod background;
mod cleanup;
mod deadline;
mod watchdog;

pub(crate) use attempt::{Answer, Grant};
pub(crate) use background::{Background, Ticket};
pub(crate) use cleanup::AtLeast;
pub(crate) use deadline::Deadline;
use watchdog::{Watchdogs, Watching};

/// One backend with what the engine keeps for it; shared by everything that was made from one `Locks`.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn LockBackend>,
    pub(crate) capabilities: Capabilities,
    pub(crate) background: Arc<Background>,
    watchdogs: Watchdogs,
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn LockBackend>) -> Arc<Self> {
        Arc::new(Self {
            capabilities: backend.capabilities(),
            backend,
            background: Arc::default(),
            watchdogs: Watchdogs::new(),
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.watchdogs.close();
    }
}

/// The time in which a lease may be in force at the server, in doubt a little longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Instant,
    pub(crate) length: Duration,
}

impl Span {
    pub(crate) fn left(&self) -> Duration {
        let length = self.length + self.length / DRIFT;
        length.saturating_sub(self.from.elapsed())
    }

    fn or_longer(self, other: Self) -> Self {
        if other.left() > self.left() {
            other
        } else {
            self
        }
    }
}
