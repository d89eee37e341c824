//! Ranges and defaults, each once, and the options of a lock.

use std::sync::OnceLock;
use std::time::Duration;

use crate::{Capabilities, Error, ErrorKind, Result, Scope};

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

/// How a lock is to be taken. Durations only, never instants: one value serves any number of acquisitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockOptions {
    pub(crate) at_most_for: Option<Duration>,
    pub(crate) at_least_for: Option<Duration>,
    pub(crate) owner: Option<String>,
    pub(crate) tick: Option<i64>,
}

/// Options that were found good for a backend.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) at_least: Duration,
    pub(crate) owner: String,
    pub(crate) tick: Option<i64>,
}

impl LockOptions {
    /// Checks everything that can be checked without I/O.
    pub(crate) fn validate(&self, capabilities: &Capabilities) -> Result<Terms> {
        let lease = match self.at_most_for {
            Some(at_most) => in_range("at_most_for", at_most, MIN_LEASE)?,
            None if capabilities.scope == Scope::Process => MAX_LEASE,
            None => {
                return Err(invalid(format!(
                    "at_most_for is missing: say how long a holder that died may keep the lock on {}",
                    capabilities.backend
                )));
            }
        };
        let at_least = match self.at_least_for {
            Some(at_least) => in_range("at_least_for", at_least, MIN_AT_LEAST)?,
            None => Duration::ZERO,
        };
        if at_least > lease {
            return Err(invalid(format!(
                "at_least_for ({at_least:?}) is longer than at_most_for ({lease:?}): make it shorter"
            )));
        }
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
            at_least,
            owner: match &self.owner {
                Some(owner) => check_owner(owner)?.to_owned(),
                None => default_owner().to_owned(),
            },
            tick: self.tick,
        })
    }
}

fn in_range(option: &str, value: Duration, least: Duration) -> Result<Duration> {
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
    Ok(value)
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
        assert!(refused(LockOptions::default()).contains("at_most_for is missing"));
        let mut memory = Capabilities::new("memory");
        memory.scope = Scope::Process;
        let terms = LockOptions::default().validate(&memory).unwrap();
        assert_eq!(terms.lease, MAX_LEASE);
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
