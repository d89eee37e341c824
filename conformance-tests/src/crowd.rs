//! Many who want one lock at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock_api::{AcquireRequest, Attempt, Token, clock};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::client::{Client, Grant};
use crate::failure::{Checked, ensure};

/// All ask at the same moment for the same lock, each with a token of its own; gives the one grant.
pub(crate) async fn race(clients: &[Client], request: &AcquireRequest) -> Checked<Grant> {
    let barrier = Arc::new(Barrier::new(clients.len()));
    let mut tasks = JoinSet::new();
    for client in clients {
        let (client, barrier) = (client.clone(), Arc::clone(&barrier));
        let request = AcquireRequest::new(request.name.clone(), &*request.owner, request.lease);
        tasks.spawn(async move {
            barrier.wait().await;
            client.ask(&request).await
        });
    }
    let mut grants = Vec::new();
    while let Some(asked) = tasks.join_next().await {
        let (attempt, grant) = asked??;
        if matches!(attempt, Attempt::Acquired { .. }) {
            grants.push(grant);
        }
    }
    if let [first, _, ..] = grants.as_slice() {
        first.ensure_running()?;
    }
    ensure!(
        grants.len() == 1,
        "{} of {} who asked at once were granted the lock",
        grants.len(),
        clients.len()
    );
    Ok(grants.remove(0))
}

/// Each client takes the lock so many times, and counts under it. Not one step may be lost.
pub(crate) async fn count_under_lock(
    clients: Vec<Client>,
    request: AcquireRequest,
    steps: u64,
) -> Checked {
    let counter = Arc::new(Counter::default());
    let total = clients.len() as u64 * steps;
    let mut tasks = JoinSet::new();
    for client in clients {
        let client = client.in_a_crowd();
        let (counter, mut request) = (Arc::clone(&counter), request.clone());
        tasks.spawn(async move {
            for _ in 0..steps {
                request.token = Token::random();
                let grant = client.take_when_free(&request).await?;
                let alone = counter.step().await;
                grant.ensure_running()?;
                ensure!(alone, "two were under one lock at the same time");
                client.free(&grant).await?;
            }
            Ok(())
        });
    }
    while let Some(counted) = tasks.join_next().await {
        counted??;
    }
    let counted = counter.value.load(Ordering::SeqCst);
    ensure!(
        counted == total,
        "{total} steps were made, and {counted} counted"
    );
    Ok(())
}

/// A number that is read, kept for a while and written back: two at a time lose a step.
#[derive(Debug, Default)]
struct Counter {
    value: AtomicU64,
    occupied: AtomicBool,
}

impl Counter {
    /// Adds one; `false` if somebody else was at it meanwhile.
    async fn step(&self) -> bool {
        let alone = !self.occupied.swap(true, Ordering::SeqCst);
        let value = self.value.load(Ordering::SeqCst);
        clock::sleep(Duration::from_millis(1)).await;
        self.value.store(value + 1, Ordering::SeqCst);
        self.occupied.store(false, Ordering::SeqCst);
        alone
    }
}
