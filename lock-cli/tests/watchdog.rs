//! Leases that are renewed, on each store, and stores that are down.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::{Running, Store, assert_one_line, distlock, finish, is_alive, kill_pid};
use distlock::clock::Instant;

on_each_store!(
    a_command_that_outlasts_its_lease_keeps_the_lock,
    the_lock_of_a_killed_wrapper_is_free_after_the_lease,
    a_command_whose_lock_was_taken_away_is_killed,
    at_most_bounds_a_lease_that_is_renewed,
);

fn a_command_that_outlasts_its_lease_keeps_the_lock(store: &Store) {
    let script = "echo started; sleep 4; echo done";
    let mut holder = Running::start(store.run(&["--watchdog", "1500ms"], &["sh", "-c", script]));
    assert_eq!(holder.line(), "started");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3500) {
        let other = finish(&mut store.run(&["-E", "75"], &["true"]));
        assert!(
            start.elapsed() >= Duration::from_secs(4) || other.code == Some(75),
            "{other:?}"
        );
    }
    let done = holder.finish();
    assert_eq!((done.code, &*done.stdout), (Some(0), "done\n"), "{done:?}");
    assert_eq!(
        finish(&mut store.run(&["-E", "75"], &["true"])).code,
        Some(0)
    );
}

/// (C1)
fn the_lock_of_a_killed_wrapper_is_free_after_the_lease(store: &Store) {
    let script = "echo $$; exec sleep 1000";
    let mut holder = Running::start(store.run(&["--watchdog", "3s"], &["sh", "-c", script]));
    let child: i32 = holder.line().parse().unwrap();
    let start = Instant::now();
    holder.wrapper.kill().unwrap();
    holder.wrapper.wait().unwrap();
    assert!(is_alive(child), "the child lives on, as is documented");
    let next = store.run_when_free(&["echo", "ours"]);
    let elapsed = start.elapsed();
    kill_pid(child);
    assert_eq!(next.stdout, "ours\n", "{next:?}");
    assert!(elapsed < Duration::from_secs(15), "{elapsed:?}");
}

fn a_command_whose_lock_was_taken_away_is_killed(store: &Store) {
    let script = "trap '' TERM; echo started; sleep 1000 & wait; wait";
    let mut holder = Running::start(store.run(&["--watchdog", "1500ms"], &["sh", "-c", script]));
    assert_eq!(holder.line(), "started");
    let freed = finish(&mut store.command(&["release", "--force", "--", &store.name()]));
    assert_eq!(freed.code, Some(0), "{freed:?}");
    let done = holder.finish();
    assert_eq!(done.code, Some(124), "{done:?}");
    assert!(done.stderr.contains("the command was stopped"), "{done:?}");
}

fn at_most_bounds_a_lease_that_is_renewed(store: &Store) {
    let start = Instant::now();
    let options = ["--watchdog", "1500ms", "--at-most", "4s"];
    let done = finish(&mut store.run(&options, &["sleep", "1000"]));
    assert_eq!(done.code, Some(124), "{done:?}");
    assert!(
        start.elapsed() >= Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

const DOWN: &str = "redis://127.0.0.1:1";

fn with_a_store_that_is_down(options: &[&str]) -> common::Done {
    let script = "echo ran ${DISTLOCK_FENCING_TOKEN-without}; exit 3";
    let mut command = distlock();
    command
        .env("DISTLOCK_FENCING_TOKEN", "7")
        .args(["run", "--store", DOWN, "--name", "n", "-E", "75"])
        .args(options)
        .args(["--", "sh", "-c", script]);
    finish(&mut command)
}

#[test]
fn a_store_that_is_down_fails_the_run_unless_it_was_chosen_otherwise() {
    for options in [&[][..], &["--if-unavailable", "fail"]] {
        let done = with_a_store_that_is_down(options);
        assert_eq!((done.code, &*done.stdout), (Some(125), ""), "{done:?}");
    }
    let skipped = with_a_store_that_is_down(&["--if-unavailable", "skip"]);
    assert_eq!((skipped.code, &*skipped.stdout), (Some(75), ""));
    assert_one_line(&skipped, "because the store is down");
}

#[test]
fn a_command_may_run_without_the_lock_and_sees_that_it_has_none() {
    let done = with_a_store_that_is_down(&["--if-unavailable", "run"]);
    assert_eq!((done.code, &*done.stdout), (Some(3), "ran without\n"));
    assert_one_line(&done, "running without the lock");
}

#[test]
fn a_wrong_set_up_is_no_store_that_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/missing.db", folder.path().display());
    let mut command = distlock();
    command
        .args([
            "run",
            "--store",
            &url,
            "--name",
            "n",
            "--if-unavailable",
            "run",
        ])
        .args(["--", "echo", "ran"]);
    let done = finish(&mut command);
    assert_eq!((done.code, &*done.stdout), (Some(125), ""), "{done:?}");
}
