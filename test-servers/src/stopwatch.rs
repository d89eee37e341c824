use std::fmt::{self, Display};
use std::time::{Duration, Instant};

/// Shows the time since its start, as `1.2 s` or `3 min 04 s`.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since its start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

impl Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&for_people(self.elapsed()))
    }
}

fn for_people(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_times() {
        assert_eq!(for_people(Duration::from_millis(140)), "0.1 s");
        assert_eq!(for_people(Duration::from_secs(184)), "3 min 04 s");
    }
}
