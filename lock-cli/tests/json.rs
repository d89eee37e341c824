//! `--json`: a script can tell what happened, whatever happened.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::File;
use std::process::Stdio;

use common::{Done, Store, distlock, finish, for_user, with};
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

/// Whoever cannot read the answer must not think that nothing was done.
#[test]
fn an_answer_that_cannot_be_printed_is_told_with_the_error() {
    for option in [None, Some("--json")] {
        let mut store = Store::sqlite();
        store.url = with(&store.url, "lock_table=new");
        for (command, effect, answer) in [
            (&["migrate"][..], "done", "made what was missing"),
            (&["migrate"], "none", "nothing to do"),
            (&["release", "n"], "none", "\"n\" is not held"),
            (&["release", "n", "--force"], "done", "freed \"n\", which "),
            (
                &["purge", "--older-than", "1ms"],
                "done",
                "deleted 1 record ",
            ),
            (
                &["purge", "--older-than", "1ms"],
                "none",
                "deleted no record ",
            ),
        ] {
            if command.contains(&"--force") {
                let run = ["run", "--name=n", "--at-most=60s", "--at-least=50s"];
                let done = finish(store.command(&run).args(["--", "true"]));
                assert_eq!(done.code, Some(0), "{done:?}");
            }
            let full = File::options().write(true).open("/dev/full").unwrap();
            let mut start = store.command(command);
            let start = start.args(option).stdout(full).stderr(Stdio::piped());
            let done = start.spawn().unwrap().wait_with_output().unwrap().into();
            let said = match option {
                Some(_) => {
                    let error = error(&done);
                    assert_eq!(error["effect"], effect, "{command:?}: {error}");
                    error["text"].as_str().unwrap().to_owned()
                }
                None => done.stderr,
            };
            assert_eq!(done.code, Some(125), "{said}");
            let begins = said.contains("cannot write to stdout: No space left");
            assert!(begins && said.contains(answer), "{command:?}: {said}");
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
