//! A memory backend to which a test can do what no server can be made to do at will.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, Error, ErrorKind, LeaseId, LockAdmin, LockBackend,
    LockName, LockRecord, LockState, MemoryBackend, Release, Renewal, Result, Scope, clock,
};

/// What happens to one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The store acts, and the answer comes this much later.
    SlowAnswer(Duration),
    /// The store acts this much later, and answers.
    ActsSlowly(Duration),
    /// The store acts, and the backend panics.
    Panics,
    /// The store acts, and the connection is gone before the answer.
    LostAnswer,
    /// Nothing reaches the store, and it is known.
    Refused,
    /// Nothing reaches the store yet: it acts after this time, long after the connection has failed.
    ActsLater(Duration),
    /// The caller has to poll this many times more, before and after the store acts.
    Yields(usize),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted {
    pub(crate) store: MemoryBackend,
    acquires: Arc<Mutex<VecDeque<Fault>>>,
    releases: Arc<Mutex<VecDeque<Fault>>>,
    renewals: Arc<Mutex<VecDeque<Fault>>>,
    renewed: Arc<Mutex<Vec<Vec<LockName>>>>,
    hangs_on: Arc<Mutex<Option<String>>>,
    down: Arc<AtomicBool>,
    released: Arc<AtomicUsize>,
}

impl Scripted {
    pub(crate) fn on_acquire(faults: impl IntoIterator<Item = Fault>) -> Self {
        let this = Self::default();
        this.acquires.lock().unwrap().extend(faults);
        this
    }

    pub(crate) fn on_release(faults: impl IntoIterator<Item = Fault>) -> Self {
        let this = Self::default();
        this.releases.lock().unwrap().extend(faults);
        this
    }

    pub(crate) fn on_renew(faults: impl IntoIterator<Item = Fault>) -> Self {
        let this = Self::default();
        this.renewals.lock().unwrap().extend(faults);
        this
    }

    /// No renewal that this lock is a part of is ever answered.
    pub(crate) fn hanging_on(name: &str) -> Self {
        Self {
            hangs_on: Arc::new(Mutex::new(Some(name.to_owned()))),
            ..Self::default()
        }
    }

    /// From now on no renewal of locks whose names begin like that is ever answered.
    pub(crate) fn hang_on_prefix(&self, prefix: &str) {
        *self.hangs_on.lock().unwrap() = Some(prefix.to_owned());
    }

    /// From now on nothing reaches the store, or everything does again.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    fn reach(&self) -> Result<()> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Unavailable, "connection refused")),
            false => Ok(()),
        }
    }

    /// The names of each renewal that was asked for, in the order in which they were asked for.
    pub(crate) fn renewals(&self) -> Vec<Vec<LockName>> {
        self.renewed.lock().unwrap().clone()
    }

    /// How many releases were asked for.
    pub(crate) fn releases(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }

    pub(crate) async fn record(&self, name: &str) -> Option<LockRecord> {
        let name = LockName::new(name).unwrap();
        self.store.inspect(&name).await.unwrap()
    }

    pub(crate) async fn state(&self, name: &str) -> LockState {
        let record = self.record(name).await;
        record.map_or(LockState::Free, |record| record.state)
    }
}

async fn act<T>(fault: Option<Fault>, act: impl Future<Output = T> + Send + 'static) -> Result<T>
where
    T: Send + 'static,
{
    match fault {
        None => Ok(act.await),
        Some(Fault::SlowAnswer(delay)) => {
            let answer = act.await;
            clock::sleep(delay).await;
            Ok(answer)
        }
        Some(Fault::ActsSlowly(delay)) => {
            clock::sleep(delay).await;
            Ok(act.await)
        }
        Some(Fault::Panics) => {
            act.await;
            panic!("a broken backend");
        }
        Some(Fault::LostAnswer) => {
            act.await;
            Err(Error::new(ErrorKind::Unavailable, "connection reset"))
        }
        Some(Fault::Refused) => Err(Error::new(ErrorKind::Denied, "no right")),
        Some(Fault::ActsLater(delay)) => {
            tokio::spawn(async move {
                clock::sleep(delay).await;
                act.await;
            });
            Err(Error::new(ErrorKind::Unavailable, "connection reset"))
        }
        Some(Fault::Yields(times)) => {
            yields(times).await;
            let answer = act.await;
            yields(times).await;
            Ok(answer)
        }
    }
}

async fn yields(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl LockBackend for Scripted {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.store.capabilities();
        capabilities.scope = Scope::Network;
        capabilities
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.reach()?;
        let fault = self.acquires.lock().unwrap().pop_front();
        let (store, request) = (self.store.clone(), request.clone());
        act(fault, async move { store.try_acquire(&request).await }).await?
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        let names: Vec<_> = leases.iter().map(|(lease, _)| lease.name.clone()).collect();
        let hangs_on = self.hangs_on.lock().unwrap().clone();
        let hangs = hangs_on
            .is_some_and(|prefix| names.iter().any(|name| name.as_str().starts_with(&prefix)));
        self.renewed.lock().unwrap().push(names);
        if let Err(error) = self.reach() {
            return leases.iter().map(|_| Err(error.clone())).collect();
        }
        if hangs {
            std::future::pending::<()>().await;
        }
        let fault = self.renewals.lock().unwrap().pop_front();
        let (store, asked) = (self.store.clone(), leases.to_vec());
        match act(fault, async move { store.renew(&asked).await }).await {
            Ok(answers) => answers,
            Err(error) => leases.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        self.released.fetch_add(1, Ordering::SeqCst);
        self.reach()?;
        let fault = self.releases.lock().unwrap().pop_front();
        let (store, lease) = (self.store.clone(), lease.clone());
        act(fault, async move { store.release(&lease, linger).await }).await?
    }
}
