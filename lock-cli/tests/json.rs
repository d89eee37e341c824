//! `--json`: a script can tell what happened, whatever happened.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Done, Store, distlock, finish, for_user};
use serde_json::{Value, json};

const COMMANDS: [&[&str]; 5] = [
    &["list"],
    &["show", "n"],
    &["release", "n", "--force"],
    &["migrate"],
    &["purge", "--older-than", "1h"],
];

/// The error, which is one line on stderr, with nothing on stdout.
fn error(done: &Done) -> Value {
    assert_eq!((done.code, &*done.stdout), (Some(125), ""), "{done:?}");
    assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    let told: Value = serde_json::from_str(&done.stderr).unwrap();
    assert!(told["error"]["text"].is_string(), "{told}");
    told["error"].clone()
}

#[test]
fn an_error_tells_its_kind_and_whether_it_may_have_been_done() {
    let denied = for_user(&Store::redis().url, "nobody:canary");
    for (url, kind, retryable) in [
        ("redis://127.0.0.1:1", "unavailable", true),
        (&denied, "denied", false),
        ("sqlite:///nowhere/at/all.db", "config", false),
    ] {
        for command in COMMANDS {
            let mut start = distlock();
            start.env("DISTLOCK_STORE", url).args(command).arg("--json");
            let error = error(&finish(&mut start));
            assert_eq!(error["kind"], kind, "{command:?}: {error}");
            assert_eq!(error["effect"], "none", "{command:?}: {error}");
            assert_eq!(error["retryable"], retryable, "{command:?}: {error}");
        }
    }
}

#[test]
fn wrong_usage_is_json_too_and_has_no_kind() {
    for args in [
        &["list", "--json", "--wat"][..],
        &["show", "--json"],
        &["release", "--json", "a\nb"],
        &["check", "--json", "--store", ""],
        &["--json"],
    ] {
        let error = error(&finish(distlock().args(args)));
        let nothing = json!(null);
        assert_eq!(error["kind"], nothing, "{error}");
        assert_eq!(error["effect"], nothing, "{error}");
    }
}

/// What stands after -- is no option.
#[test]
fn without_the_option_an_error_is_text() {
    let show = ["show", "--store", "redis://127.0.0.1:1", "--", "--json"];
    let done = finish(distlock().args(show));
    assert!(done.stderr.starts_with("distlock: redis "), "{done:?}");
}
