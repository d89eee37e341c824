use std::time::Duration;

/// What a backend claims of itself. Constant for the backend's life, and known without I/O.
///
/// Every claim has a rule in the conformance suite that checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The backend's name, as in URLs, Cargo features and errors: `postgres`.
    pub backend: &'static str,
    /// Who can share a lock.
    pub scope: Scope,
    /// Grants carry a [`FencingToken`](crate::FencingToken).
    pub fencing: bool,
    /// Grants for a tick are given once.
    pub ticks: bool,
    /// The longest lock name in bytes, at most [`LockName::MAX_BYTES`](crate::LockName::MAX_BYTES).
    pub max_name_bytes: usize,
    /// The unit in which the store keeps the end of a lease. Leases are rounded up to it, and deadlines give one
    /// of it away.
    pub granularity: Duration,
    /// Lock statements run on connections of their own, so that a busy pool of the caller cannot hold up a
    /// renewal or a release.
    pub own_connections: bool,
    /// How long one call may take: the engine gives up on it then, and a server is told to give up a little earlier.
    pub operation_limit: Duration,
    /// A free lock's record stays (for history and counters) until it is purged.
    pub keeps_records: bool,
}

/// Who can share a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// The tasks of one process. Locks end with the process, so that `at_most_for` may be left out.
    Process,
    /// The processes of one machine.
    Machine,
    /// Whoever reaches the store.
    Network,
}

impl Capabilities {
    /// The claims of a full backend that is reached over the network; change what differs.
    ///
    /// ```
    /// use distlock_api::{Capabilities, Scope};
    ///
    /// let mut capabilities = Capabilities::new("mystore");
    /// capabilities.scope = Scope::Machine;
    /// capabilities.ticks = false;
    /// ```
    pub const fn new(backend: &'static str) -> Self {
        Self {
            backend,
            scope: Scope::Network,
            fencing: true,
            ticks: true,
            max_name_bytes: crate::LockName::MAX_BYTES,
            granularity: Duration::from_millis(1),
            own_connections: true,
            operation_limit: crate::options::OPERATION_LIMIT,
            keeps_records: true,
        }
    }
}
