use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::cleanup::{Certainty, release_until_sure};
use super::{AtLeast, Deadline, Engine, Span, Ticket};
use crate::clock::{self, Instant};
use crate::options::Terms;
use crate::{
    AcquireRequest, Attempt, Error, ErrorKind, FencingToken, Held, LeaseId, LockName, Operation,
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
    pub(crate) owner: String,
    pub(crate) fencing_token: Option<FencingToken>,
    pub(crate) deadline: Deadline,
    pub(crate) span: Span,
    pub(crate) at_least: AtLeast,
    pub(crate) released: bool,
}

impl Drop for Grant {
    fn drop(&mut self) {
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
        if self.background.is_closed() {
            return Err(context(closed()));
        }
        let mut request = AcquireRequest::new(name.clone(), terms.owner, terms.lease);
        request.tick = terms.tick;
        let limit = self.capabilities.operation_limit.min(terms.lease);

        let t0 = Instant::now();
        let mut in_flight = InFlight::start(Arc::clone(self), runtime.clone(), request);
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

        let grant = Grant {
            engine: Arc::clone(self),
            runtime,
            lease: in_flight.request.lease_id(),
            owner: in_flight.request.owner.clone(),
            fencing_token,
            deadline: Deadline::new(t0, terms.lease, self.capabilities.granularity),
            span: Span {
                from: t0,
                length: terms.lease,
            },
            at_least: AtLeast::from_now(terms.at_least),
            released: false,
        };
        if self.background.is_closed() {
            return failed(closed());
        }
        if grant.deadline.remaining().is_zero() {
            return failed(Error::new(
                ErrorKind::Timeout,
                "the grant came when its lease was as good as over, and was given back: take a longer at_most_for",
            ));
        }
        Ok(Answer::Granted(grant))
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
    fn start(engine: Arc<Engine>, runtime: Handle, request: AcquireRequest) -> Self {
        let request = Arc::new(request);
        let future = {
            let (backend, request) = (Arc::clone(&engine.backend), Arc::clone(&request));
            async move { backend.try_acquire(&request).await }
        };
        Self {
            ticket: Some(engine.background.ticket()),
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
            self.runtime.spawn(async move {
                let limit = engine.capabilities.operation_limit;
                let certainty = match clock::timeout(limit, future).await {
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
        format!("no answer within {limit:?}; if the lock was granted meanwhile, it is released"),
    )
}

fn closed() -> Error {
    Error::new(
        ErrorKind::Closed,
        "shutdown was called: no new locks are taken",
    )
}

fn no_runtime() -> Error {
    Error::new(
        ErrorKind::Config,
        "no tokio runtime here: call it from within one, with its time driver enabled",
    )
}
