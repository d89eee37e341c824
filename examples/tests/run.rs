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

/// A store's URL, and the folder that it may need.
struct Store(String, Option<tempfile::TempDir>);

fn sqlite() -> Store {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    Store(
        format!("sqlite://{}?mode=rwc", file.display()),
        Some(folder),
    )
}

fn postgres() -> Store {
    Store(server("DISTLOCK_TEST_POSTGRES_URL"), None)
}

fn mysql() -> Store {
    Store(server("DISTLOCK_TEST_MYSQL_URL"), None)
}

fn mariadb() -> Store {
    Store(server("DISTLOCK_TEST_MARIADB_URL"), None)
}

fn redis() -> Store {
    Store(server("DISTLOCK_TEST_REDIS_URL"), None)
}

fn a_stale_holder_is_refused(store: &str) {
    let output = run(env!("CARGO_BIN_EXE_fencing"), store);
    assert_eq!(output, "quick writes: Admitted\nslow is refused: true\n");
}

/// The same example on each store.
macro_rules! on_each_store {
    ($check:ident: $($test:ident on $store:ident,)+) => {
        $(#[test]
        fn $test() {
            let Store(url, _folder) = $store();
            $check(&url);
        })+
    };
}

on_each_store! {
    each_planned_time_ran_once:
    scheduled_job_on_sqlite on sqlite,
    scheduled_job_on_postgres on postgres,
    scheduled_job_on_mysql on mysql,
    scheduled_job_on_mariadb on mariadb,
    scheduled_job_on_redis on redis,
}

on_each_store! {
    a_stale_holder_is_refused:
    fencing_on_sqlite on sqlite,
    fencing_on_postgres on postgres,
    fencing_on_mysql on mysql,
    fencing_on_mariadb on mariadb,
    fencing_on_redis on redis,
}

#[test]
fn migration_guard() {
    let Store(url, _) = postgres();
    let output = run(env!("CARGO_BIN_EXE_migration_guard"), &url);
    let lines = |end: &str| output.lines().filter(|line| line.ends_with(end)).count();
    assert_eq!(
        (lines("applied it"), lines("found it done")),
        (1, 2),
        "{output}"
    );
}

#[test]
fn request_path() {
    let Store(url, _) = redis();
    let output = run(env!("CARGO_BIN_EXE_request_path"), &url);
    assert_eq!(output.trim(), "sold 10, left 0");
}

#[test]
fn own_pool() {
    let Store(url, _) = postgres();
    let output = run(env!("CARGO_BIN_EXE_own_pool"), &url);
    assert!(output.starts_with("sum 55 under Some("), "{output}");
    assert!(output.trim().ends_with("Released"), "{output}");
}
