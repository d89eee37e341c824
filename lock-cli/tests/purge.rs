//! `purge`: the records of locks that have been free for long are deleted, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{HOLD, Running, Store, assert_refused, distlock, finish, sql, with};
use serde_json::json;

fn names(store: &Store) -> Vec<String> {
    let list = store.json(&["list"], 0);
    let names = list.as_array().unwrap().iter();
    names
        .map(|lock| lock["name"].as_str().unwrap().to_owned())
        .collect()
}

fn run(store: &Store, name: &str, options: &[&str]) {
    let run = ["run", "--name", name, "--at-most", "60s"];
    let done = finish(store.command(&run).args(options).args(["--", "true"]));
    assert_eq!(done.code, Some(0), "{done:?}");
}

fn only_what_is_free_for_so_long_is_deleted(store: &Store) {
    let mut holder = Running::start(store.run(&["--at-most", "60s"], &HOLD));
    holder.line();
    run(store, "resting", &["--at-least", "50s"]);
    run(store, "free", &[]);
    run(store, "free too", &[]);
    let purge = |time| store.json(&["purge", "--older-than", time], 0)["deleted"].clone();
    assert_eq!(purge("1h"), 0);
    assert_eq!(names(store).len(), 4);
    assert_eq!(purge("1ms"), 2);
    assert_eq!(names(store), [store.name(), "resting".to_owned()]);
    let none = finish(&mut store.command(&["purge", "--older-than", "1ms"]));
    assert!(none.stdout.contains("deleted no record of"), "{none:?}");
    assert!(!none.stdout.contains("tick"), "nothing went: {none:?}");

    run(store, "free", &[]);
    let done = finish(&mut store.command(&["purge", "--older-than", "1ms"]));
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "deleted 1 record of",
        "free for 1ms",
        "last tick is forgotten",
        "counter",
    ] {
        assert!(done.stdout.contains(part), "{part}: {done:?}");
    }
}

#[test]
fn sqlite() {
    only_what_is_free_for_so_long_is_deleted(&Store::sqlite());
}

#[test]
fn postgres() {
    in_a_table_of_its_own(Store::postgres());
}

#[test]
fn mysql() {
    in_a_table_of_its_own(Store::mysql());
}

#[test]
fn mariadb() {
    in_a_table_of_its_own(Store::mariadb());
}

/// Purging concerns all locks of a table.
fn in_a_table_of_its_own(mut store: Store) {
    let (url, table) = (store.url.clone(), store.identifier());
    store.url = with(&url, &format!("lock_table={table}"));
    assert_eq!(store.json(&["migrate"], 0)["outcome"], "made");
    only_what_is_free_for_so_long_is_deleted(&store);
    sql(&url, &format!("DROP TABLE {table}"));
}

#[test]
fn redis_has_nothing_to_delete() {
    let store = Store::redis();
    run(&store, &store.name(), &[]);
    let purge = ["purge", "--older-than", "1ms"];
    let answer = store.json(&purge, 0);
    assert_eq!(answer, json!({"backend": "redis", "deleted": 0}));
    let done = finish(&mut store.command(&purge));
    assert!(done.stdout.contains("nothing to delete"), "{done:?}");
}

#[test]
fn nobody_purges_without_saying_how_old() {
    let store = Store::sqlite();
    run(&store, "free", &[]);
    for (options, reason) in [
        (&[][..], "--older-than"),
        (&["--older-than", "30"], "a unit is missing"),
        (&["--older-than", "0s"], "longer than zero"),
    ] {
        let done = finish(store.command(&["purge"]).args(options));
        assert_refused(&done, reason);
    }
    assert_eq!(names(&store), ["free"]);
    let purge = ["purge", "--store", "memory:", "--older-than", "9999999h"];
    assert_eq!(finish(distlock().args(purge)).code, Some(0));
}
