//! A stranger's backend with its conformance test, whole: what does not apply to it is skipped, and says why.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use distlock_api::clock::Instant;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, Held, LeaseId, LockBackend, LockName, Release, Renewal,
    Result, Scope, Token,
};
use distlock_conformance::{StoreError, Suite};

fn main() -> ExitCode {
    let shelf = Shelf::default();
    Suite::new("shelf", move || {
        let client = shelf.clone();
        async move { Ok::<_, StoreError>(client) }
    })
    .rules_run(54)
    .run()
}

/// Locks on a shelf in memory: `LockBackend` alone, no fencing, no ticks, no tools for operators.
#[derive(Clone, Debug, Default)]
struct Shelf(Arc<Mutex<HashMap<LockName, Lease>>>);

#[derive(Debug)]
struct Lease {
    token: Token,
    owner: String,
    from: Instant,
    length: Duration,
    resting: bool,
}

impl Lease {
    fn left(&self) -> Duration {
        self.length.saturating_sub(self.from.elapsed())
    }

    fn start(&mut self, length: Duration) {
        (self.from, self.length) = (Instant::now(), length);
    }
}

impl Shelf {
    /// Does something with the lease of a lock, if it is not over.
    fn with<T>(&self, name: &LockName, look: impl FnOnce(Option<&mut Lease>) -> T) -> T {
        let mut leases = self.0.lock().unwrap();
        leases.retain(|_, lease| !lease.left().is_zero());
        look(leases.get_mut(name))
    }
}

#[async_trait]
impl LockBackend for Shelf {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("shelf");
        capabilities.scope = Scope::Process;
        capabilities.fencing = false;
        capabilities.ticks = false;
        capabilities.keeps_records = false;
        capabilities
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let mut leases = self.0.lock().unwrap();
        let mut length = request.lease;
        if let Some(lease) = leases.get(&request.name).filter(|l| !l.left().is_zero()) {
            if lease.token != request.token || lease.resting {
                return Ok(Attempt::Held(Held {
                    by: Some(lease.owner.clone()),
                    remaining: Some(lease.left()),
                    resting: lease.resting,
                }));
            }
            length = length.max(lease.left());
        }
        let lease = Lease {
            token: request.token,
            owner: request.owner.clone(),
            from: Instant::now(),
            length,
            resting: false,
        };
        leases.insert(request.name.clone(), lease);
        Ok(Attempt::Acquired {
            fencing_token: None,
        })
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        let renew_one = |(id, ttl): &(LeaseId, Duration)| {
            self.with(&id.name, |lease| match lease {
                Some(lease) if lease.token == id.token && !lease.resting => {
                    lease.start(lease.left().max(*ttl));
                    Ok(Renewal::Renewed)
                }
                other => Ok(Renewal::Lost {
                    to: other.map(|lease| lease.owner.clone()),
                }),
            })
        };
        leases.iter().map(renew_one).collect()
    }

    async fn release(&self, id: &LeaseId, linger: Duration) -> Result<Release> {
        self.with(&id.name, |lease| match lease {
            Some(lease) if lease.token == id.token => {
                if !lease.resting {
                    lease.start(linger);
                    lease.resting = true;
                }
                Ok(Release::Released)
            }
            other => Ok(Release::NotHeld {
                by: other.map(|lease| lease.owner.clone()),
            }),
        })
    }
}
