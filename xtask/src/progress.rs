//! What the user sees while waiting. On stderr: stdout belongs to the tests' own output.

use std::fmt::Display;

pub(crate) use distlock_test_servers::Stopwatch;

pub(crate) fn say(line: impl Display) {
    eprintln!("xtask: {line}");
}
