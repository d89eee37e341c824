//! Every example does what it says, on real servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

fn run(program: &str, store: &str) -> String {
    let output = Command::new(program).arg(store).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn server(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test`, or set it"))
}

fn each_planned_time_ran_once(store: &str) {
    let output = run(env!("CARGO_BIN_EXE_scheduled_job"), store);
    let planned = |line: &str| line.split(' ').nth(1).unwrap().to_owned();
    let mut runs: Vec<_> = output.lines().map(planned).collect();
    let all = runs.len();
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), all, "a planned time ran twice:\n{output}");
    assert!(all >= 3, "{output}");
}

#[test]
fn scheduled_job_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    each_planned_time_ran_once(&format!("sqlite://{}?mode=rwc", file.display()));
}

#[test]
fn scheduled_job_on_postgres() {
    each_planned_time_ran_once(&server("DISTLOCK_TEST_POSTGRES_URL"));
}

#[test]
fn scheduled_job_on_redis() {
    each_planned_time_ran_once(&server("DISTLOCK_TEST_REDIS_URL"));
}

#[test]
fn request_path() {
    let output = run(
        env!("CARGO_BIN_EXE_request_path"),
        &server("DISTLOCK_TEST_REDIS_URL"),
    );
    assert_eq!(output.trim(), "sold 10, left 0");
}

#[test]
fn own_pool() {
    let output = run(
        env!("CARGO_BIN_EXE_own_pool"),
        &server("DISTLOCK_TEST_POSTGRES_URL"),
    );
    assert!(output.starts_with("sum 55 under Some("), "{output}");
    assert!(output.trim().ends_with("Released"), "{output}");
}
