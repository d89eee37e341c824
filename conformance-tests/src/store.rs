use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use distlock_api::{LockAdmin, LockBackend, LockName};

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a store could not be opened, or a hook failed: any error type, or a text.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Open = Hook<(), Opened>;

pub(crate) type Hook<A, T> = Arc<dyn Fn(A) -> BoxFuture<Result<T, StoreError>> + Send + Sync>;

/// A client as it was opened, without its type.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) backend: Arc<dyn LockBackend>,
    pub(crate) admin: Option<Arc<dyn LockAdmin>>,
}

/// What the suite was given: how to open clients of the store, and what an operator could do to it.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) open: Open,
    pub(crate) forget: Option<Hook<LockName, ()>>,
    pub(crate) disposable: Option<Disposable>,
    pub(crate) server: Option<Hook<(), String>>,
    pub(crate) linked: Option<Linked>,
}

/// The server's address, and how to open a client of the store over another one.
#[derive(Clone)]
pub(crate) struct Linked {
    pub(crate) server: String,
    pub(crate) open: Hook<SocketAddr, Opened>,
}

/// A store of the same kind that may be emptied as a whole.
#[derive(Clone)]
pub(crate) struct Disposable {
    pub(crate) open: Open,
    pub(crate) empty: Hook<(), ()>,
}

/// Takes the types off a function that opens a backend without tools for operators.
pub(crate) fn open_backend<B, F, Fut, E>(open: F) -> Open
where
    B: LockBackend,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, E>> + Send + 'static,
    E: Into<StoreError>,
{
    Arc::new(move |()| {
        let opening = open();
        Box::pin(async move {
            let backend = Arc::new(opening.await.map_err(Into::into)?);
            Ok(Opened {
                backend,
                admin: None,
            })
        })
    })
}

/// Takes the types off a function that opens a backend with tools for operators.
pub(crate) fn open_admin<B, F, Fut, E>(open: F) -> Open
where
    B: LockAdmin,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, E>> + Send + 'static,
    E: Into<StoreError>,
{
    let open = open_admin_at(move |()| open());
    Arc::new(move |()| open(()))
}

/// Takes the types off a function that opens a backend with tools for operators, by what it is told.
pub(crate) fn open_admin_at<A, B, F, Fut, E>(open: F) -> Hook<A, Opened>
where
    A: 'static,
    B: LockAdmin,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, E>> + Send + 'static,
    E: Into<StoreError>,
{
    Arc::new(move |argument| {
        let opening = open(argument);
        Box::pin(async move {
            let admin: Arc<dyn LockAdmin> = Arc::new(opening.await.map_err(Into::into)?);
            Ok(Opened {
                backend: admin.clone(),
                admin: Some(admin),
            })
        })
    })
}

/// Takes the types off a hook.
pub(crate) fn hook<A, T, F, Fut, E>(hook: F) -> Hook<A, T>
where
    A: 'static,
    T: 'static,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    E: Into<StoreError>,
{
    Arc::new(move |argument| {
        let doing = hook(argument);
        Box::pin(async move { doing.await.map_err(Into::into) })
    })
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("name", &self.name)
            .field("forget", &self.forget.is_some())
            .field("disposable", &self.disposable.is_some())
            .field("linked", &self.linked.is_some())
            .field("server", &self.server.is_some())
            .finish_non_exhaustive()
    }
}
