//! `release`: a lock is freed whoever holds it, and never by mistake.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{
    Done, HOLD, Running, Store, assert_one_line, assert_refused, distlock, finish, is_alive,
};
use serde_json::json;

on_each_store!(
    without_force_the_holder_keeps_it_and_is_named,
    what_it_says_to_type_frees_the_lock_and_stops_nobody,
    a_lock_under_another_fence_is_left_alone,
    a_resting_lock_is_freed,
    a_lock_that_nobody_has_is_no_failure,
    scripts_are_told_what_came_of_it,
);

/// A holder, and its fencing token.
fn hold(store: &Store) -> (Running, u64) {
    let mut holder = Running::start(store.run(&["--at-most", "60s"], &HOLD));
    let fence = holder.line().parse().expect("granted");
    (holder, fence)
}

fn release(store: &Store, options: &[&str]) -> Done {
    finish(store.command(&["release", &store.name()]).args(options))
}

fn is_held(store: &Store, fence: u64) -> bool {
    let shown = store.json(&["show", &store.name()], 0);
    shown["state"] == "held" && shown["fencing_token"] == fence
}

fn without_force_the_holder_keeps_it_and_is_named(store: &Store) {
    let (holder, fence) = hold(store);
    let done = release(store, &[]);
    assert_eq!((done.code, &*done.stdout), (Some(1), ""), "{done:?}");
    let owner = format!("/{} until 2", holder.wrapper.id());
    assert_one_line(&done, &owner);
    for part in [&*store.name(), " left", "would not be stopped"] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    let advice = format!(
        ": distlock release --force --only-if {fence} -- {}\n",
        store.name()
    );
    assert!(done.stderr.ends_with(&advice), "{done:?}");
    assert!(is_held(store, fence));
}

fn what_it_says_to_type_frees_the_lock_and_stops_nobody(store: &Store) {
    let script = "echo $DISTLOCK_FENCING_TOKEN; echo $$; cat";
    let mut holder = Running::start(store.run(&["--at-most", "60s"], &["sh", "-c", script]));
    let fence = holder.line();
    let child = holder.line().parse().unwrap();
    let done = release(store, &["--force", "--only-if", &fence]);
    assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done:?}");
    let owner = format!("/{} had", holder.wrapper.id());
    assert!(done.stdout.contains(&owner), "{done:?}");
    assert!(done.stdout.contains("was not stopped"), "{done:?}");

    let (next, later) = hold(store);
    assert!(later > fence.parse().unwrap(), "{later} after {fence}");
    assert!(is_alive(child));
    let lost = holder.finish();
    assert_one_line(&lost, "was lost before the command ended, now held by ");
    assert_eq!(next.finish().stderr, "", "the lock was taken from the next");
}

fn a_lock_under_another_fence_is_left_alone(store: &Store) {
    let (_holder, fence) = hold(store);
    for other in [0, fence - 1, fence + 1, u64::MAX].map(|fence| fence.to_string()) {
        for options in [
            &["--only-if", &other][..],
            &["--force", "--only-if", &other],
        ] {
            let done = release(store, options);
            assert_eq!((done.code, &*done.stdout), (Some(1), ""), "{done:?}");
            assert_one_line(&done, &format!("is held under {fence}, "));
            assert!(is_held(store, fence), "{options:?}");
        }
    }
}

fn a_resting_lock_is_freed(store: &Store) {
    let rest = ["--at-most", "60s", "--at-least", "50s"];
    assert_eq!(finish(&mut store.run(&rest, &["true"])).code, Some(0));
    let done = release(store, &[]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_one_line(&done, "is resting after a run of ");
    assert_eq!(release(store, &["--force"]).code, Some(0));
    let next = finish(&mut store.run(&["--at-most", "60s", "-E", "75"], &["true"]));
    assert_eq!(next.code, Some(0), "{next:?}");
}

fn a_lock_that_nobody_has_is_no_failure(store: &Store) {
    for run_first in [false, true] {
        if run_first {
            finish(&mut store.run(&["--at-most", "60s"], &["true"]));
        }
        for options in [&[][..], &["--force"], &["--force", "--only-if", "7"]] {
            let done = release(store, options);
            assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done:?}");
            let said = format!("\"{}\" is not held, and nothing was changed", store.name());
            assert!(done.stdout.starts_with(&said), "{done:?}");
        }
    }
}

fn scripts_are_told_what_came_of_it(store: &Store) {
    let (holder, fence) = hold(store);
    let name = store.name();
    let owner = store.json(&["show", &name], 0)["owner"].clone();
    let other = (fence + 1).to_string();
    for (options, code, outcome, owner, fence) in [
        (&[][..], 1, "needs_force", owner.clone(), json!(fence)),
        (
            &["--force", "--only-if", &other],
            1,
            "other_fence",
            json!(null),
            json!(fence),
        ),
        (&["--force"], 0, "freed", owner, json!(null)),
        (&["--force"], 0, "not_held", json!(null), json!(null)),
    ] {
        let answer = store.json(&[&["release", &name], options].concat(), code);
        let expected =
            json!({"name": name, "outcome": outcome, "owner": owner, "fencing_token": fence});
        assert_eq!(answer, expected);
    }
    drop(holder);
}

#[test]
fn a_name_that_looks_like_an_option_goes_after_two_dashes() {
    let store = Store::sqlite();
    let run = ["run", "--name=-x", "--at-most", "60s", "--", "true"];
    assert_eq!(finish(&mut store.command(&run)).code, Some(0));
    let done = finish(&mut store.command(&["release", "-x"]));
    assert_refused(
        &done,
        "a name or a command that begins with - goes after --",
    );
    let done = finish(&mut store.command(&["release", "--force", "--", "-x"]));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("\"-x\""), "{done:?}");
}

/// Whatever the name, as the shell reads it.
#[test]
fn what_it_says_to_type_is_a_command() {
    let store = Store::sqlite();
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_distlock")).parent();
    let path = format!("{}:/usr/bin:/bin", folder.unwrap().display());
    for name in ["-z", "--force", "it's a $HOME `x` \\ \"y\"", "jöb", "a#b;c"] {
        let name_option = format!("--name={name}");
        let run = ["run", &name_option, "--at-most", "60s", "--at-least", "50s"];
        let done = finish(store.command(&run).args(["--", "true"]));
        assert_eq!(done.code, Some(0), "{done:?}");
        let done = finish(&mut store.command(&["release", "--", name]));
        assert_eq!(done.code, Some(1), "{done:?}");
        let (_, advice) = done.stderr.rsplit_once("and: ").unwrap();
        let mut shell = common::clean(std::process::Command::new("sh"));
        shell.env("PATH", &path).env("DISTLOCK_STORE", &store.url);
        let done = finish(shell.args(["-c", advice]));
        assert_eq!(done.code, Some(0), "{advice}: {done:?}");
        assert!(done.stdout.starts_with("freed "), "{advice}: {done:?}");
    }
}

#[test]
fn a_fencing_token_is_a_whole_number() {
    for token in ["", "x", "-1", "1.5", "18446744073709551616"] {
        let option = format!("--only-if={token}");
        let release = ["release", "n", "--force", &option, "--store", "memory:"];
        let done = finish(distlock().args(release));
        assert_refused(&done, "not a fencing token");
    }
}
