//! The local clock, in one place.
//!
//! Every measured time is the longer of what tokio's clock and the operating system's boot-time clock say: tokio's so
//! that tests may pause it, the boot-time clock because it goes on while the machine is suspended. Nothing here reads
//! the wall clock but [`wall`], which is for display and for stores that have no clock of their own.

use std::future::Future;
use std::time::{Duration, SystemTime};

/// A moment on the local clock. It only goes forward, suspend included.
#[derive(Clone, Copy, Debug)]
pub struct Instant {
    tokio: tokio::time::Instant,
    boot: Duration,
}

impl Instant {
    /// The present moment.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that reads the clocks"
    )]
    pub fn now() -> Self {
        Self {
            tokio: tokio::time::Instant::now(),
            boot: boot_time(),
        }
    }

    /// How long ago this was. Zero for a moment that is not past.
    pub fn elapsed(&self) -> Duration {
        Self::now().since(self)
    }

    /// The time from an earlier moment to this one; zero if it was not earlier.
    pub fn since(&self, earlier: &Self) -> Duration {
        let tokio = self.tokio.saturating_duration_since(earlier.tokio);
        tokio.max(self.boot.saturating_sub(earlier.boot))
    }
}

/// Time since the machine started, suspend included.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn boot_time() -> Duration {
    read(rustix::time::ClockId::Boottime)
}

/// Time on a clock that only goes forward. On macOS it goes on in suspend, as the boot-time clock of Linux does.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub fn boot_time() -> Duration {
    read(rustix::time::ClockId::Monotonic)
}

/// No boot-time clock is read on this system: a suspend is seen as far as tokio's clock sees it.
#[cfg(not(unix))]
pub fn boot_time() -> Duration {
    Duration::ZERO
}

#[cfg(unix)]
fn read(clock: rustix::time::ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    Duration::new(
        now.tv_sec.try_into().unwrap_or(0),
        now.tv_nsec.try_into().unwrap_or(0),
    )
}

/// The wall clock: for display, and for the fencing counters of stores without a server.
#[allow(
    clippy::disallowed_methods,
    reason = "the one place that reads the clocks"
)]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Waits until this much time has passed, suspend included.
///
/// Looks at the clock again after at most a second or a tenth of the time, so that a suspend is noticed.
///
/// # Cancel safety
///
/// Safe: a dropped wait has no effect.
#[cfg(not(shuttle))]
#[allow(clippy::disallowed_methods, reason = "the one place that sleeps")]
pub async fn sleep(duration: Duration) {
    let start = Instant::now();
    let slice = (duration / 10).clamp(Duration::from_millis(1), Duration::from_secs(1));
    loop {
        let left = duration.saturating_sub(start.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(slice)).await;
    }
}

/// In the tests of races no time passes: whoever counts on it, and not on being woken, waits for ever.
#[cfg(shuttle)]
#[allow(missing_docs, reason = "not a part of what is published")]
pub async fn sleep(_: Duration) {
    std::future::pending().await
}

/// The future's output, or `None` if it takes longer than the limit, in which case it is dropped unless it was lent.
///
/// # Cancel safety
///
/// That of the future.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = sleep(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_time_moves_the_clock() {
        let start = Instant::now();
        sleep(Duration::from_secs(3600)).await;
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_secs(3600), "{elapsed:?}");
        assert!(elapsed < Duration::from_secs(3602), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_none() {
        let forever = std::future::pending::<()>();
        assert_eq!(timeout(Duration::from_secs(5), forever).await, None);
        assert_eq!(timeout(Duration::from_secs(5), async { 7 }).await, Some(7));
    }

    #[test]
    fn the_boot_clock_counts_where_tokio_stands_still() {
        let now = Instant::now();
        let before_suspend = Instant {
            boot: now.boot.saturating_sub(Duration::from_secs(60)),
            ..now
        };
        assert!(now.since(&before_suspend) >= Duration::from_secs(60));
        assert_eq!(before_suspend.since(&now), Duration::ZERO);
    }
}
