//! How a run ends (K3).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{HOLD, Running, Store, assert_one_line, finish};

#[test]
fn a_command_that_ends_by_itself_gives_its_own_code() {
    let store = Store::sqlite();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 125", 125),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let done = finish(&mut store.run(&["--at-most", "30s"], &["sh", "-c", script]));
        assert_eq!(done.code, Some(code), "{script}: {done:?}");
        assert_eq!(done.stderr, "", "{script}");
    }
}

#[test]
fn a_command_that_cannot_be_started_gives_126_or_127_and_leaves_the_lock_free() {
    let store = Store::sqlite();
    let not_executable = store.path("plain-file");
    std::fs::write(&not_executable, "").unwrap();
    for (command, code, reason) in [
        (&*not_executable, 126, "cannot be executed"),
        ("/", 126, "cannot be executed"),
        ("/nowhere/command", 127, "not found"),
        ("", 127, "not found"),
    ] {
        let done = finish(&mut store.run(&["--at-most", "30s", "-E", "75"], &[command]));
        assert_eq!(done.code, Some(code), "{done:?}");
        assert_one_line(&done, reason);
    }
}

#[test]
fn the_lock_does_not_rest_for_a_command_that_never_ran() {
    let store = Store::sqlite();
    let options = ["--at-most", "60s", "--at-least", "30s", "-E", "75"];
    for (command, code) in [("/nowhere/command", 127), ("/", 126), ("true", 0)] {
        let done = finish(&mut store.run(&options, &[command]));
        assert_eq!(done.code, Some(code), "{done:?}");
    }
}

#[test]
fn a_held_lock_gives_0_or_the_chosen_code_and_says_who_has_it() {
    let store = Store::sqlite();
    let mut holder = Running::start(store.run(&["--at-most", "30s"], &HOLD));
    assert_ne!(holder.line(), "");
    let owner = format!("/{}", holder.wrapper.id());
    for (options, code) in [
        (&["--at-most", "9s"][..], 0),
        (&["--at-most", "9s", "-E", "75"], 75),
        (&["--at-most", "9s", "--conflict-exit-code", "255"], 255),
    ] {
        let done = finish(&mut store.run(options, &["echo", "ran"]));
        assert_eq!(done.code, Some(code), "{done:?}");
        assert_eq!(done.stdout, "", "the command was started");
        assert_one_line(&done, "is held by ");
        for part in [&*store.name(), &owner, "Z (local ", " s left"] {
            assert!(done.stderr.contains(part), "{part}: {done:?}");
        }
    }
}

#[test]
fn a_command_that_is_still_running_when_the_time_is_up_gives_124() {
    let store = Store::sqlite();
    let done = finish(&mut store.run(&["--at-most", "1s"], &["sleep", "1000"]));
    assert_eq!(done.code, Some(124), "{done:?}");
    assert_one_line(
        &done,
        "its time was up; the command was stopped (of --at-most 1s it has 667ms, the rest is --kill-after)",
    );
}

#[test]
fn a_release_that_fails_is_told_and_the_commands_code_stays() {
    let store = Store::sqlite();
    let program = env!("CARGO_BIN_EXE_distlock");
    let lose = format!("rm '{}'*", store.path("locks.db"));
    let forget = format!("{lose}; {program} migrate --store {} >&-", store.url);
    for (script, reason) in [
        (
            lose,
            "may stay held until its lease is over: sqlite release",
        ),
        (forget, "was lost before the command ended"),
    ] {
        let script = format!("{script}; exit 3");
        let done = finish(&mut store.run(&["--at-most", "30s"], &["sh", "-c", &script]));
        assert_eq!(done.code, Some(3), "{done:?}");
        assert_one_line(&done, reason);
        finish(&mut store.command(&["migrate"]));
    }
}

#[test]
fn memory_needs_no_at_most() {
    let run = [
        "run", "--store", "memory:", "--name", "n", "--", "sh", "-c", "exit 4",
    ];
    assert_eq!(finish(common::distlock().args(run)).code, Some(4));
}

#[test]
fn help_and_version_give_0() {
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let done = finish(common::distlock().args(args));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_ne!(done.stdout, "");
    }
}
