//! What goes over the wire, by the server's own counters.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{LEASE, Server, Space, acquire, name};
use distlock_api::{AcquireRequest, Attempt, LockBackend};
use tokio::task::JoinSet;

const ROUNDS: u64 = 100;

/// A server without other clients, on which all scripts are known already.
struct Quiet {
    _server: Server,
    space: Space,
}

/// What the server counted.
#[derive(Debug)]
struct Counted {
    /// Commands that came from a client; those inside of scripts are left out.
    commands: BTreeMap<String, u64>,
    reads: u64,
    bytes: u64,
}

/// What the scripts run, and what the counting itself does.
const INSIDE: [&str; 13] = [
    "set",
    "get",
    "del",
    "incr",
    "incrby",
    "pttl",
    "pexpire",
    "pexpireat",
    "pexpiretime",
    "time",
    "info",
    "config|resetstat",
    "config",
];

impl Quiet {
    async fn start() -> Self {
        let server = Server::start(&[]).await;
        let space = Space::at(&server.url()).await;
        Self {
            _server: server,
            space,
        }
    }

    async fn reset(&mut self) {
        let () = self.space.run("CONFIG RESETSTAT").await;
    }

    async fn counted(&mut self) -> Counted {
        let stats: String = self.space.run("INFO stats").await;
        let commands: String = self.space.run("INFO commandstats").await;
        let field = |name: &str| {
            let value = stats.lines().find_map(|line| line.strip_prefix(name));
            value.unwrap().trim().parse::<u64>().unwrap()
        };
        let commands = commands.lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse().ok()?;
            (!INSIDE.contains(&command)).then(|| (command.to_owned(), calls))
        });
        Counted {
            commands: commands.collect(),
            // Less the one that asked.
            reads: field("total_reads_processed:") - 1,
            bytes: field("total_net_input_bytes:"),
        }
    }
}

/// A name of 32 bytes and the owner of a process on a host with a long name.
fn request() -> AcquireRequest {
    AcquireRequest::new(name(&"n".repeat(32)), "build-host-17/31337", LEASE)
}

fn only(command: &str, calls: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(command.to_owned(), calls)])
}

#[tokio::test]
async fn an_acquire_and_a_release_are_one_command_each() {
    let mut quiet = Quiet::start().await;
    let backend = quiet.space.client().await;
    for round in 0..=ROUNDS {
        if round == 1 {
            // The first round connected, checked, and made the scripts known.
            quiet.reset().await;
        }
        let request = request();
        acquire(&backend, &request).await;
        backend
            .release(&request.lease_id(), Duration::ZERO)
            .await
            .unwrap();
    }
    let counted = quiet.counted().await;
    assert_eq!(counted.commands, only("evalsha", 2 * ROUNDS));
    assert_eq!(counted.reads, 2 * ROUNDS);
}

/// As a service does that starts many jobs.
#[tokio::test]
async fn of_many_first_acquires_at_once_one_looks_at_the_server() {
    let mut quiet = Quiet::start().await;
    let backend = Arc::new(quiet.space.client().await);
    quiet.reset().await;
    let mut acquires = JoinSet::new();
    for i in 0..ROUNDS {
        let backend = Arc::clone(&backend);
        acquires
            .spawn(async move { acquire(&backend, &common::request(&format!("job-{i}"))).await });
    }
    acquires.join_all().await;
    let stats: String = quiet.space.run("INFO commandstats").await;
    let looks = stats.lines().find(|line| line.starts_with("cmdstat_info:"));
    assert!(looks.unwrap().contains(":calls=1,"), "{looks:?}");
}

/// (U27), with a prefix as long as the default one.
#[tokio::test]
async fn an_acquire_takes_less_than_200_bytes() {
    let mut quiet = Quiet::start().await;
    quiet.space.prefix = "lock:".to_owned();
    let backend = quiet.space.client().await;
    acquire(&backend, &request()).await;
    for _ in 0..2 {
        quiet.reset().await;
        for _ in 0..ROUNDS {
            let refused = backend.try_acquire(&request()).await.unwrap();
            assert!(matches!(refused, Attempt::Held(_)));
        }
        let counted = quiet.counted().await;
        assert_eq!(counted.commands, only("evalsha", ROUNDS));
        assert_eq!(counted.reads, ROUNDS);
        assert!(counted.bytes / ROUNDS < 200, "{counted:?}");
    }
}

#[tokio::test]
async fn many_renewals_are_one_round_trip() {
    let mut quiet = Quiet::start().await;
    let backend = quiet.space.client().await;
    let mut leases = Vec::new();
    for i in 0..20 {
        let request = common::request(&format!("job-{i}"));
        acquire(&backend, &request).await;
        leases.push((request.lease_id(), LEASE));
    }
    backend.renew(&leases).await;
    quiet.reset().await;
    let renewed = backend.renew(&leases).await;
    assert!(renewed.iter().all(Result::is_ok));
    let counted = quiet.counted().await;
    assert_eq!(counted.commands, only("evalsha", 20));
    assert_eq!(counted.reads, 1);
}

/// A refusal writes nothing: no propagation, no append to a log.
#[tokio::test]
async fn a_refusal_changes_nothing() {
    let mut quiet = Quiet::start().await;
    let backend = quiet.space.client().await;
    acquire(&backend, &request()).await;
    let changes = "rdb_changes_since_last_save:";
    let info: String = quiet.space.run("INFO persistence").await;
    let before = info
        .lines()
        .find(|line| line.starts_with(changes))
        .unwrap()
        .to_owned();
    backend.try_acquire(&request()).await.unwrap();
    let info: String = quiet.space.run("INFO persistence").await;
    assert!(info.contains(&before), "{before} became {info}");
}
