//! Signals, and the end of the lock's time (K1, U37).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{
    Done, PATIENCE, Running, Session, Store, assert_one_line, distlock, finish, is_alive,
};
use distlock::clock::Instant;
use nix::sys::signal::Signal;

/// The child's child holds stdout open: its end is seen by reading to the end.
#[test]
fn signals_reach_what_the_command_has_started() {
    let store = Store::sqlite();
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
    ] {
        let script = "ulimit -c 0; sh -c 'echo ready; exec sleep 1000'; :";
        // Whatever started the tests may ignore some signals.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_distlock")]);
        let command = store.run_with(command, &["--at-most", "60s"], &["sh", "-c", script]);
        let mut run = Running::start(command);
        assert_eq!(run.line(), "ready");
        run.signal(signal);
        let done = run.finish();
        assert_eq!(done.code, Some(code), "{signal}: {done:?}");
    }
}

#[test]
fn a_command_that_handles_a_signal_gives_its_own_code() {
    let store = Store::sqlite();
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let mut run = Running::start(store.run(&["--at-most", "60s"], &["sh", "-c", script]));
    assert_eq!(run.line(), "ready");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.finish().code, Some(7));
}

#[test]
fn with_foreground_signals_reach_the_command_alone() {
    let store = Store::sqlite();
    let script = "sleep 1000 & echo $!; wait";
    let options = ["--at-most", "60s", "--foreground"];
    let mut run = Running::start(store.run(&options, &["sh", "-c", script]));
    let grandchild: i32 = run.line().parse().unwrap();
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wrapper.wait().unwrap().code(), Some(143));
    assert!(is_alive(grandchild));
    common::kill_pid(grandchild);
}

#[test]
fn term_comes_before_the_end_and_kill_at_the_end_and_nobody_else_holds_before() {
    let store = Store::sqlite();
    let start = Instant::now();
    let script = "exec 2>&-; trap 'echo term' TERM; echo $$; while :; do sleep 0.05; done";
    let options = ["--at-most", "2s", "-k", "500ms"];
    let mut run = Running::start(store.run(&options, &["sh", "-c", script]));
    let child: i32 = run.line().parse().unwrap();
    let check = format!("kill -0 {child} 2>&- && echo alive || echo dead");
    let next = store.run_when_free(&["sh", "-c", &check]);
    assert_eq!(next.stdout, "dead\n", "{next:?}");
    let ended = start.elapsed();
    // 1 % of the lease, 2 ms and the store's granularity are given away.
    assert!(ended >= Duration::from_millis(1970), "{ended:?}");
    let done = run.finish();
    assert_eq!(
        (done.code, &*done.stdout),
        (Some(124), "term\n"),
        "{done:?}"
    );
    assert_one_line(&done, "the command was stopped");
}

#[test]
fn term_comes_as_long_before_the_end_as_was_asked_for() {
    let store = Store::sqlite();
    let start = Instant::now();
    let script = "trap 'echo term; exit 0' TERM; while :; do sleep 0.05; done";
    let options = ["--at-most", "20s", "-k", "18s"];
    let mut run = Running::start(store.run(&options, &["sh", "-c", script]));
    assert_eq!(run.line(), "term");
    let term = start.elapsed();
    assert!(term >= Duration::from_millis(1790), "{term:?}");
    assert!(term < Duration::from_secs(12), "{term:?}");
    assert_eq!(run.finish().code, Some(124));
}

/// The command dies of TERM at once; what it has started does not, and gets KILL at the end.
#[test]
fn nothing_of_the_command_outlives_the_lock() {
    let store = Store::sqlite();
    let script = "(trap '' TERM; echo ready; while :; do sleep 0.05; done) & wait";
    let mut run = Running::start(store.run(&["--at-most", "2s"], &["sh", "-c", script]));
    assert_eq!(run.line(), "ready");
    let done = run.finish();
    assert_eq!(done.code, Some(124), "{done:?}");
}

#[test]
fn what_outlives_the_command_still_gets_signals() {
    let store = Store::sqlite();
    let left =
        "trap '' TERM; trap 'echo usr1; exit' USR1; echo ready; while :; do sleep 0.05; done";
    let script = format!("echo $$; ({left}) & wait");
    let options = ["--at-most", "20s", "-k", "18s"];
    let mut run = Running::start(store.run(&options, &["sh", "-c", &script]));
    let child: i32 = run.line().parse().unwrap();
    assert_eq!(run.line(), "ready");
    while is_alive(child) {}
    run.signal(Signal::SIGUSR1);
    let done = run.finish();
    assert_eq!(
        (done.code, &*done.stdout),
        (Some(124), "usr1\n"),
        "{done:?}"
    );
}

#[test]
fn the_end_of_the_command_is_seen_where_its_signal_was_blocked() {
    let store = Store::sqlite();
    let mut command = Command::new("env");
    command.args(["--block-signal=CHLD", env!("CARGO_BIN_EXE_distlock")]);
    let run = Running::start(store.run_with(command, &["--at-most", "30s"], &["true"]));
    let done = run.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// `yes` fills the pipe, and dies of TERM after 3 s.
#[test]
fn a_pipe_that_nobody_reads_does_not_keep_the_lock() {
    let store = Store::sqlite();
    let start = Instant::now();
    let options = ["--at-most", "30s", "-k", "27s"];
    let mut command = store.run(&options, &["sh", "-c", "yes >&2 & echo ready; wait"]);
    let mut run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    run.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let next = store.run_when_free(&["true"]);
    assert_eq!(next.code, Some(0), "{next:?}");
    let free = start.elapsed();
    assert!(free < Duration::from_secs(25), "{free:?}");
    let done = Done::from(run.wait_with_output().unwrap());
    assert_eq!(done.code, Some(124));
    assert!(done.stderr.contains("the command was stopped"));
}

/// (C11) A server that accepts and says nothing holds the acquire up.
#[test]
fn a_signal_during_the_acquire_ends_it_without_a_child() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut command = distlock();
    command
        .args(["run", "--store", &url, "--name", "n", "--at-most", "60s"])
        .args(["--", "echo", "ran"]);
    let run = Running::start(command);
    let (sender, accepted) = channel();
    std::thread::spawn(move || sender.send(silent.accept()));
    let connection = accepted.recv_timeout(PATIENCE).unwrap();
    run.signal(Signal::SIGTERM);
    let done = run.finish();
    drop(connection);
    assert_eq!((done.code, &*done.stdout), (Some(143), ""), "{done:?}");
    assert_one_line(&done, "SIGTERM came before the command");
}

#[test]
fn a_signal_during_the_acquire_leaves_no_lock_even_if_it_is_granted_later() {
    let store = Store::postgres();
    let options = ["--at-most", "60s", "-E", "75"];
    assert_eq!(finish(&mut store.run(&options, &["true"])).code, Some(0));
    let mut blocker = Session::connect(&store.url);
    blocker.run(&format!(
        "BEGIN; SELECT FROM distlock_locks WHERE name = '{}' FOR UPDATE",
        store.name()
    ));
    let run = Running::start(store.run(&options, &["echo", "ran"]));
    blocker.run(
        "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_activity \
         WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))) LOOP \
         PERFORM pg_stat_clear_snapshot(); END LOOP; END $$",
    );
    run.signal(Signal::SIGTERM);
    blocker.run("COMMIT");
    let done = run.finish();
    assert_eq!((done.code, &*done.stdout), (Some(143), ""), "{done:?}");
    let next = finish(&mut store.run(&options, &["echo", "ran"]));
    assert_eq!(next.stdout, "ran\n", "{next:?}");
}

/// TERM alone would wait until somebody continues it.
#[test]
fn a_stopped_command_gets_its_time_to_end_as_well() {
    let store = Store::sqlite();
    let script = "trap 'echo term; exit 0' TERM; kill -STOP $$; echo continued; exec sleep 1000";
    // Without a terminal, whatever the tests run on.
    let mut command = Command::new("setsid");
    command.args(["--wait", env!("CARGO_BIN_EXE_distlock")]);
    let options = ["--at-most", "4s", "-k", "3s"];
    let done = Running::start(store.run_with(command, &options, &["sh", "-c", script])).finish();
    assert_eq!(done.code, Some(124), "{done:?}");
    assert!(done.stdout.starts_with("term\n"), "{done:?}");
}
