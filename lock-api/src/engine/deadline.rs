use std::time::Duration;

use crate::clock::Instant;
use crate::options::{DEADLINE_MARGIN, DRIFT};

/// Until when a holder may count itself as holding: `t0 + lease·(1 − ρ) − margin − granularity`.
///
/// `t0` is read before the request leaves, and ρ allows for clocks that differ in rate, so that the deadline is never
/// later than the end of the lease on the server. The rule is that of Gray and Cheriton,
/// [Leases](https://doi.org/10.1145/74851.74870) (1989), section 2, with a bound on the rate in place of one on the
/// clocks' difference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    t0: Instant,
    valid_for: Duration,
}

impl Deadline {
    pub(crate) fn new(t0: Instant, lease: Duration, granularity: Duration) -> Self {
        let given_away = lease / DRIFT + DEADLINE_MARGIN + granularity;
        Self {
            t0,
            valid_for: lease.saturating_sub(given_away),
        }
    }

    /// What is left, from the clock; zero when it is over.
    pub(crate) fn remaining(&self) -> Duration {
        self.valid_for.saturating_sub(self.t0.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_deadline_gives_rate_margin_and_granularity_away() {
        let deadline = Deadline::new(Instant::now(), 10 * SECOND, Duration::from_millis(1));
        let left = deadline.remaining();
        assert!(left <= Duration::from_millis(9_897), "{left:?}");
        assert!(left >= Duration::from_millis(9_000), "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_counts_from_before_the_request_left() {
        let t0 = Instant::now();
        clock::sleep(4 * SECOND).await;
        let left = Deadline::new(t0, 10 * SECOND, Duration::ZERO).remaining();
        assert!(left <= Duration::from_millis(5_898), "{left:?}");
        clock::sleep(6 * SECOND).await;
        let left = Deadline::new(t0, 10 * SECOND, Duration::ZERO).remaining();
        assert_eq!(left, Duration::ZERO);
    }

    #[test]
    fn the_shortest_lease_has_a_deadline_and_shorter_ones_none() {
        let t0 = Instant::now();
        let shortest = Deadline::new(t0, crate::options::MIN_LEASE, Duration::from_millis(1));
        assert!(shortest.valid_for >= Duration::from_millis(6));
        let none = Deadline::new(t0, Duration::from_millis(2), Duration::from_millis(1));
        assert_eq!(none.valid_for, Duration::ZERO);
    }
}
