//! `check`: what it says of stores that work, and of which store it speaks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Store, distlock, finish};
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

/// A script gets the store's name as it is, and a terminal nothing that it might obey.
#[test]
fn a_name_with_strange_characters_is_escaped_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/a\u{202e}\"b\\.db", folder.path().display());
    let check = |option| finish(distlock().args(["check", "--store", &url, option])).stdout;
    let report: Value = serde_json::from_str(&check("--json")).unwrap();
    assert_eq!(report["store"], url);
    let text = check("--strict");
    let first = text.lines().next().unwrap();
    assert!(first.ends_with(r#"/a\u{202e}\"b\\.db"#), "{text}");
}
