//! Times as databases count them: whole microseconds in an `i64`.

use std::time::{Duration, SystemTime};

use crate::options::MAX_LEASE;

/// A duration, rounded up: a lease may be longer than asked for, never shorter. The longest ones give [`i64::MAX`].
pub fn up(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// What a store says is left of a lease. It may have passed since, and is at most what a lease can be: people write
/// `infinity`, or the year 9999.
pub fn remaining(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0)).min(MAX_LEASE)
}

/// An instant, from the microseconds since 1970; `None` for one that this system cannot tell.
pub fn instant(micros: i64) -> Option<SystemTime> {
    let distance = Duration::from_micros(micros.unsigned_abs());
    match micros < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(distance),
        false => SystemTime::UNIX_EPOCH.checked_add(distance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up() {
        assert_eq!(up(Duration::ZERO), 0);
        assert_eq!(up(Duration::from_nanos(1)), 1);
        assert_eq!(up(Duration::from_nanos(1001)), 2);
        assert_eq!(up(Duration::from_micros(7)), 7);
        assert_eq!(up(Duration::MAX), i64::MAX);
    }

    #[test]
    fn what_is_left_is_neither_negative_nor_longer_than_a_lease() {
        assert_eq!(remaining(-1), Duration::ZERO);
        assert_eq!(remaining(7), Duration::from_micros(7));
        assert_eq!(remaining(i64::MAX), MAX_LEASE);
    }

    #[test]
    fn instants_lie_on_both_sides_of_1970() {
        let epoch = SystemTime::UNIX_EPOCH;
        let second = Duration::from_secs(1);
        assert_eq!(instant(1_000_000), Some(epoch + second));
        assert_eq!(instant(-1_000_000), Some(epoch - second));
    }
}
