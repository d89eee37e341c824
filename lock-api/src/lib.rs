//! The contract of the distlock family: the backend traits, the engine above them and the memory backend.

pub mod clock;
pub mod connections;
pub mod options;

mod backend;
mod capabilities;
mod engine;
mod error;
mod guard;
mod locks;
mod memory;
mod name;
mod token;

pub use backend::{
    AcquireRequest, Attempt, ForceRelease, Held, LeaseId, LockAdmin, LockBackend, LockRecord,
    LockState, Release, Renewal,
};
pub use capabilities::{Capabilities, Scope};
pub use error::{Effect, Error, ErrorKind, Operation, Result};
pub use guard::{Guard, Hold, Loss};
pub use locks::{Acquisition, Lock, Locks, Outcome};
pub use memory::MemoryBackend;
pub use name::LockName;
pub use token::{FencingToken, Token};
