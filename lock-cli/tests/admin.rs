//! `list`, `show`, `schema` and `migrate`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Running, Store, assert_refused, distlock, finish};
use serde_json::json;

on_each_store!(a_held_lock_is_shown_with_its_holder);

/// (U29, U40)
fn a_held_lock_is_shown_with_its_holder(store: &Store) {
    let script = "echo $DISTLOCK_OWNER; echo $DISTLOCK_FENCING_TOKEN; cat";
    let mut holder = Running::start(store.run(&["--at-most", "60s"], &["sh", "-c", script]));
    let (owner, fence) = (holder.line(), holder.line());
    let name = store.name();

    let text = finish(store.command(&["show", &name]).env("TZ", "UTC-3")).stdout;
    for part in [&*name, "held", &owner, &fence, "Z (local ", "+03:00)", " s"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let shown = store.json(&["show", &name], 0);
    assert_eq!(shown["state"], "held");
    assert_eq!(shown["owner"], *owner);
    assert_eq!(shown["fencing_token"].to_string(), fence);
    let left = shown["remaining_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&left), "{shown}");
    assert!(shown["until"]["utc"].as_str().unwrap().ends_with('Z'));

    let list = store.json(&["list"], 0);
    let list = list.as_array().unwrap();
    let listed = list.iter().find(|lock| lock["name"] == *name).unwrap();
    assert_eq!(listed["owner"], *owner);
    let table = finish(&mut store.command(&["list"])).stdout;
    assert!(table.starts_with("NAME "), "{table}");
    let line = table.lines().find(|line| line.starts_with(&name)).unwrap();
    assert!(line.contains(&owner) && line.ends_with(&fence), "{table}");
}

#[test]
fn a_lock_without_a_record_is_free() {
    let store = Store::sqlite();
    let done = finish(&mut store.command(&["show", "unheard of"]));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("no record"), "{done:?}");
    assert_eq!(store.json(&["show", "unheard of"], 0)["state"], "free");
}

/// A name may hold invisible characters that are no control characters, such as those that turn text around.
#[test]
fn names_hide_nothing() {
    let store = Store::sqlite();
    let run = [
        "run",
        "--name",
        "a\u{202e}b",
        "--at-most",
        "9s",
        "--",
        "true",
    ];
    assert_eq!(finish(&mut store.command(&run)).code, Some(0));
    let table = finish(&mut store.command(&["list"])).stdout;
    assert!(table.contains(r"a\u{202e}b"), "{table}");
}

#[test]
fn schema_prints_sql_for_the_chosen_table() {
    for (args, parts) in [
        (
            &["--for", "sqlite"][..],
            "CREATE TABLE IF NOT EXISTS \"distlock_locks\"",
        ),
        (
            &["--for", "sqlite", "--table", "jobs"],
            "IF NOT EXISTS \"jobs\"",
        ),
        (&["--for", "postgres"], "\"distlock_locks\""),
        (&["--for", "mysql"], "`distlock_locks`"),
        (&["--for", "mariadb", "--table", "j"], "`j`"),
        (
            &["--for", "postgres", "--table", "j", "--schema", "s"],
            "\"s\".\"j\"",
        ),
    ] {
        let done = finish(distlock().arg("schema").args(args));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains(parts), "{done:?}");
    }
    let schema = ["schema", "--for", "sqlite", "--schema", "s"];
    assert_refused(&finish(distlock().args(schema)), "leave --schema out");
    let table = ["schema", "--for", "postgres", "--table", ""];
    assert_refused(&finish(distlock().args(table)), "is empty");
}

#[test]
fn migrate_makes_the_file_and_says_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let url = format!("sqlite://{}", file.display());
    for said in ["made what was missing", "nothing to do"] {
        let done = finish(distlock().args(["migrate", "--store", &url]));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains(said), "{done:?}");
        assert!(file.is_file());
    }
}

#[test]
fn migrate_says_what_it_did_to_scripts_too() {
    let store = Store::sqlite();
    for (lose, outcome) in [(false, "nothing_to_do"), (true, "made")] {
        if lose {
            std::fs::remove_file(store.path("locks.db")).unwrap();
        }
        let migrated = store.json(&["migrate"], 0);
        assert_eq!(migrated, json!({"backend": "sqlite", "outcome": outcome}));
    }
}
