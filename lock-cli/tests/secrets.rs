//! Passwords: in no output of any command, and nowhere where the command under the lock could find them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Store, distlock, finish, for_user, with};

/// Every command that is given a store.
const COMMANDS: [&[&str]; 8] = [
    &["run", "--name", "n", "--at-most", "9s", "--", "echo", "ran"],
    &["list"],
    &["show", "n"],
    &["release", "n"],
    &["release", "n", "--force"],
    &["check"],
    &["migrate"],
    &["purge", "--older-than", "1h"],
];

/// That every command fails on this store, whichever way it is named, and tells nothing of the password.
fn assert_silent(url: &str, folder: &Store) {
    let file = folder.path("store-url");
    std::fs::write(&file, url).unwrap();
    for command in COMMANDS {
        for json in [false, true]
            .into_iter()
            .filter(|json| !json || command[0] != "run")
        {
            let (verb, rest) = command.split_first().unwrap();
            let start = |options: &[&str]| {
                let mut start = distlock();
                start.arg(verb).args(json.then_some("--json"));
                start.args(options).args(rest);
                start
            };
            for done in [
                finish(start(&[]).env("DISTLOCK_STORE", url)),
                finish(&mut start(&["--store-file", &file])),
                finish(&mut start(&["--store", url])),
            ] {
                let code = if *verb == "check" { 1 } else { 125 };
                assert_eq!(done.code, Some(code), "{url} {verb}: {done:?}");
                assert!(!done.stdout.contains("canary"), "{url} {verb}: {done:?}");
                assert!(!done.stderr.contains("canary"), "{url} {verb}: {done:?}");
            }
        }
    }
}

#[test]
fn no_command_shows_the_password_of_a_store_that_cannot_be_reached() {
    let folder = Store::sqlite();
    for url in [
        "canary",
        "wat://u:canary@127.0.0.1/db",
        "memory:canary",
        "postgres://u:canary@127.0.0.1:1/db?password=canary",
        "postgres://u:canary/x@127.0.0.1:1/db",
        "postgres://u:12#canary@127.0.0.1:1/db",
        "redis://u:canary@127.0.0.1:1",
        "redis://:canary@127.0.0.1:1/0",
        "rediss://u:canary@127.0.0.1:1",
        "mysql://u:canary@127.0.0.1:1/db",
        "mysql://u:canary/x@127.0.0.1:1/db",
        "mariadb://u:canary@127.0.0.1:1/db?password=canary",
    ] {
        assert_silent(url, &folder);
    }
}

#[test]
fn no_command_shows_a_wrong_password() {
    let (postgres, redis) = (Store::postgres(), Store::redis());
    assert_silent(&for_user(&postgres.url, "nobody:canary"), &postgres);
    assert_silent(&with(&postgres.url, "lock_tabel=canary"), &postgres);
    assert_silent(&for_user(&redis.url, "nobody:canary"), &redis);
}

/// The command, what it starts, and whoever looks at the machine's processes.
#[test]
fn no_process_has_the_password_of_a_store_file() {
    let store = Store::postgres();
    let url = with(&store.url, "application_name=canary");
    let file = store.path("store-url");
    std::fs::write(&file, &url).unwrap();
    let script = "for process in $$ $PPID; do tr '\\0' '\\n' < /proc/$process/cmdline; done
                  tr '\\0' '\\n' < /proc/$$/environ; ls -l /proc/$$/fd";
    let mut run = distlock();
    run.args(["run", "--store-file", &file, "--at-most", "9s"]);
    run.args(["--name", &store.name(), "--", "sh", "-c", script]);
    let done = finish(&mut run);
    assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done:?}");
    assert!(done.stdout.contains("--store-file"), "{done:?}");
    assert!(done.stdout.contains("DISTLOCK_FENCING_TOKEN="), "{done:?}");
    assert!(!done.stdout.contains("canary"), "{done:?}");
    assert!(!done.stdout.contains("postgres://"), "{done:?}");
    let opened = done.stdout.lines().filter(|line| line.contains(" -> "));
    let sockets = opened.filter(|line| line.contains("socket:")).count();
    assert_eq!(sockets, 0, "a connection was handed on: {done:?}");
}
