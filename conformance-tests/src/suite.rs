use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use distlock_api::{LockAdmin, LockBackend, LockName};

use crate::store::{
    Disposable, Linked, Store, StoreError, hook, open_admin, open_admin_at, open_backend,
};
use crate::{Report, process, run};

/// How long rules wait for what a right backend does at once: 20 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// The rules, for one store.
///
/// Made in `main` of a test with `harness = false`, and run there. See the [crate's documentation](crate).
#[derive(Clone, Debug)]
#[must_use = "a suite does nothing until it is run"]
pub struct Suite {
    pub(crate) store: Store,
    pub(crate) patience: Duration,
    pub(crate) rules_run: Option<usize>,
}

impl Suite {
    /// The rules for a backend that has [`LockBackend`] only.
    ///
    /// `store` names the tests and the report: letters, digits, `-` and `_`. `open` makes a new client of the same
    /// store each time, with connections of its own, as another process would; it is called within the runtime that
    /// the client will be used in.
    pub fn new<B, F, Fut, E>(store: &str, open: F) -> Self
    where
        B: LockBackend,
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, E>> + Send + 'static,
        E: Into<StoreError>,
    {
        Self::of(store, open_backend(open))
    }

    /// As [`new`](Self::new), for a backend that has the operators' tools of [`LockAdmin`], too.
    pub fn with_admin<B, F, Fut, E>(store: &str, open: F) -> Self
    where
        B: LockAdmin,
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, E>> + Send + 'static,
        E: Into<StoreError>,
    {
        Self::of(store, open_admin(open))
    }

    fn of(store: &str, open: crate::store::Open) -> Self {
        Self {
            store: Store {
                name: store.to_owned(),
                open,
                forget: None,
                disposable: None,
                linked: None,
                server: None,
            },
            patience: PATIENCE,
            rules_run: None,
        }
    }

    /// How to delete all that the store knows of one lock, its fencing counter too, as an operator's DELETE or DEL
    /// would. Without it the rules about forgotten locks are skipped.
    pub fn forget<F, Fut, E>(mut self, forget: F) -> Self
    where
        F: Fn(LockName) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<StoreError>,
    {
        self.store.forget = Some(hook(forget));
        self
    }

    /// How to open another store of the same kind, and how to empty it as a whole: another table, another database
    /// number. Nobody else may use it. Without it the rules about emptied stores are skipped.
    pub fn flush<B, F, Fut, E, G, Gut, H>(mut self, open: F, empty: G) -> Self
    where
        B: LockBackend,
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, E>> + Send + 'static,
        E: Into<StoreError>,
        G: Fn() -> Gut + Send + Sync + 'static,
        Gut: Future<Output = Result<(), H>> + Send + 'static,
        H: Into<StoreError>,
    {
        self.store.disposable = Some(Disposable {
            open: open_backend(open),
            empty: hook(move |()| empty()),
        });
        self
    }

    /// Where the server of the store is, `host:port`, and how to open a client of it over another address. The suite
    /// puts a link in between, which it makes a bad one. Without it the rules about the network are skipped.
    pub fn link<B, F, Fut, E>(mut self, server: &str, open: F) -> Self
    where
        B: LockAdmin,
        F: Fn(SocketAddr) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, E>> + Send + 'static,
        E: Into<StoreError>,
    {
        self.store.linked = Some(Linked {
            server: server.to_owned(),
            open: open_admin_at(open),
        });
        self
    }

    /// How to ask the server which it is: `PostgreSQL 15.18`. It is asked after a full [`run`](Self::run), whose report
    /// then says it. A server that does not answer fails the run.
    pub fn server<F, Fut, E>(mut self, ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<StoreError>,
    {
        self.store.server = Some(hook(move |()| ask()));
        self
    }

    /// How long a rule waits for what a right backend does at once, such as to grant a lock that has become free.
    /// The default is 20 s: a slow machine is not a broken rule.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How many rules must run. A skip does not count, so that no rule is ever lost unnoticed.
    pub fn rules_run(mut self, count: usize) -> Self {
        self.rules_run = Some(count);
        self
    }

    /// Runs the rules as tests, by the usual arguments of `cargo test`, and gives what `main` has to return.
    ///
    /// Where `DISTLOCK_CONFORMANCE_REPORT` names a folder, a full run writes its [`Report`] there as `STORE.json`.
    ///
    /// Some rules start this very program again as a second process, with a variable in its environment; in that
    /// process `run` serves the rule and ends. `main` should do nothing of weight before.
    pub fn run(self) -> ExitCode {
        match self.worker() {
            Some(exit) => exit,
            None => run::as_tests(self),
        }
    }

    /// Runs all rules, many at a time, and tells how they ended. `main` must call [`worker`](Self::worker) before.
    pub fn check(&self) -> Report {
        run::all(self)
    }

    /// Serves a rule where this process was started as its second process, and `None` where it was not.
    /// [`run`](Self::run) does it by itself.
    pub fn worker(&self) -> Option<ExitCode> {
        process::asked_for(&self.store.name).then(|| process::serve(&self.store))
    }
}
