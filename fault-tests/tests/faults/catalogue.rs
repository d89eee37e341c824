//! What a fault is, what a test of it is, and what can be seen.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::{ErrorKind, clock};
use libtest_mimic::Failed;
use tokio::runtime;

use crate::ground::{Ground, Templates};

/// What goes wrong.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Where it stands in the catalogue of cases.
    pub(crate) cases: &'static str,
    /// In words, as the page shows it.
    pub(crate) words: &'static str,
    /// The assumptions of leases that it breaks.
    pub(crate) breaks: &'static [Assumption],
}

/// What leases rest on. That the holder's clock goes on while the holder does not is an assumption, too, which nothing here
/// can break.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Assumption {
    /// The clocks of holder and store run at the same rate.
    Rate,
    /// The same; broken in such a way that the holder's deadline comes too early.
    RateToTheSafeSide,
    /// The store's clock is not stepped forward.
    Step,
    /// The store forgets no lease that it granted.
    Memory,
    /// Everybody asks the same store.
    Authority,
}

impl Assumption {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::RateToTheSafeSide => "rate, to the safe side",
            Self::Step => "step",
            Self::Memory => "memory",
            Self::Authority => "authority",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Postgres,
    MariaDb,
    Redis,
}

impl Store {
    pub(crate) const ALL: &'static [Self] = &[Self::Postgres, Self::MariaDb, Self::Redis];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::Redis => "redis",
        }
    }
}

/// What became of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its holder kept it, and nobody else got it.
    Held,
    /// Its holder was told of its loss in time, and then others got it.
    Told,
    /// A call failed, and said so by this kind; nobody got the lock by it.
    Error(ErrorKind),
    /// Two held it at once, and the resource refused the one with the smaller fencing token.
    TwoHolders,
    /// Two held it at once, and the later one had no greater fencing token.
    TwoHoldersUnfenced,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Told => f.write_str("told"),
            Self::Error(kind) => write!(f, "error {kind}"),
            Self::TwoHolders => f.write_str("two holders, fence refuses"),
            Self::TwoHoldersUnfenced => f.write_str("two holders, fence does not tell"),
        }
    }
}

/// A fault on a store, and the test of what is seen then.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) fault: &'static Fault,
    pub(crate) store: Store,
    /// As `freeze::within_the_lease`.
    pub(crate) test: &'static str,
    run: Run,
}

/// How long a test may take, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(300);

type Run = Arc<dyn Fn(Ground) -> Pin<Box<dyn Future<Output = Seen>>> + Send + Sync>;

impl Case {
    pub(crate) fn name(&self) -> String {
        format!("{}::{}", self.test, self.store.as_str())
    }

    /// In a runtime of its own, whose servers end with the thread.
    pub(crate) fn run(&self, templates: &Arc<Templates>) -> Result<Seen, Failed> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let ground = Ground::new(self.store, Arc::clone(templates));
        let run = AssertUnwindSafe(|| {
            let seen = clock::timeout(LIMIT, (self.run)(ground));
            runtime.block_on(seen).expect("no end of it")
        });
        catch_unwind(run).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Failed::from(text.unwrap_or_default())
        })
    }
}

/// All of them, in the order of the page.
#[derive(Default)]
pub(crate) struct Cases {
    pub(crate) list: Vec<Case>,
}

impl Cases {
    /// Adds a test, for each of the stores.
    pub(crate) fn add<T, F>(&mut self, fault: &'static Fault, stores: &[Store], test: T)
    where
        T: Fn(Ground) -> F + Copy + Send + Sync + 'static,
        F: Future<Output = Seen> + 'static,
    {
        let path = type_name::<T>();
        for store in stores {
            self.list.push(Case {
                fault,
                store: *store,
                test: path.split_once("::").map_or(path, |(_, test)| test),
                run: Arc::new(move |ground| Box::pin(test(ground))),
            });
        }
    }
}
