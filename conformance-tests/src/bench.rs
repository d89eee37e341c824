//! A client behind a bad network, and a lock that it keeps all the same.

use std::sync::Arc;
use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{Guard, Lock, LockName, LockState};

use crate::client::Client;
use crate::context::Context;
use crate::engine::acquire;
use crate::failure::{Checked, Failure};
use crate::link::{Condition, Link};
use crate::witness::Witness;

/// A client behind a link, and one beside it.
pub(crate) struct Bench {
    pub(crate) link: Link,
    pub(crate) client: Client,
    witness: Arc<Witness>,
    pub(crate) beside: Client,
    pub(crate) name: LockName,
}

impl Bench {
    pub(crate) async fn new(cx: &Context) -> Checked<Self> {
        let (link, client) = cx.linked_client().await?;
        Ok(Self {
            link,
            witness: Witness::of(&client),
            client,
            beside: cx.client().await?,
            name: cx.name()?,
        })
    }

    /// As [`new`](Self::new), with a client that has its connection and has looked at the store, so that only its calls
    /// are still to come.
    pub(crate) async fn warm(cx: &Context) -> Checked<Self> {
        let bench = Self::new(cx).await?;
        bench.warm_up(cx).await?;
        Ok(bench)
    }

    pub(crate) async fn warm_up(&self, cx: &Context) -> Checked {
        let request = cx.request(&cx.name()?, cx.lease(30_000));
        let grant = self.client.take_when_reachable(&request).await?;
        self.client.free(&grant).await
    }

    pub(crate) fn lock(&self) -> Checked<Lock> {
        Ok(self.witness.locks().lock(&self.name)?)
    }

    /// The link is a good one again.
    pub(crate) fn heal(&self) {
        self.link.set(Condition::Open);
        self.witness.no_excuse();
    }

    /// The lock, kept by a watchdog.
    pub(crate) async fn watched(&self, ttl: Duration) -> Checked<Watched<'_>> {
        Ok(Watched {
            bench: self,
            guard: acquire(&self.lock()?.watchdog(ttl)).await?,
            ttl,
            stall: Duration::ZERO,
        })
    }

    /// That the lock is free long before the lease of the attempt would be over.
    pub(crate) async fn is_given_back(&self, cx: &Context) -> Checked {
        let request = cx.request(&self.name, cx.lease(1000));
        let grant = self.beside.take_when_free(&request).await;
        let grant = grant.map_err(|failure| self.witness.judge(failure))?;
        self.beside.free(&grant).await
    }
}

/// A lock that must be kept.
pub(crate) struct Watched<'a> {
    bench: &'a Bench,
    pub(crate) guard: Guard,
    ttl: Duration,
    /// How long this process or the store stood still at the longest.
    stall: Duration,
}

/// How often somebody looks.
const LOOK: Duration = Duration::from_millis(10);

impl Watched<'_> {
    /// Looks on for so long, and finds the lock held by this guard all the time.
    pub(crate) async fn stays_valid(&mut self, time: Duration) -> Checked {
        let since = Instant::now();
        while since.elapsed() < time {
            self.look().await?;
        }
        Ok(())
    }

    /// Looks once.
    pub(crate) async fn look(&mut self) -> Checked {
        let before = Instant::now();
        clock::sleep(LOOK).await;
        let state = self.bench.beside.state(&self.bench.name).await;
        self.stall = self.stall.max(before.elapsed());
        if !self.guard.is_valid() {
            let loss = self.guard.lost().await;
            return Err(self.failure(&format!("the lock was lost: {loss}")));
        }
        match state? {
            LockState::Held => Ok(()),
            _ => Err(Failure::broken("the store has given the lock away")),
        }
    }

    /// The lock was not kept as it must be. Where the machine stood still for a good part of the lease, nobody could have.
    pub(crate) fn failure(&self, how: &str) -> Failure {
        match self.stall > self.ttl / 10 {
            true => Failure::stalled(format!(
                "{how}; this process or the store stood still for {:.1?}",
                self.stall
            )),
            false => Failure::broken(how),
        }
    }
}
