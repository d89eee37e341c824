//! The benchmarks work, on every store. What they measure here means nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// One after the other: they would drop each other's tables.
#[test]
fn each_prints_a_row_for_every_store() {
    for verb in ["hold", "held"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distlock-bench"));
        let output = command.args([verb, "--quick"]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{verb}: {}", text(&output.stderr));
        let table = text(&output.stdout);
        for server in ["Redis", "PostgreSQL", "MySQL", "MariaDB", "SQLite"] {
            let rows = table.lines().filter(|line| line.starts_with(server));
            assert_eq!(rows.count(), 1, "{server}:\n{table}");
        }
    }
}
