use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::cleanup::{Certainty, release_until_sure};
use super::{AtLeast, Deadline, Engine, Span, Ticket, Watching};
use crate::clock::{self, Instant};
use crate::options::Terms;
use crate::{
    AcquireRequest, Attempt, Effect, Error, ErrorKind, Held, Hold, LeaseId, LockName, Operation,
    Result,
};

/// What came of an attempt that the store answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    Held(Held),
    TickDone { last: i64 },
}

/// A lock that was granted and is in force. Whoever drops it without a release leaves that to the background.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) engine: Arc<Engine>,
    pub(crate) runtime: Handle,
    pub(crate) lease: LeaseId,
    pub(crate) hold: Hold,
    pub(crate) span: Span,
    watching: Option<Watching>,
    pub(crate) at_least: AtLeast,
    pub(crate) released: bool,
}

impl Grant {
    /// From here on nobody counts as holding, and no renewal leaves.
    pub(crate) fn end(&mut self) {
        self.hold.end();
        if let Some(watching) = self.watching.take() {
            self.span = self.span.or_longer(watching.end());
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.end();
        if self.released {
            return;
        }
        let ticket = self.engine.background.ticket();
        let (engine, lease) = (Arc::clone(&self.engine), self.lease.clone());
        let (at_least, span) = (self.at_least, self.span);
        self.runtime.spawn(async move {
            release_until_sure(&engine, &lease, at_least, span, Certainty::Granted, ticket).await;
        });
    }
}

impl Engine {
    /// Asks the store once, within the limit of one call.
    ///
    /// The attempt is polled in place. If the caller drops it, or the limit ends it, it is carried on in the background
    /// and what it may have been granted is released.
    pub(crate) async fn attempt(self: &Arc<Self>, name: &LockName, terms: Terms) -> Result<Answer> {
        let backend = self.capabilities.backend;
        let context = |error: Error| error.during(backend, Operation::Acquire).on(name);
        let runtime = Handle::try_current().map_err(|_| context(no_runtime()))?;
        // The ticket first: either a shutdown sees it, or we see the shutdown.
        let ticket = self.background.ticket();
        if self.background.is_closed() {
            return Err(context(closed()));
        }
        let mut request = AcquireRequest::new(name.clone(), terms.owner, terms.lease);
        request.tick = terms.tick;
        let limit = self.capabilities.operation_limit.min(terms.lease);

        let t0 = Instant::now();
        let mut in_flight = InFlight::start(Arc::clone(self), runtime.clone(), request, ticket);
        let answer = clock::timeout(limit, in_flight.answer()).await;
        let failed = |error: Error| Err(context(error).after(t0.elapsed()));
        let fencing_token = match answer {
            None => return failed(timed_out(limit)),
            Some(Err(error)) => {
                in_flight.settle_if_unknown(&error);
                return failed(error);
            }
            Some(Ok(Attempt::Acquired { fencing_token })) => fencing_token,
            Some(Ok(Attempt::Held(held))) => return Ok(Answer::Held(held)),
            Some(Ok(Attempt::TickDone { last })) => return Ok(Answer::TickDone { last }),
        };

        let request = &in_flight.request;
        let mut grant = Grant {
            engine: Arc::clone(self),
            runtime,
            lease: request.lease_id(),
            hold: Hold::new(
                request.name.clone(),
                request.owner.clone(),
                fencing_token,
                Deadline::new(t0, terms.lease, self.capabilities.granularity),
                terms.keep_alive.is_none(),
            ),
            span: Span {
                from: t0,
                length: terms.lease,
            },
            watching: None,
            at_least: AtLeast::from_now(terms.at_least),
            released: false,
        };
        let given_back = if self.background.is_closed() {
            closed()
        } else if !grant.hold.is_valid() {
            too_late()
        } else {
            grant.watching = terms.keep_alive.map(|keep_alive| {
                let watched = (grant.lease.clone(), grant.hold.clone());
                let watchdog = self.watchdogs.of(&grant.runtime);
                watchdog.watch(self, &grant.runtime, watched, keep_alive, t0)
            });
            return Ok(Answer::Granted(grant));
        };
        // Nobody has used it, so that it need not rest.
        grant.at_least = AtLeast::none();
        failed(given_back.with_effect(Effect::Unknown))
    }
}

/// An attempt on its way to the store and back.
struct InFlight {
    engine: Arc<Engine>,
    runtime: Handle,
    request: Arc<AcquireRequest>,
    future: Option<Pin<Box<dyn Future<Output = Result<Attempt>> + Send>>>,
    ticket: Option<Ticket>,
}

impl InFlight {
    fn start(
        engine: Arc<Engine>,
        runtime: Handle,
        request: AcquireRequest,
        ticket: Ticket,
    ) -> Self {
        let request = Arc::new(request);
        let future = {
            let (backend, request) = (Arc::clone(&engine.backend), Arc::clone(&request));
            async move { backend.try_acquire(&request).await }
        };
        Self {
            ticket: Some(ticket),
            engine,
            runtime,
            request,
            future: Some(Box::pin(future)),
        }
    }

    async fn answer(&mut self) -> Result<Attempt> {
        let future = self.future.as_mut().expect("asked for its answer once");
        let answer = future.await;
        self.future = None;
        answer
    }

    /// The store may have granted what it gave no answer to.
    fn settle_if_unknown(&mut self, error: &Error) {
        if let Some((ticket, certainty)) = self.ticket.take().zip(Certainty::after(error)) {
            let (engine, request) = (Arc::clone(&self.engine), Arc::clone(&self.request));
            self.runtime
                .spawn(settle(engine, request, certainty, ticket));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some((future, ticket)) = self.future.take().zip(self.ticket.take()) {
            let (engine, request) = (Arc::clone(&self.engine), Arc::clone(&self.request));
            // After a panic, perhaps its own, it must not be polled again.
            let future = (!std::thread::panicking()).then_some(future);
            self.runtime.spawn(async move {
                let limit = engine.capabilities.operation_limit;
                let answer = match future {
                    Some(future) => clock::timeout(limit, future).await,
                    None => None,
                };
                let certainty = match answer {
                    None => Some(Certainty::MayBeGrantedYet),
                    Some(Ok(Attempt::Acquired { .. })) => Some(Certainty::Granted),
                    Some(Ok(_)) => None,
                    Some(Err(error)) => Certainty::after(&error),
                };
                if let Some(certainty) = certainty {
                    settle(engine, request, certainty, ticket).await;
                }
            });
        }
    }
}

/// Releases what an attempt that nobody wants any more was, or may have been, granted.
async fn settle(
    engine: Arc<Engine>,
    request: Arc<AcquireRequest>,
    certainty: Certainty,
    ticket: Ticket,
) {
    let span = Span {
        from: Instant::now(),
        length: request.lease,
    };
    let lease = request.lease_id();
    release_until_sure(&engine, &lease, AtLeast::none(), span, certainty, ticket).await;
}

fn timed_out(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Timeout,
        format!(
            "no answer within {limit:?}; if the lock is granted all the same, it is given back, at the latest at the end of its lease"
        ),
    )
}

fn closed() -> Error {
    Error::new(
        ErrorKind::Closed,
        "shutdown was called: no new locks are taken",
    )
}

fn too_late() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "the grant came when its lease was as good as over, and is given back: take a longer at_most_for",
    )
    .with_store_up()
}

fn no_runtime() -> Error {
    Error::new(
        ErrorKind::Config,
        "no tokio runtime here: call it from within one, with its time driver enabled",
    )
}
