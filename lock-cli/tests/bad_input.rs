//! What is refused: exit 125, one line that says what to do, and no lock touched.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Store, assert_refused, distlock, finish, for_user, send_to_redis, sql, with};

/// Runs `distlock run` with these arguments and asserts that it was refused before any lock was touched.
fn assert_no_run(arguments: &[&str], reason: &str) {
    let store = Store::sqlite();
    let mut run = store.command(&["run"]);
    let done = finish(run.args(arguments).args(["--", "echo", "ran"]));
    assert_refused(&done, reason);
    let list = finish(&mut store.command(&["list", "--json"]));
    assert_eq!(list.stdout, "[]\n", "{arguments:?}");
}

/// (K5)
#[test]
fn bad_names() {
    for (name, reason) in [
        ("", "is empty"),
        (&*"x".repeat(256), "too long"),
        (&*"ö".repeat(128), "too long"),
        (" padded", "white space"),
        ("padded ", "white space"),
        ("a\nb", "control character"),
        ("a\x1b[2Jb", "control character"),
    ] {
        assert_no_run(&["--name", name, "--at-most", "9s"], reason);
    }
}

#[test]
fn bad_durations() {
    for (duration, reason) in [
        ("10", "a unit is missing"),
        ("", "a unit is missing"),
        ("1month", "not a duration"),
        ("1y", "not a duration"),
        ("P1M", "not a duration"),
        ("soon", "not a duration"),
        ("0s", "longer than zero"),
        ("1us", "too short"),
        ("9999999h", "too long"),
        ("99999999999999999999h", "not a duration"),
    ] {
        let at_most = format!("--at-most={duration}");
        assert_no_run(&["--name", "n", &at_most], reason);
        let at_least = format!("--at-least={duration}");
        assert_no_run(&["--name", "n", "--at-most", "9s", &at_least], reason);
    }
    assert_no_run(&["--name", "n", "--at-most=-5s"], "negative");
}

#[test]
fn options_that_are_missing_or_do_not_fit() {
    for (arguments, reason) in [
        (&["--at-most", "9s"][..], "--name"),
        (
            &["--name", "n", "--at-most", "1s", "--at-least", "2s"],
            "--at-least is longer",
        ),
        (
            &["--name", "n", "--at-most", "9s", "-k", "9s"],
            "--kill-after may be at most nine tenths",
        ),
        (&["--name", "n", "--at-most", "9s", "-E", "256"], "256"),
        (&["--name", "n", "--at-most", "9s", "-E", "-1"], "-1"),
        (&["--name", "n", "--at-most", "9s", "--wat"], "--wat"),
        (&["--name", "n", "--name", "m", "--at-most", "9s"], "--name"),
        (&["--name", "n", "--at-most", "9s", "echo"], "goes after --"),
    ] {
        assert_no_run(arguments, reason);
    }
}

#[test]
fn commands_that_do_not_exist() {
    for args in [
        &[][..],
        &["wat"],
        &["run"],
        &["show"],
        &["schema"],
        &["schema", "--for", "redis"],
    ] {
        let done = finish(distlock().args(args));
        assert_refused(&done, "try distlock --help");
    }
}

/// None of them is taken for "held", and none shows its password.
#[test]
fn bad_stores() {
    let postgres = Store::postgres().url;
    let redis = Store::redis().url;
    for (url, reason) in [
        ("canary", "scheme"),
        ("mysql://u:canary@127.0.0.1/db", "mysql"),
        ("memory:canary", "memory"),
        ("sqlite:///nowhere/at/all.db", "does not exist"),
        ("postgres://u:canary@127.0.0.1:1/db", "unavailable"),
        ("redis://u:canary@127.0.0.1:1", "unavailable"),
        (&for_user(&postgres, "nobody:canary"), "denied"),
        (&for_user(&redis, "nobody:canary"), "denied"),
        (&with(&postgres, "lock_tabel=canary"), "lock_tabel"),
        (&with(&postgres, "lock_table=not_there"), "distlock migrate"),
    ] {
        let run = ["run", "--name", "n", "--at-most", "9s", "--", "echo", "ran"];
        let done = finish(distlock().env("DISTLOCK_STORE", url).args(run));
        assert_refused(&done, reason);
        assert!(!done.stderr.contains("canary"), "{done:?}");
        assert!(!done.stderr.contains("held"), "{done:?}");
    }
}

/// A table that is not ours, one that we may not write, a key that is no lock: each is told, and none is "held".
#[test]
fn stores_that_are_set_up_wrongly() {
    let (postgres, redis) = (Store::postgres(), Store::redis());
    let unique = postgres.identifier();
    let set_up = format!(
        "CREATE TABLE {unique}_types (name text PRIMARY KEY, lock_until timestamp);
         CREATE ROLE {unique} LOGIN PASSWORD 'canary'; GRANT SELECT ON distlock_locks TO {unique}"
    );
    sql(&postgres.url, &set_up);
    send_to_redis(&redis.url, &format!("LPUSH {unique}:{{n}} x"));
    for (url, reason) in [
        (
            &with(&postgres.url, &format!("lock_table={unique}_types")),
            "lock_until",
        ),
        (
            &for_user(&postgres.url, &format!("{unique}:canary")),
            "UPDATE",
        ),
        (
            &with(&redis.url, &format!("lock_prefix={unique}:")),
            "is no lock",
        ),
    ] {
        let run = ["run", "--name", "n", "--at-most", "9s", "--", "echo", "ran"];
        let done = finish(distlock().env("DISTLOCK_STORE", url).args(run));
        assert_refused(&done, reason);
        assert!(!done.stderr.contains("canary"), "{done:?}");
        assert!(!done.stderr.contains("is held"), "{done:?}");
    }
    send_to_redis(&redis.url, &format!("DEL {unique}:{{n}}"));
    let tidy = format!("DROP TABLE {unique}_types; DROP OWNED BY {unique}; DROP ROLE {unique}");
    sql(&postgres.url, &tidy);
}

#[test]
fn a_url_in_the_wrong_place_is_not_shown() {
    for args in [
        &["postgres://u:canary@h/db"][..],
        &["list", "postgres://u:canary@h/db"],
        &["run", "--name", "n", "--at-most", "9s", "redis://:canary@h"],
        &[
            "list",
            "--store",
            "redis://:canary@h",
            "--store-file",
            "redis://:canary@h",
        ],
        &["list", "--store-file", "redis://:canary@h"],
        &["list", "postgres://u:blank canary@h/db"],
        &["list", "--store", "postgres://u:blank", "canary", "x@h/db"],
    ] {
        let done = finish(distlock().args(args));
        assert_refused(&done, "");
        assert!(!done.stderr.contains("canary"), "{done:?}");
    }
}
