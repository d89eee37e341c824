//! Several processes on one file: at once, killed, and with clocks of their own. A process is this program again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{LEASE, Store, all_succeed, granted, name, refused, request, task, worker};
use distlock_api::{Attempt, LockAdmin, LockBackend, Release};
use distlock_sqlite::SqliteBackend;
use sqlx::{Executor, Row};

#[tokio::test]
#[ignore = "what the other tests start as a process"]
async fn worker_process() {
    let Some((task, file)) = task() else { return };
    let backend = SqliteBackend::builder().file(&file).build().unwrap();
    match task.as_str() {
        "migrate" => backend.migrate().await.unwrap(),
        "count" => count(&backend, &counter(&file), 500).await,
        "write for ever" => write_for_ever(&backend).await,
        "is refused" => assert!(refused(&backend, "a").await),
        "is granted" => assert!(granted(&backend, &request("a")).await > 0),
        other => panic!("unknown task {other}"),
    }
}

fn counter(file: &Path) -> PathBuf {
    file.with_extension("count")
}

/// Adds one to the number in a file, this many times, each under the lock: reading and writing are two steps.
async fn count(backend: &SqliteBackend, counter: &Path, times: u32) {
    let mut done = 0;
    while done < times {
        let request = request("counter");
        // Any error fails the worker: no busy database reaches the user.
        if let Attempt::Held(_) = backend.try_acquire(&request).await.unwrap() {
            tokio::task::yield_now().await;
            continue;
        }
        let before: u32 = fs::read_to_string(counter).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        fs::write(counter, (before + 1).to_string()).unwrap();
        let release = backend.release(&request.lease_id(), Duration::ZERO).await;
        assert_eq!(release.unwrap(), Release::Released);
        done += 1;
    }
}

#[tokio::test]
async fn two_processes_in_competition_lose_no_update_and_see_no_busy_database() {
    // (G3)
    let store = Store::migrated().await;
    fs::write(counter(&store.path()), "0").unwrap();
    let workers = (0..2).map(|_| worker("count", &store).spawn().unwrap());
    all_succeed(workers.collect());
    assert_eq!(fs::read_to_string(counter(&store.path())).unwrap(), "1000");
}

/// Prints each fencing token, so that the parent knows what was promised.
async fn write_for_ever(backend: &SqliteBackend) {
    loop {
        let request = request("a");
        println!("fence {}", granted(backend, &request).await);
        backend
            .release(&request.lease_id(), Duration::ZERO)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_process_killed_while_it_writes_leaves_a_good_file() {
    // (G2)
    let store = Store::migrated().await;
    let mut last = 0;
    for round in 0..20 {
        let mut writer = worker("write for ever", &store)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut promised = fences(writer.stdout.take().unwrap()).take(3 + round);
        last = promised.by_ref().last().unwrap().max(last);
        writer.kill().unwrap();
        writer.wait().unwrap();
        let backend = store.backend();
        let record = backend.inspect(&name("a")).await.unwrap().unwrap();
        let stored = record.fencing_token.unwrap().value();
        assert!(
            stored >= last,
            "a fencing token that was told was forgotten"
        );
        let row = store
            .connection()
            .await
            .fetch_one("PRAGMA integrity_check")
            .await;
        assert_eq!(row.unwrap().get::<String, _>(0), "ok");
        // The dead one's write lock is gone; its lease, if it had one, is not.
        granted(&backend, &request(&format!("other {round}"))).await;
        backend.force_release(&name("a"), None).await.unwrap();
        last = granted(&backend, &request("a")).await;
        assert!(last > stored);
        backend.force_release(&name("a"), None).await.unwrap();
    }
}

fn fences(output: impl std::io::Read) -> impl Iterator<Item = u64> {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    lines.filter_map(|line| line.split_once("fence ")?.1.parse().ok())
}

#[tokio::test]
async fn eight_processes_migrate_at_once() {
    // (U6)
    for _ in 0..10 {
        let store = Store::empty();
        let migrate = || {
            (0..8)
                .map(|_| worker("migrate", &store).spawn().unwrap())
                .collect()
        };
        all_succeed(migrate());
        let backend = store.backend();
        backend.check().await.unwrap().usable().unwrap();
        let held = request("a");
        granted(&backend, &held).await;
        all_succeed(migrate());
        assert!(refused(&backend, "a").await, "migrating again freed a lock");
        let release = backend.release(&held.lease_id(), Duration::ZERO).await;
        assert_eq!(release.unwrap(), Release::Released);
    }
}

/// The worker started by another program: `faketime`, `unshare`.
fn worker_under(program: &str, arguments: &[&str], task: &str, store: &Store) -> bool {
    let plain = worker(task, store);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(plain.get_program())
        .args(plain.get_args());
    for (key, value) in plain.get_envs() {
        command.env(key, value.unwrap());
    }
    // The clock since boot runs on as it is: leases hang on it.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let status = command.stdout(Stdio::null()).status();
    let status = status.unwrap_or_else(|e| panic!("{program} must be installed: {e}"));
    status.success()
}

#[tokio::test]
async fn a_wall_clock_that_is_a_day_off_frees_nothing_and_keeps_nothing() {
    // (B5) What is faked is the wall clock of libc, and not the clock since boot.
    let store = Store::migrated().await;
    let backend = store.backend();
    let held = request("a");
    let before = granted(&backend, &held).await;
    for off in ["+1d", "-1d"] {
        assert!(
            worker_under("faketime", &["-f", off], "is refused", &store),
            "{off}"
        );
    }
    backend
        .release(&held.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    let mut last = before;
    for off in ["+1d", "-1d"] {
        assert!(
            worker_under("faketime", &["-f", off], "is granted", &store),
            "{off}"
        );
        let record = backend.inspect(&held.name).await.unwrap().unwrap();
        let fence = record.fencing_token.unwrap().value();
        assert!(fence > last, "{off}: {fence} after {last}");
        assert!(
            record.remaining <= LEASE && record.remaining > LEASE / 2,
            "{off}"
        );
        last = fence;
        backend.force_release(&held.name, None).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the right to make a time namespace: run as root with --ignored"]
async fn a_time_namespace_changes_nothing() {
    // (G8)
    let store = Store::migrated().await;
    let backend = store.backend();
    let held = request("a");
    granted(&backend, &held).await;
    let ahead = ["--time", "--boottime", "1000000", "--fork"];
    assert!(worker_under("unshare", &ahead, "is refused", &store));
    backend
        .release(&held.lease_id(), Duration::ZERO)
        .await
        .unwrap();
    assert!(worker_under("unshare", &ahead, "is granted", &store));
    assert!(refused(&backend, "a").await);
    let record = backend.inspect(&held.name).await.unwrap().unwrap();
    assert!(record.remaining <= LEASE);
}
