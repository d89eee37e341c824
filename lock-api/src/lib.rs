//! The contract of the distlock family: the backend traits, the engine above them, and the memory backend.
//!
//! Services use the facade crate `distlock`, which re-exports all of this. Whoever writes a store starts here, with
//! [`LockBackend`]: three methods and its [`Capabilities`]. [`MemoryBackend`] is the reference of what each method
//! does, and `distlock-conformance` the suite of rules that every backend is held to.
//!
//! # Words
//!
//! - A **lock name** is what is locked: [`LockName`].
//! - A **lease** is the store's promise that nobody else gets the lock before an instant on the store's clock.
//! - `at_most_for` is the upper bound of a hold: the lock frees itself then, whatever became of its holder.
//! - `at_least_for` is the lower bound: a job that ends early leaves its lock **resting** until then.
//! - A **token** names one acquisition: [`Token`]. Release and renew act only where the stored token is this one.
//! - A **fencing token** is a number that grows with every grant of a name: [`FencingToken`].
//! - A **tick** is an `i64` that names one planned run of a job; a grant for it is given once.
//! - The **deadline** is the moment from which a holder no longer counts itself as holding, whatever anybody says. It is
//!   never later than the end of the lease on the store.
//!
//! # Who does what
//!
//! A backend decides, on its store's clock, who has a lock. Everything else is the engine's: limits, deadlines, clean-up
//! of attempts that were dropped or got no answer, releases in the background, shutdown. Users see [`Locks`], [`Lock`],
//! [`Guard`] and [`Outcome`], and no backend implements those.

pub mod clock;
pub mod connections;
pub mod exchange;
pub mod fencing;
pub mod leases;
pub mod micros;
pub mod options;

mod backend;
mod capabilities;
mod engine;
mod error;
mod fenced;
mod finding;
mod guard;
mod hold;
mod locks;
mod memory;
mod name;
mod sync;
mod token;

pub use backend::{
    AcquireRequest, Attempt, ForceRelease, Held, LeaseId, LockAdmin, LockBackend, LockRecord,
    LockState, Release, Renewal,
};
pub use capabilities::{Capabilities, Scope};
pub use error::{Effect, Error, ErrorKind, Operation, Result};
pub use fenced::{Admission, Fenced, FencedGuard, StaleToken};
pub use finding::{Finding, Findings, Severity};
pub use guard::Guard;
pub use hold::{Hold, Loss};
pub use locks::{Acquisition, Lock, Locks, Outcome};
pub use memory::MemoryBackend;
pub use name::LockName;
pub use token::{FencingToken, Token};
