//! Leases that are renewed, on each store, and stores that are down.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(
    clippy::disallowed_methods,
    reason = "it waits for a process that is frozen, in real time"
)]

mod common;

use std::time::Duration;

use common::{Running, Session, Store, assert_one_line, distlock, finish, is_alive, kill_pid};
use distlock::clock::Instant;
use nix::sys::signal::Signal;

on_each_store!(
    a_command_that_outlasts_its_lease_keeps_the_lock,
    the_lock_of_a_killed_wrapper_is_free_after_the_lease,
    a_command_whose_lock_was_taken_away_is_killed,
    at_most_bounds_a_lease_that_is_renewed,
);

const LEASE: Duration = Duration::from_secs(6);

/// A lease of that length. A slow machine has from a third of it to half a second before its end to renew it.
const RENEWED: [&str; 4] = ["--watchdog", "6s", "-k", "500ms"];

fn a_command_that_outlasts_its_lease_keeps_the_lock(store: &Store) {
    let script = "echo started; sleep 7; echo late; cat";
    let mut holder = Running::start(store.run(&RENEWED, &["sh", "-c", script]));
    assert_eq!(holder.line(), "started");
    let refused = finish(&mut store.run(&["-E", "75"], &["true"]));
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert_eq!(holder.line(), "late");
    let refused = finish(&mut store.run(&["-E", "75"], &["true"]));
    assert_eq!(refused.code, Some(75), "{refused:?}");
    let done = holder.finish();
    assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done:?}");
    let next = finish(&mut store.run(&["-E", "75"], &["true"]));
    assert_eq!(next.code, Some(0), "{next:?}");
}

/// (C1)
fn the_lock_of_a_killed_wrapper_is_free_after_the_lease(store: &Store) {
    let start = Instant::now();
    let script = "echo $$; exec sleep 1000";
    let mut holder = Running::start(store.run(&RENEWED, &["sh", "-c", script]));
    let child: i32 = holder.line().parse().unwrap();
    holder.wrapper.kill().unwrap();
    holder.wrapper.wait().unwrap();
    assert!(is_alive(child), "the child lives on, as is documented");
    let next = store.run_when_free(&["echo", "ours"]);
    let elapsed = start.elapsed();
    kill_pid(child);
    assert_eq!(next.stdout, "ours\n", "{next:?}");
    assert!(elapsed >= LEASE, "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(40), "{elapsed:?}");
}

fn a_command_whose_lock_was_taken_away_is_killed(store: &Store) {
    let script = "trap '' TERM; echo started; sleep 1000 & wait; wait";
    let options = [&RENEWED[..], &["--at-most", "60s"]].concat();
    let mut holder = Running::start(store.run(&options, &["sh", "-c", script]));
    assert_eq!(holder.line(), "started");
    let freed = finish(&mut store.command(&["release", "--force", "--", &store.name()]));
    assert_eq!(freed.code, Some(0), "{freed:?}");
    let done = holder.finish();
    assert_eq!(done.code, Some(124), "{done:?}");
    assert_one_line(
        &done,
        "the store has the lease no longer; the command was stopped\n",
    );
}

fn at_most_bounds_a_lease_that_is_renewed(store: &Store) {
    let start = Instant::now();
    let options = [&RENEWED[..], &["--at-most", "8s"]].concat();
    let done = finish(&mut store.run(&options, &["sleep", "1000"]));
    let elapsed = start.elapsed();
    assert_eq!(done.code, Some(124), "{done:?}");
    assert_one_line(
        &done,
        "its time was up; the command was stopped (of --at-most 8s it has 7s 500ms, the rest is --kill-after)\n",
    );
    // 1 % of the lease, 2 ms and the store's granularity are given away.
    assert!(elapsed >= Duration::from_millis(7400), "{elapsed:?}");
}

/// Whoever writes to the file keeps all others from it: renewals fail until that is over, which is when TERM has come.
#[test]
fn a_lease_that_is_renewed_after_term_gives_no_more_time() {
    let store = Store::sqlite();
    let script = "exec 2>&-; trap 'echo term' TERM; echo started; while :; do sleep 0.05; done";
    let mut holder = Running::start(store.run(&["--watchdog", "9s"], &["sh", "-c", script]));
    assert_eq!(holder.line(), "started");
    let mut writer = Session::connect(&store.url);
    writer.run("BEGIN IMMEDIATE");
    assert_eq!(holder.line(), "term");
    writer.run("COMMIT");
    let done = holder.finish();
    assert_eq!(done.code, Some(124), "{done:?}");
    assert_one_line(&done, "the lease could not be renewed ");
    let next = finish(&mut store.run(&["-E", "75"], &["true"]));
    assert_eq!(next.code, Some(0), "{next:?}");
}

/// The store cannot be written to when the command ends, and somebody has no time to wait for it.
#[test]
fn a_signal_ends_the_wait_for_a_release() {
    let store = Store::sqlite();
    let script = "echo started; read line; echo ended; exit 3";
    let mut command = store.run(&["--watchdog", "60s"], &["sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    let mut holder = Running::start(command);
    assert_eq!(holder.line(), "started");
    let mut writer = Session::connect(&store.url);
    writer.run("BEGIN IMMEDIATE");
    drop(holder.wrapper.stdin.take());
    assert_eq!(holder.line(), "ended");
    // The command is gone when its group is: only distlock is left to hear it.
    std::thread::sleep(Duration::from_millis(500));
    holder.signal(Signal::SIGTERM);
    let done = holder.finish();
    writer.run("COMMIT");
    assert_eq!(done.code, Some(3), "{done:?}");
    assert_one_line(&done, "SIGTERM came before the store had answered");
}

/// (C4) The end of the command is what distlock sees first, however late it wakes up.
#[test]
fn a_command_that_ended_while_distlock_was_frozen_gives_its_own_code() {
    let store = Store::sqlite();
    let script = "echo started; sleep 0.2; exit 5";
    let options = ["--at-most", "9s", "--kill-after", "8s"];
    let mut holder = Running::start(store.run(&options, &["sh", "-c", script]));
    assert_eq!(holder.line(), "started");
    holder.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(2));
    holder.signal(Signal::SIGCONT);
    let done = holder.finish();
    assert_eq!(done.code, Some(5), "{done:?}");
}

const DOWN: &str = "redis://127.0.0.1:1";

fn with_a_store_that_is_down(options: &[&str]) -> common::Done {
    let script = "echo ran ${DISTLOCK_FENCING_TOKEN-without} ${DISTLOCK_OWNER-nobody}; exit 3";
    let mut command = distlock();
    command
        .env("DISTLOCK_FENCING_TOKEN", "7")
        .env("DISTLOCK_OWNER", "outer")
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
    assert_eq!(
        (done.code, &*done.stdout),
        (Some(3), "ran without nobody\n")
    );
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

/// Whoever writes to the file keeps all others from it.
#[test]
fn a_store_that_is_busy_is_no_store_that_is_down() {
    let store = Store::sqlite();
    let mut writer = Session::connect(&store.url);
    writer.run("BEGIN IMMEDIATE");
    for choice in ["skip", "run"] {
        let done = finish(&mut store.run(&["--if-unavailable", choice], &["echo", "ran"]));
        assert_eq!((done.code, &*done.stdout), (Some(125), ""), "{done:?}");
    }
}
