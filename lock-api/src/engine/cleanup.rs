use std::time::Duration;

use super::{Engine, Span, Ticket};
use crate::clock::{self, Instant};
use crate::options::DRIFT;
use crate::{Effect, Error, LeaseId, Release};

/// The lower bound of a hold, counted from when the grant was known here: later than at the server, so never short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtLeast {
    from: Instant,
    length: Duration,
}

impl AtLeast {
    pub(crate) fn from_now(length: Duration) -> Self {
        Self {
            from: Instant::now(),
            length,
        }
    }

    /// For a grant that was never used.
    pub(crate) fn none() -> Self {
        Self::from_now(Duration::ZERO)
    }

    /// What is left of it, even if the local clock runs fast within the bound.
    pub(crate) fn left(&self) -> Duration {
        let elapsed = self.from.elapsed();
        self.length.saturating_sub(elapsed - elapsed / DRIFT)
    }
}

/// Whether the lease that is to be released was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// It was: the first answer of the store settles the matter.
    Granted,
    /// The request may still be on its way: "not held" may turn into "held" until its lease would be over.
    MayBeGrantedYet,
}

impl Certainty {
    /// What a failed attempt leaves open; `None` where it changed nothing.
    pub(crate) fn after(error: &Error) -> Option<Self> {
        (error.effect() == Effect::Unknown).then_some(Self::MayBeGrantedYet)
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE_WITHOUT_ANSWER: Duration = Duration::from_secs(5);

/// Releases by token until the store has answered, or the lease is over by itself.
pub(crate) async fn release_until_sure(
    engine: &Engine,
    lease: &LeaseId,
    at_least: AtLeast,
    span: Span,
    certainty: Certainty,
    ticket: Ticket,
) {
    let mut ticket = Some(ticket);
    let mut pause = FIRST_PAUSE;
    let mut told = false;
    loop {
        let release = engine.backend.release(lease, at_least.left());
        let answer = clock::timeout(engine.capabilities.operation_limit, release).await;
        let failure = match answer {
            Some(Ok(Release::Released)) => return,
            Some(Ok(Release::NotHeld { .. })) if certainty == Certainty::Granted => return,
            Some(Ok(Release::NotHeld { .. })) => {
                // A shutdown need not wait for a request that the store has not seen.
                ticket.take();
                None
            }
            Some(Err(error)) => Some(error.to_string()),
            None => Some("no answer".to_owned()),
        };
        let left = span.left();
        if let Some(failure) = &failure {
            pause = pause.min(LONGEST_PAUSE_WITHOUT_ANSWER);
            if !told {
                tell(lease, failure, left);
                told = true;
            }
        }
        if left.is_zero() {
            return;
        }
        clock::sleep(pause.min(left)).await;
        pause *= 2;
    }
}

/// Nobody else hears of a release in the background.
fn tell(lease: &LeaseId, failure: &str, left: Duration) {
    let lock = lease.name.as_str().escape_debug();
    match left.is_zero() {
        true => {
            tracing::warn!(%lock, failure, "a lock could not be released, and its lease is over")
        }
        false => tracing::warn!(
            %lock,
            failure,
            "a lock cannot be released; tried again until its lease is over, in {left:.1?}"
        ),
    }
}
