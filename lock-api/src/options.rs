//! Ranges and defaults, each once, and the options of a lock.

use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::Instant;
use crate::engine::Deadline;
use crate::{Capabilities, Error, ErrorKind, Hold, LockName, Result, Scope};

/// The shortest lease: 10 ms. A shorter one would be over before its holder could count on it.
pub const MIN_LEASE: Duration = Duration::from_millis(10);

/// The longest lease: 3650 days.
pub const MAX_LEASE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// The shortest `at_least_for`: 1 ms.
pub const MIN_AT_LEAST: Duration = Duration::from_millis(1);

/// How long one call to the store may take, unless a backend was told otherwise: 5 s.
pub const OPERATION_LIMIT: Duration = Duration::from_secs(5);

/// How long a connection of a backend's own may be idle and still be used again: 30 s. Firewalls and balancers forget
/// idle connections without telling either end, some after a minute.
pub const MAX_IDLE: Duration = Duration::from_secs(30);

/// The longest owner text, in bytes.
pub const MAX_OWNER_BYTES: usize = 255;

/// How much the holder's clock and the server's may differ in rate: 1 in 100.
pub const DRIFT: u32 = 100;

/// What a deadline gives away besides [`DRIFT`]: 2 ms.
pub const DEADLINE_MARGIN: Duration = Duration::from_millis(2);

/// How long a watchdog's lease lasts unless it is told otherwise: 30 s.
pub const WATCHDOG_TTL: Duration = Duration::from_secs(30);

/// The shortest lease of a watchdog: 300 ms. A shorter one would leave no time to try again.
pub const MIN_WATCHDOG_TTL: Duration = Duration::from_millis(300);

/// A watchdog renews after this part of its lease.
pub(crate) const RENEWALS_PER_LEASE: u32 = 3;

/// How long a renewal may at least take, however little is left.
pub(crate) const SHORTEST_TRY: Duration = Duration::from_millis(100);

/// How a lock is to be taken. Durations only, never instants: one value serves any number of acquisitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockOptions {
    pub(crate) at_most_for: Option<Duration>,
    pub(crate) watchdog: Option<Duration>,
    pub(crate) at_least_for: Option<Duration>,
    pub(crate) owner: Option<String>,
    pub(crate) tick: Option<i64>,
    pub(crate) fail_open: bool,
    pub(crate) cooperative: bool,
}

/// How a watchdog keeps a lease alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepAlive {
    /// How long each renewal is for.
    pub(crate) ttl: Duration,
    /// How long the hold may last in all.
    pub(crate) at_most: Option<Duration>,
}

/// Options that were found good for a backend.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// How the lease is kept alive; `None` where it needs no renewal.
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) at_least: Duration,
    pub(crate) owner: String,
    pub(crate) tick: Option<i64>,
}

impl LockOptions {
    /// Checks everything that can be checked without I/O.
    pub(crate) fn validate(&self, capabilities: &Capabilities) -> Result<Terms> {
        let at_most = in_range("at_most_for", self.at_most_for, MIN_LEASE)?;
        let watchdog = in_range("the watchdog's ttl", self.watchdog, MIN_WATCHDOG_TTL)?;
        let at_least = in_range("at_least_for", self.at_least_for, MIN_AT_LEAST)?;
        let at_least = at_least.unwrap_or(Duration::ZERO);
        let most = at_most.unwrap_or(MAX_LEASE);
        if at_least > most {
            return Err(invalid(format!(
                "at_least_for ({at_least:?}) is longer than at_most_for ({most:?}): make it shorter"
            )));
        }
        let lease = match (at_most, watchdog) {
            (_, Some(ttl)) if ttl > most => {
                return Err(invalid(format!(
                    "the watchdog's ttl ({ttl:?}) is longer than at_most_for ({most:?}): make it shorter, or leave the watchdog out"
                )));
            }
            (_, Some(ttl)) => ttl.max(at_least),
            (None, None) if capabilities.scope != Scope::Process => {
                return Err(invalid(format!(
                    "neither at_most_for nor a watchdog: say how long a holder that died may keep the lock on {}",
                    capabilities.backend
                )));
            }
            (_, None) => most,
        };
        let keep_alive = watchdog.filter(|_| lease < most);
        if self.tick.is_some() && !capabilities.ticks {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{} grants no ticks: leave the tick out",
                    capabilities.backend
                ),
            ));
        }
        Ok(Terms {
            lease,
            keep_alive: keep_alive.map(|ttl| KeepAlive { ttl, at_most }),
            at_least,
            owner: match &self.owner {
                Some(owner) => check_owner(owner)?.to_owned(),
                None => default_owner().to_owned(),
            },
            tick: self.tick,
        })
    }
}

impl LockOptions {
    /// What a job has that runs although no lock could be had; for options that were found good.
    pub(crate) fn without_lock(&self, name: LockName) -> Hold {
        let owner = self.owner.as_deref().unwrap_or(default_owner());
        let most = self.at_most_for.unwrap_or(MAX_LEASE);
        let deadline = Deadline::new(Instant::now(), most, Duration::ZERO);
        Hold::without_lock(name, owner.to_owned(), deadline)
    }
}

fn in_range(option: &str, value: Option<Duration>, least: Duration) -> Result<Option<Duration>> {
    let Some(value) = value else {
        return Ok(None);
    };
    if value < least {
        return Err(invalid(format!(
            "{option} of {value:?} is too short: at least {least:?}"
        )));
    }
    if value > MAX_LEASE {
        return Err(invalid(format!(
            "{option} of {} s is too long: at most 3650 days",
            value.as_secs()
        )));
    }
    Ok(Some(value))
}

fn check_owner(owner: &str) -> Result<&str> {
    if owner.is_empty() || owner.len() > MAX_OWNER_BYTES || owner.chars().any(char::is_control) {
        return Err(invalid(format!(
            "the owner \"{}\" is no good: 1 to {MAX_OWNER_BYTES} bytes without control characters",
            owner.escape_debug()
        )));
    }
    Ok(owner)
}

/// `host/pid` of this process.
pub(crate) fn default_owner() -> &'static str {
    static OWNER: OnceLock<String> = OnceLock::new();
    OWNER.get_or_init(|| {
        let mut host = host_name();
        host.retain(|c| !c.is_control());
        host.truncate(host.floor_char_boundary(MAX_OWNER_BYTES - 12));
        format!("{host}/{}", std::process::id())
    })
}

#[cfg(unix)]
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOption, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: LockOptions) -> String {
        let error = options.validate(&Capabilities::new("test")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        error.to_string()
    }

    fn at_most(at_most: Duration) -> LockOptions {
        LockOptions {
            at_most_for: Some(at_most),
            ..LockOptions::default()
        }
    }

    #[test]
    fn durations_out_of_range_are_refused_without_io() {
        for (duration, reason) in [
            (Duration::ZERO, "too short"),
            (Duration::from_micros(999), "too short"),
            (Duration::from_millis(1), "too short"),
            (MAX_LEASE + Duration::from_nanos(1), "too long"),
            (Duration::MAX, "too long"),
        ] {
            let text = refused(at_most(duration));
            assert!(text.contains(reason), "{text}");
            let mut options = at_most(MAX_LEASE);
            options.at_least_for = Some(duration);
            if duration != Duration::from_millis(1) {
                let text = refused(options);
                assert!(text.contains(reason), "{text}");
            }
        }
    }

    #[test]
    fn at_least_may_not_pass_at_most() {
        let mut options = at_most(Duration::from_secs(1));
        options.at_least_for = Some(Duration::from_secs(1));
        assert!(options.validate(&Capabilities::new("test")).is_ok());
        options.at_least_for = Some(Duration::from_millis(1001));
        assert!(refused(options).contains("longer than at_most_for"));
    }

    #[test]
    fn at_most_may_be_left_out_only_where_locks_end_with_the_process() {
        assert!(refused(LockOptions::default()).contains("neither at_most_for nor a watchdog"));
        let mut memory = Capabilities::new("memory");
        memory.scope = Scope::Process;
        let terms = LockOptions::default().validate(&memory).unwrap();
        assert_eq!(terms.lease, MAX_LEASE);
    }

    #[test]
    fn a_watchdogs_lease_is_its_ttl_or_at_least_for_and_is_renewed_up_to_at_most_for() {
        let second = Duration::from_secs(1);
        let terms = |most: Option<u32>, ttl: u32, least: Option<u32>| {
            let options = LockOptions {
                at_most_for: most.map(|n| n * second),
                watchdog: Some(ttl * second),
                at_least_for: least.map(|n| n * second),
                ..LockOptions::default()
            };
            let terms = options.validate(&Capabilities::new("test")).unwrap();
            (terms.lease, terms.keep_alive)
        };
        let at_most = Some(9 * second);
        let ttl = 3 * second;
        for (terms, lease, keep_alive) in [
            (
                terms(None, 3, None),
                3,
                Some(KeepAlive { ttl, at_most: None }),
            ),
            (terms(Some(9), 3, None), 3, Some(KeepAlive { ttl, at_most })),
            (
                terms(Some(9), 3, Some(5)),
                5,
                Some(KeepAlive { ttl, at_most }),
            ),
            (terms(Some(9), 3, Some(9)), 9, None),
            (terms(Some(3), 3, None), 3, None),
        ] {
            assert_eq!(terms, (lease * second, keep_alive));
        }
    }

    #[test]
    fn a_watchdog_must_fit_the_bound_and_have_time_to_try_again() {
        let with = |ttl| LockOptions {
            watchdog: Some(ttl),
            ..at_most(Duration::from_secs(1))
        };
        assert!(refused(with(Duration::from_secs(2))).contains("longer than at_most_for"));
        assert!(refused(with(Duration::from_millis(299))).contains("too short"));
    }

    #[test]
    fn owners_are_checked_and_have_a_default() {
        for owner in ["", "a\nb", &"x".repeat(256)] {
            let mut options = at_most(MIN_LEASE);
            options.owner = Some(owner.to_owned());
            assert!(refused(options).contains("owner"));
        }
        let id = std::process::id().to_string();
        assert_eq!(default_owner().rsplit('/').next(), Some(id.as_str()));
    }

    #[test]
    fn a_tick_needs_a_backend_that_knows_ticks() {
        let mut options = at_most(MIN_LEASE);
        options.tick = Some(1);
        let mut capabilities = Capabilities::new("test");
        capabilities.ticks = false;
        let error = options.validate(&capabilities).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
