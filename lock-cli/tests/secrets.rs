//! Passwords: in no output of any command, and nowhere where the command under the lock could find them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::{Done, Store, distlock, finish, for_user, with};
use nix::unistd::geteuid;

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

/// Each verb with the rest, for people and for scripts.
fn commands() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all = Vec::new();
    for command in COMMANDS {
        let (verb, rest) = (command[0], &command[1..]);
        all.push((verb, rest.to_vec()));
        if verb != "run" {
            all.push((verb, [&["--json"], rest].concat()));
        }
    }
    all
}

/// The ways to name a store.
const WAYS: [&str; 3] = ["DISTLOCK_STORE", "--store", "--store-file"];

/// That every command fails on each of these stores and tells nothing of the password, to people and to scripts. The
/// ways to name a store take turns, so that each command has each of them on one of three stores in a row.
fn assert_silent(urls: &[&str]) {
    assert!(urls.len() >= WAYS.len(), "some way would be left out");
    let folder = tempfile::tempdir().unwrap();
    for (turn, url) in urls.iter().enumerate() {
        let file = folder.path().join(turn.to_string());
        std::fs::write(&file, url).unwrap();
        let start = |(nth, (verb, rest)): (usize, (&'static str, Vec<&'static str>))| {
            let mut start = distlock();
            start.arg(verb);
            match WAYS[(turn + nth) % WAYS.len()] {
                "DISTLOCK_STORE" => start.env("DISTLOCK_STORE", url),
                "--store" => start.args(["--store", url]),
                way => start.arg(way).arg(&file),
            };
            start
                .args(rest)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            (verb, start.spawn().unwrap())
        };
        // All at once: what takes long is to wait for the server's refusal.
        let started: Vec<_> = commands().into_iter().enumerate().map(start).collect();
        for (verb, started) in started {
            let done = Done::from(started.wait_with_output().unwrap());
            let code = if verb == "check" { 1 } else { 125 };
            assert_eq!(done.code, Some(code), "{url} {verb}: {done:?}");
            assert!(!done.stdout.contains("canary"), "{url} {verb}: {done:?}");
            assert!(!done.stderr.contains("canary"), "{url} {verb}: {done:?}");
        }
    }
}

#[test]
fn no_command_shows_the_password_of_a_store_that_cannot_be_reached() {
    assert_silent(&[
        "canary",
        "wat://u:canary@127.0.0.1/db",
        "wat://canary@127.0.0.1/db",
        "valkey://canary@127.0.0.1:1",
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
        "sqlite://u:canary@127.0.0.1/db",
        "sqlite://u:can/canary@127.0.0.1/db",
        "sqlite://u:12?canary@127.0.0.1/db",
    ]);
}

on_each_server!(no_command_shows_a_wrong_password);

fn no_command_shows_a_wrong_password(store: &Store) {
    let wrong = for_user(&store.url, "nobody:canary");
    let unknown = with(&store.url, "lock_tabel=canary");
    assert_silent(&[&wrong, &wrong, &wrong, &unknown]);
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

/// Not even of the parent, where it stands in the environment: only root could.
#[test]
fn the_command_cannot_read_the_password_of_its_parents_variable() {
    let store = Store::postgres();
    let url = with(&store.url, "application_name=canary");
    let script = "tr '\\0' '\\n' < /proc/$$/environ; cat /proc/$PPID/environ || echo refused";
    let mut run = store.run_with(
        as_anybody(&store),
        &["--at-most", "9s"],
        &["sh", "-c", script],
    );
    let done = finish(run.env("DISTLOCK_STORE", url));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("DISTLOCK_FENCING_TOKEN="), "{done:?}");
    assert!(done.stdout.ends_with("refused\n"), "{done:?}");
    assert!(!done.stdout.contains("canary"), "{done:?}");
}

/// The program as a user who is not root, and who may read the program's file wherever the tests were built.
fn as_anybody(store: &Store) -> Command {
    if !geteuid().is_root() {
        return distlock();
    }
    let program = store.path("distlock");
    fs::copy(env!("CARGO_BIN_EXE_distlock"), &program).unwrap();
    for path in [store.folder.path(), program.as_ref()] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    setpriv.arg(program).current_dir("/");
    common::clean(setpriv)
}
