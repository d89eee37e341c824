use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use distlock_api::clock::Instant;
use distlock_api::{AcquireRequest, LockName, Token};

use crate::client::Client;
use crate::failure::{Checked, Failure};
use crate::link::Link;
use crate::process::{Remote, Setting};
use crate::store::{Disposable, Linked, Open, Opened, Store};

/// How long locks have been free that rules purge. A rule that counts on the record of a free lock is quicker, or
/// says that it was too slow, for another rule may purge at any time.
pub(crate) const PURGE_AGE: Duration = Duration::from_secs(2);

/// Stops the rule as stalled where another rule may have purged a lock that was free since then.
pub(crate) fn ensure_young(free_since: &Instant) -> Checked {
    if free_since.elapsed() < PURGE_AGE {
        return Ok(());
    }
    Err(Failure::stalled(
        "the record may have been purged meanwhile",
    ))
}

/// What a rule works with.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) store: Arc<Store>,
    pub(crate) rule: &'static str,
    /// How long a rule waits for what a right backend does at once.
    pub(crate) patience: Duration,
    /// By how much leases are longer than written, because the machine stalled in an earlier try.
    pub(crate) stretch: u32,
}

impl Context {
    /// A new client of the store, with connections of its own.
    pub(crate) async fn client(&self) -> Checked<Client> {
        self.open(&self.store.open).await
    }

    async fn open(&self, open: &Open) -> Checked<Client> {
        let opened = open(()).await.map_err(Failure::from);
        let opened = opened.map_err(|failure| failure.context("the store cannot be opened"))?;
        Ok(self.wrap(opened))
    }

    fn wrap(&self, opened: Opened) -> Client {
        // No rule waits for the end of a lease that is longer than that.
        Client::new(opened, self.patience + self.lease(1000))
    }

    /// A client in another process.
    pub(crate) async fn process(&self, setting: Setting<'_>) -> Checked<(Client, Arc<Remote>)> {
        let remote = Arc::new(self.holder(setting).await?);
        let opened = Opened {
            backend: remote.clone(),
            admin: None,
        };
        Ok((self.wrap(opened), remote))
    }

    /// Another process.
    pub(crate) async fn holder(&self, setting: Setting<'_>) -> Checked<Remote> {
        let capabilities = self.client().await?.capabilities();
        Remote::start(&self.store.name, capabilities, setting).await
    }

    /// A link to the store's server.
    pub(crate) async fn link(&self) -> Checked<Link> {
        Ok(Link::to(&self.linked()?.server).await?)
    }

    /// So many new clients.
    pub(crate) async fn clients(&self, count: usize) -> Checked<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.client().await?);
        }
        Ok(clients)
    }

    /// New clients of the store that may be emptied.
    pub(crate) async fn disposable_clients(&self, count: usize) -> Checked<Vec<Client>> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(self.open(&self.disposable()?.open).await?);
        }
        Ok(clients)
    }

    /// A new client that reaches the store's server over a link, with connections of its own.
    pub(crate) async fn linked_client(&self) -> Checked<(Link, Client)> {
        let (link, linked) = (self.link().await?, self.linked()?);
        let opened = (linked.open)(link.address()).await.map_err(Failure::from);
        let opened = opened.map_err(|failure| failure.context("the store cannot be opened"))?;
        Ok((link, self.wrap(opened)))
    }

    fn linked(&self) -> Checked<&Linked> {
        let linked = self.store.linked.as_ref();
        linked.ok_or_else(|| Failure::broken("the rule needs a `link`"))
    }

    /// Empties the store that may be emptied.
    pub(crate) async fn flush(&self) -> Checked {
        let done = (self.disposable()?.empty)(()).await.map_err(Failure::from);
        done.map_err(|failure| failure.context("the `flush` hook failed"))
    }

    fn disposable(&self) -> Checked<&Disposable> {
        let disposable = self.store.disposable.as_ref();
        disposable.ok_or_else(|| Failure::broken("the rule needs the `flush` hooks"))
    }

    /// A lock name that nobody used before.
    pub(crate) fn name(&self) -> Checked<LockName> {
        let mut name = format!("{}-", self.rule);
        for byte in &Token::random().as_bytes()[..6] {
            let _ = write!(name, "{byte:02x}");
        }
        Ok(LockName::new(name)?)
    }

    /// A lease of so many milliseconds, longer in a repeated try.
    pub(crate) fn lease(&self, millis: u64) -> Duration {
        Duration::from_millis(millis) * self.stretch
    }

    /// A request for a lock, with a token of its own, by an owner called after the rule.
    pub(crate) fn request(&self, name: &LockName, lease: Duration) -> AcquireRequest {
        AcquireRequest::new(name.clone(), format!("rule {}", self.rule), lease)
    }

    /// Does what an operator would do to make the store forget one lock.
    pub(crate) async fn forget(&self, name: &LockName) -> Checked {
        let forget = self.store.forget.as_ref();
        let forget = forget.ok_or_else(|| Failure::broken("the rule needs the `forget` hook"))?;
        let done = forget(name.clone()).await.map_err(Failure::from);
        done.map_err(|failure| failure.context("the `forget` hook failed"))
    }
}
