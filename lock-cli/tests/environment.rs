//! What the command is given, and which store is used.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Done, Store, assert_refused, distlock, finish, lines_of};
use serde_json::{Value, json};

fn variables(done: &Done) -> Vec<&str> {
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines = done.stdout.lines();
    lines.filter(|line| line.starts_with("DISTLOCK_")).collect()
}

/// (U38)
#[test]
fn the_variables_are_those_of_this_lock_whatever_was_there_before() {
    let store = Store::sqlite();
    let mut run = store.run(&["--at-most", "30s"], &["env"]);
    for variable in ["NAME", "OWNER", "FENCING_TOKEN", "NESTED"] {
        run.env(format!("DISTLOCK_{variable}"), "outer");
    }
    let done = finish(&mut run);
    let variables = variables(&done);
    assert_eq!(variables.len(), 4, "{variables:?}");
    assert!(!done.stdout.contains("=outer"), "{variables:?}");
    assert!(variables.contains(&&*format!("DISTLOCK_NAME={}", store.name())));
    assert!(variables.contains(&"DISTLOCK_NESTED=1"));
    assert!(
        variables
            .iter()
            .any(|line| line.starts_with("DISTLOCK_OWNER=") && line.contains('/'))
    );
    assert!(
        variables
            .iter()
            .any(|line| line.starts_with("DISTLOCK_FENCING_TOKEN="))
    );
}

#[test]
fn the_command_does_not_see_the_stores_url() {
    for store in [Store::sqlite(), Store::postgres(), Store::redis()] {
        let done = finish(&mut store.run(&["--at-most", "30s"], &["env"]));
        assert_eq!(variables(&done).len(), 4, "{done:?}");
        assert!(!done.stdout.contains(&store.url), "{done:?}");
    }
}

#[test]
fn a_nested_run_locks_no_other_store_by_accident() {
    let store = Store::sqlite();
    let program = env!("CARGO_BIN_EXE_distlock");
    let inner = format!("{program} run --name inner --at-most 9s -- echo ran");
    let state = store.path("state");
    let mut run = store.run(&["--at-most", "30s"], &["sh", "-c", &inner]);
    assert_refused(
        &finish(run.env("XDG_STATE_HOME", &state)),
        "another distlock",
    );
    assert!(!Path::new(&state).exists());

    let inner = format!(
        "{program} run --store {} --name inner --at-most 9s -- echo ran",
        store.url
    );
    let done = finish(&mut store.run(&["--at-most", "30s"], &["sh", "-c", &inner]));
    assert_eq!((done.code, &*done.stdout), (Some(0), "ran\n"), "{done:?}");
}

#[test]
fn the_default_store_is_made_on_first_use() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let file = state.join("distlock/locks.db");
    let run = [
        "run",
        "--name",
        "n",
        "--at-most",
        "30s",
        "--",
        "echo",
        "ran",
    ];
    let done = finish(distlock().env("XDG_STATE_HOME", &state).args(run));
    assert_eq!((done.code, &*done.stdout), (Some(0), "ran\n"), "{done:?}");
    let folder = std::fs::metadata(file.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    assert!(file.is_file());
}

#[test]
fn without_a_state_folder_the_default_store_is_below_the_home_folder() {
    let home = tempfile::tempdir().unwrap();
    let done = finish(distlock().env("HOME", home.path()).arg("migrate"));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("made what was missing"), "{done:?}");
    let file = home.path().join(".local/state/distlock/locks.db");
    assert!(file.is_file());
    let done = finish(distlock().env("HOME", home.path()).arg("check"));
    let store = format!("store: sqlite://{}\n", file.display());
    assert!(done.stdout.starts_with(&store), "{done:?}");
}

#[test]
fn twenty_first_uses_at_once_make_one_store() {
    let home = tempfile::tempdir().unwrap();
    let start = |nth: i32| {
        let mut run = distlock();
        run.env("XDG_STATE_HOME", home.path()).stderr(Stdio::null());
        run.args(["run", "--name", &nth.to_string(), "--at-most", "60s"]);
        run.args(["--", "true"]).spawn().unwrap()
    };
    let running: Vec<_> = (0..20).map(start).collect();
    for mut run in running {
        assert_eq!(run.wait().unwrap().code(), Some(0));
    }
    let mut list = distlock();
    let done = finish(
        list.env("XDG_STATE_HOME", home.path())
            .args(["list", "--json"]),
    );
    let listed: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 20, "{listed}");
}

/// What asks or changes a store, and makes none.
const USES: [&[&str]; 7] = [
    &["list"],
    &["show", "n"],
    &["release", "n"],
    &["release", "n", "--force"],
    &["check"],
    &["check", "--strict"],
    &["purge", "--older-than", "1h"],
];

/// A pipeline that has lost the variable must not be told that all is well, or that the lock is free.
#[test]
fn where_no_store_is_named_and_none_was_made_nothing_is_answered() {
    let state = tempfile::tempdir().unwrap();
    for command in USES {
        for option in [None, Some("--json")] {
            let mut start = distlock();
            start.env("XDG_STATE_HOME", state.path()).args(command);
            let done = finish(start.args(option));
            assert_eq!((done.code, &*done.stdout), (Some(125), ""), "{done:?}");
            assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
            let reason = "no store was named, and there is no ";
            assert!(done.stderr.contains(reason), "{command:?}: {done:?}");
            let error = serde_json::from_str::<Value>(&done.stderr);
            assert_eq!(error.is_ok(), option.is_some(), "{done:?}");
            let left = std::fs::read_dir(state.path()).unwrap().count();
            assert_eq!(left, 0, "{command:?} made something");
        }
    }
}

#[test]
fn a_default_file_without_a_table_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().join("distlock");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("locks.db"), "").unwrap();
    let mut list = distlock();
    let done = finish(list.env("XDG_STATE_HOME", state.path()).arg("list"));
    assert_eq!((done.code, &*done.stdout), (Some(125), ""), "{done:?}");
    assert!(done.stderr.contains("distlock migrate"), "{done:?}");
    assert_eq!(lines_of(folder.join("locks.db")), 0);
}

#[test]
fn whatever_uses_the_default_store_says_so() {
    let state = tempfile::tempdir().unwrap();
    let run: &[&str] = &["run", "--name", "n", "--at-most", "9s", "--", "true"];
    let file = state.path().join("distlock/locks.db");
    let notice = format!(
        "no store was named: using {}, for this user on this machine only",
        file.display()
    );
    for command in [run, &["migrate"]].into_iter().chain(USES) {
        let start = |option: Option<&str>| {
            let mut start = distlock();
            start.env("XDG_STATE_HOME", state.path()).args(command);
            let done = finish(start.args(option));
            assert_eq!(done.code, Some(0), "{done:?}");
            done
        };
        let text = start(None).stderr;
        assert_eq!(text, format!("distlock: {notice}\n"), "{command:?}");
        if command != run {
            let told: Value = serde_json::from_str(&start(Some("--json")).stderr).unwrap();
            assert_eq!(told, json!({"notice": {"text": notice}}), "{command:?}");
        }
    }
}

/// What is behind the first line is not read: it may be of any kind, and still to come.
#[test]
fn a_store_file_may_begin_with_a_mark_end_in_anything_and_be_a_pipe() {
    let store = Store::sqlite();
    let program = env!("CARGO_BIN_EXE_distlock");
    for writer in [
        r"printf '\357\273\277%s\r\n' $URL",
        r"printf '%s\n\377\376' $URL",
        "printf %s $URL",
        "echo $URL; cat /dev/zero",
    ] {
        let list = format!("{program} list --json --store-file <({writer} 2> /dev/null)");
        let mut bash = common::clean(Command::new("bash"));
        let done = finish(bash.args(["-c", &list]).env("URL", &store.url));
        assert_eq!((done.code, &*done.stdout), (Some(0), "[]\n"), "{done:?}");
    }
}

#[test]
fn a_store_file_gives_its_first_line() {
    let store = Store::sqlite();
    let file = store.path("store-url");
    std::fs::write(&file, format!("  {}  \nsecond line\n", store.url)).unwrap();
    let done = finish(distlock().args(["list", "--json", "--store-file", &file]));
    assert_eq!((done.code, &*done.stdout), (Some(0), "[]\n"), "{done:?}");

    let long = format!("{}#{}", store.url, "x".repeat(64 << 10));
    for (text, reason) in [
        (&b"\nsecond line\n"[..], "is empty"),
        (b"", "is empty"),
        (b"redis://\xff\n", "its first line is not UTF-8"),
        (long.as_bytes(), "no end within 64 KiB"),
    ] {
        std::fs::write(&file, text).unwrap();
        let done = finish(distlock().args(["list", "--store-file", &file]));
        assert_refused(&done, reason);
    }
    let endless = ["list", "--store-file", "/dev/zero"];
    assert_refused(&finish(distlock().args(endless)), "no end within 64 KiB");
    let missing = store.path("missing");
    let done = finish(distlock().args(["list", "--store-file", &missing]));
    assert_refused(&done, "cannot read --store-file");
}
