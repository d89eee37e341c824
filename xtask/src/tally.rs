//! The sum of all `test result:` lines of a run.

use std::fmt;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Adds a summary line as libtest and libtest-mimic print it; any other line changes nothing.
    pub(crate) fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in counts.split(['.', ';']) {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += count(number),
                Some((number, "failed")) => self.failed += count(number),
                Some((number, "ignored")) => self.skipped += count(number),
                _ => {}
            }
        }
    }
}

fn count(number: &str) -> u64 {
    number.parse().unwrap_or(0)
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(lines: &[&str]) -> String {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line));
        tally.to_string()
    }

    #[test]
    fn sums_over_all_programs() {
        let lines = [
            "running 5 tests",
            "test a ... ok",
            "test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.10s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ];
        assert_eq!(sum(&lines), "7 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn colours_do_not_matter() {
        let line = "test result: \u{1b}[32mok\u{1b}[m. 4 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!(sum(&[line]), "4 passed, 0 failed");
    }

    #[test]
    fn only_a_line_that_starts_so_counts() {
        assert_eq!(
            sum(&["its test result: ok. 4 passed"]),
            "0 passed, 0 failed"
        );
    }
}
