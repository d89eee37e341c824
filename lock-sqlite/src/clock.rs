//! The clock that leases are counted on: the time since the machine started, the same for all its processes.
//!
//! Nobody sets it, so that no step of the wall clock frees a lock or keeps one. It goes on in suspend, and starts
//! again with the machine, which is why every lease is stored with the id of the boot that it counts in.

use std::time::{Duration, SystemTime};

use distlock_api::micros;
use distlock_api::{Error, ErrorKind, Result, clock};

/// This boot of this machine.
#[derive(Debug)]
pub(crate) struct Clock {
    boot_id: String,
    /// How far this process' time namespace is ahead of the machine's, in nanoseconds.
    ahead: i128,
}

/// One reading. What is to be decided by it must have been read from the file before, or be kept from changing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    pub(crate) boot_id: &'a str,
    boot: Duration,
    wall: Duration,
}

impl Clock {
    /// # Errors
    ///
    /// `Unsupported` where the system does not tell one boot from another.
    pub(crate) fn new() -> Result<Self> {
        let (boot_id, ahead) = system::boot()?;
        Ok(Self { boot_id, ahead })
    }

    pub(crate) fn now(&self) -> Now<'_> {
        let nanos = i128::try_from(clock::boot_time().as_nanos()).unwrap_or(i128::MAX);
        let nanos = u64::try_from(nanos - self.ahead).unwrap_or(0);
        Now {
            boot_id: &self.boot_id,
            boot: Duration::from_nanos(nanos),
            wall: clock::wall()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }
}

impl Now<'_> {
    /// Microseconds since the boot, rounded down: nothing is over before its time.
    pub(crate) fn boot(&self) -> i64 {
        whole_micros(self.boot)
    }

    /// Microseconds since the boot a while from now, rounded up: no lease is short.
    pub(crate) fn boot_after(&self, duration: Duration) -> i64 {
        micros::up(self.boot.saturating_add(duration))
    }

    /// Microseconds since 1970: for people, and for the fencing counter.
    pub(crate) fn wall(&self) -> i64 {
        whole_micros(self.wall)
    }

    /// Microseconds since 1970 a while from now.
    pub(crate) fn wall_after(&self, duration: Duration) -> i64 {
        micros::up(self.wall.saturating_add(duration))
    }
}

fn whole_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use super::{Error, ErrorKind, Result};

    pub(super) fn boot() -> Result<(String, i128)> {
        let boot_id = read("/proc/sys/kernel/random/boot_id")?;
        // A process that has left its time namespace for its children only reads their offsets here.
        let namespace = |which| std::fs::read_link(format!("/proc/self/ns/{which}")).ok();
        if namespace("time") != namespace("time_for_children") {
            return Err(unsupported(
                "this process is about to change its time namespace",
            ));
        }
        let ahead = match std::fs::read_to_string("/proc/self/timens_offsets") {
            Ok(offsets) => boottime_offset(&offsets)
                .ok_or_else(|| unsupported("/proc/self/timens_offsets has an unknown format"))?,
            // Older kernels have no time namespaces.
            Err(_) => 0,
        };
        Ok((boot_id.trim().to_owned(), ahead))
    }

    fn read(path: &str) -> Result<String> {
        std::fs::read_to_string(path).map_err(|error| unsupported(&format!("{path}: {error}")))
    }

    /// The line `boottime SECONDS NANOSECONDS`, as one number of nanoseconds.
    pub(super) fn boottime_offset(offsets: &str) -> Option<i128> {
        let mut words = offsets
            .lines()
            .map(str::split_whitespace)
            .find_map(|mut words| (words.next() == Some("boottime")).then_some(words))?;
        let mut number = || words.next()?.parse::<i128>().ok();
        Some(number()? * 1_000_000_000 + number()?)
    }

    fn unsupported(why: &str) -> Error {
        Error::new(
            ErrorKind::Unsupported,
            format!("no boot to count leases in can be told here: {why}"),
        )
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use super::{Error, ErrorKind, Result};

    pub(super) fn boot() -> Result<(String, i128)> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "SQLite locks need Linux: other systems do not tell this library one boot from another",
        ))
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn leases_are_rounded_up_and_the_present_down() {
        let now = Now {
            boot_id: "",
            boot: Duration::from_nanos(5_999),
            wall: Duration::ZERO,
        };
        assert_eq!(now.boot(), 5);
        assert_eq!(now.boot_after(Duration::from_nanos(2)), 7);
        assert_eq!(now.boot_after(Duration::MAX), i64::MAX);
    }

    #[test]
    fn a_time_namespace_is_taken_out() {
        let offset = system::boottime_offset;
        assert_eq!(
            offset("monotonic  0  0\nboottime  100000  5\n"),
            Some(100_000_000_000_005)
        );
        assert_eq!(
            offset("monotonic  7  0\nboottime  -2  500000000\n"),
            Some(-1_500_000_000)
        );
        assert_eq!(offset("monotonic 0 0\n"), None);
        let clock = |ahead| Clock {
            boot_id: String::new(),
            ahead,
        };
        let hour = 3_600_000_000_000;
        let apart = clock(-hour).now().boot() - clock(0).now().boot();
        assert!((3_599_000_000..3_601_000_000).contains(&apart), "{apart}");
    }
}
