//! `check`: what keeps a store from being used is told, with what to do about it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Psql, Store, distlock, finish, for_user, send_to_redis, with};
use serde_json::Value;

on_each_store!(a_store_that_works_has_no_fault);

/// Test servers may be set up in ways that are worth a warning.
fn a_store_that_works_has_no_fault(store: &Store) {
    let report = store.json(&["check"], 0);
    assert_eq!(report["usable"], true, "{report}");
    let backend = match store.url.split(':').next().unwrap() {
        "mariadb" => "mysql",
        scheme => scheme,
    };
    assert_eq!(report["backend"], backend);
    let findings = report["findings"].as_array().unwrap();
    for finding in findings {
        assert_eq!(finding["severity"], "warning", "{report}");
        assert!(finding["fix"].is_string(), "{report}");
    }
    let done = finish(&mut store.command(&["check"]));
    assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done:?}");
    let shown = report["store"].as_str().unwrap();
    assert!(done.stdout.starts_with(&format!("store: {shown}\nkind:  ")));
    let warnings = done.stdout.matches("\nwarning: ").count();
    assert_eq!(warnings, findings.len(), "{done:?}");
    let strict = finish(&mut store.command(&["check", "--strict"]));
    let code = if findings.is_empty() { 0 } else { 1 };
    assert_eq!(strict.code, Some(code), "{strict:?}");
}

/// Checks a store that nobody can use: a fault of this kind is told to people and to scripts, and no password.
fn assert_fault(url: &str, kind: &str, part: &str) {
    let check = |option: &str| {
        let mut check = distlock();
        let done = finish(check.env("DISTLOCK_STORE", url).args(["check", option]));
        assert_eq!((done.code, &*done.stderr), (Some(1), ""), "{done:?}");
        assert!(!done.stdout.contains("canary"), "{done:?}");
        done.stdout
    };
    let report: Value = serde_json::from_str(&check("--json")).unwrap();
    assert_eq!(report["usable"], false, "{report}");
    let findings = report["findings"].as_array().unwrap();
    let is_it = |found: &&Value| found["severity"] == "fault" && found["kind"] == kind;
    let found = findings.iter().find(is_it).expect(kind);
    assert!(found.to_string().contains(part), "{part}: {report}");
    let text = check("--strict");
    assert!(text.contains("\nfault: "), "{text}");
    assert!(text.contains(part), "{part}: {text}");
    assert!(text.ends_with(": no lock can be had.\n"), "{text}");
}

#[test]
fn stores_that_cannot_be_reached_or_entered() {
    let (postgres, redis) = (Store::postgres().url, Store::redis().url);
    let wrong = "nobody:canary";
    for (url, kind, part) in [
        (
            "postgres://u:canary@127.0.0.1:1/db",
            "unavailable",
            "127.0.0.1",
        ),
        ("redis://u:canary@127.0.0.1:1", "unavailable", "127.0.0.1"),
        (
            "sqlite:///nowhere/at/all.db",
            "config",
            "/nowhere/at/all.db",
        ),
        ("wat://u:canary@127.0.0.1/db", "config", "wat"),
        ("postgres://u:can/ary@h/db", "config", ""),
        (&for_user(&postgres, wrong), "denied", "nobody"),
        (&for_user(&redis, wrong), "denied", ""),
    ] {
        assert_fault(url, kind, part);
    }
}

#[test]
fn a_table_that_is_missing_wrong_or_closed_to_us() {
    let store = Store::postgres();
    let unique = store.identifier();
    let mut psql = Psql::connect(&store.url);
    psql.send(&format!(
        "CREATE TABLE {unique} (name text PRIMARY KEY, lock_until timestamp);
         CREATE ROLE {unique} LOGIN PASSWORD 'canary'; GRANT SELECT ON distlock_locks TO {unique};
         SELECT 'done' AS x \\g (format=unaligned)\n"
    ));
    psql.expect("done");
    let missing = with(&store.url, "lock_table=not_there");
    assert_fault(&missing, "schema_missing", "distlock migrate");
    let wrong = with(&store.url, &format!("lock_table={unique}"));
    assert_fault(&wrong, "config", "lock_until");
    let closed = for_user(&store.url, &format!("{unique}:canary"));
    assert_fault(&closed, "denied", "GRANT ");
    psql.send(&format!(
        "DROP TABLE {unique}; DROP OWNED BY {unique}; DROP ROLE {unique};
         SELECT 'gone' AS x \\g (format=unaligned)\n"
    ));
    psql.expect("gone");
}

#[test]
fn a_redis_that_lets_us_in_and_do_nothing() {
    let store = Store::redis();
    let user = store.identifier();
    let rights = format!("ACL SETUSER {user} on >canary ~* -@all +ping +hello +auth +client");
    assert_eq!(send_to_redis(&store.url, &rights), "+OK\r\n");
    let url = for_user(&store.url, &format!("{user}:canary"));
    assert_fault(&url, "denied", "");
    assert_eq!(
        send_to_redis(&store.url, &format!("ACL DELUSER {user}")),
        ":1\r\n"
    );
}

#[test]
fn the_default_store_is_named() {
    let home = tempfile::tempdir().unwrap();
    let done = finish(distlock().env("HOME", home.path()).arg("check"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let file = home.path().join(".local/state/distlock/locks.db");
    let store = format!("store: sqlite://{}\n", file.display());
    assert!(done.stdout.starts_with(&store), "{done:?}");
}
