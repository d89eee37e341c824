//! How long a lock is held, on each store.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::{
    HOLD, Running, Store, assert_one_line, distlock_an_hour_ahead, finish, is_alive, kill_pid,
};
use distlock::clock::Instant;

on_each_store!(
    the_lock_of_a_killed_wrapper_is_free_when_its_time_is_up,
    a_quick_job_leaves_the_lock_resting,
    the_lock_is_free_when_the_command_has_ended,
    clients_an_hour_apart_behave_alike,
);

/// (C1, K2)
fn the_lock_of_a_killed_wrapper_is_free_when_its_time_is_up(store: &Store) {
    let start = Instant::now();
    let script = "echo $$; exec sleep 1000";
    let mut holder = Running::start(store.run(&["--at-most", "3s"], &["sh", "-c", script]));
    let child: i32 = holder.line().parse().unwrap();
    holder.wrapper.kill().unwrap();
    holder.wrapper.wait().unwrap();
    assert!(is_alive(child), "the child lives on, as is documented");
    let next = store.run_when_free(&["echo", "ours"]);
    let elapsed = start.elapsed();
    kill_pid(child);
    assert_eq!(next.stdout, "ours\n", "{next:?}");
    assert!(elapsed >= Duration::from_secs(3), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(15), "{elapsed:?}");
}

fn a_quick_job_leaves_the_lock_resting(store: &Store) {
    let start = Instant::now();
    let options = ["--at-most", "30s", "--at-least", "3s"];
    assert_eq!(finish(&mut store.run(&options, &["true"])).code, Some(0));
    let late = finish(&mut store.run(&["--at-most", "30s", "-E", "75"], &["echo", "ran"]));
    assert_eq!((late.code, &*late.stdout), (Some(75), ""), "{late:?}");
    assert_one_line(&late, "is resting after a run of ");
    let next = store.run_when_free(&["true"]);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(start.elapsed() >= Duration::from_secs(3));
}

/// (K6: the fencing token grows.)
fn the_lock_is_free_when_the_command_has_ended(store: &Store) {
    let mut last = 0;
    for _ in 0..3 {
        let script = "echo $DISTLOCK_FENCING_TOKEN";
        let done = finish(&mut store.run(&["--at-most", "60s", "-E", "75"], &["sh", "-c", script]));
        assert_eq!(done.code, Some(0), "{done:?}");
        let token: u64 = done.stdout.trim().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

fn clients_an_hour_apart_behave_alike(store: &Store) {
    let programs = [common::distlock, distlock_an_hour_ahead];
    let mut last = 0;
    for (holds, tries) in [(0, 1), (1, 0), (0, 1)] {
        let options = ["--at-most", "20s", "-E", "75"];
        let hold = store.run_with(programs[holds](), &options, &HOLD);
        let mut holder = Running::start(hold);
        let token: u64 = holder.line().parse().expect("granted");
        assert!(token > last, "{token} after {last}");
        last = token;
        let other = finish(&mut store.run_with(programs[tries](), &options, &["true"]));
        assert_eq!(other.code, Some(75), "{other:?}");
        let left = other.stderr.split(", ").last().unwrap();
        let left: f64 = left.split(' ').next().unwrap().parse().unwrap();
        assert!((1.0..=20.0).contains(&left), "{other:?}");
        assert_eq!(holder.finish().code, Some(0));
    }
}
