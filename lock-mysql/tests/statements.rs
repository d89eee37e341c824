//! What the operations cost, by counters of the wire and of the server.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::proxy::Proxy;
use common::{LEASE, Server, Store, acquire, granted, request};
use distlock_api::clock::Instant;
use distlock_api::{Attempt, LeaseId, LockAdmin, LockBackend, Release, Renewal};
use distlock_mysql::MySqlBackend;

async fn release(backend: &MySqlBackend, lease: &LeaseId) {
    let release = backend.release(lease, Duration::ZERO).await.unwrap();
    assert_eq!(release, Release::Released);
}

/// A backend whose statements are prepared, behind a proxy.
async fn warm(store: &Store) -> (Proxy, MySqlBackend) {
    let proxy = Proxy::new(store.options()).await;
    let backend = store.builder().for_options(proxy.options.clone()).unwrap();
    let (held, _) = acquire(&backend, "warm").await;
    let lease = held.lease_id();
    backend.renew(&[(lease.clone(), LEASE)]).await;
    release(&backend, &lease).await;
    proxy.round_trips();
    (proxy, backend)
}

async fn every_operation_takes_as_many_round_trips_as_promised(server: Server) {
    let store = Store::new(server, "trips").await;
    let (proxy, backend) = warm(&store).await;
    let (held, _) = acquire(&backend, "warm").await;
    assert_eq!(proxy.round_trips(), 1, "a grant");
    let refused = backend.try_acquire(&request("warm")).await.unwrap();
    assert!(matches!(refused, Attempt::Held(_)));
    assert_eq!(proxy.round_trips(), 2, "a refusal");
    backend.renew(&[(held.lease_id(), LEASE)]).await;
    assert_eq!(proxy.round_trips(), 1, "a renewal");
    release(&backend, &held.lease_id()).await;
    assert_eq!(proxy.round_trips(), 1, "a release");
    let late = backend.release(&held.lease_id(), Duration::ZERO).await;
    assert_eq!(late.unwrap(), Release::NotHeld { by: None });
    assert_eq!(proxy.round_trips(), 2, "a release that comes too late");
    acquire(&backend, "new").await;
    assert_eq!(proxy.round_trips(), 3, "the first grant of a name");
    backend.list().await.unwrap();
    proxy.round_trips();
    backend.list().await.unwrap();
    assert_eq!(proxy.round_trips(), 1, "a list");
    store.close().await;
}

async fn a_hundred_leases_are_renewed_in_one_round_trip_with_a_time_for_each(server: Server) {
    let mut store = Store::new(server, "batch").await;
    let (proxy, backend) = warm(&store).await;
    let mut leases = Vec::new();
    for number in (1..=100).rev() {
        let (held, _) = acquire(&backend, &format!("job-{number}")).await;
        leases.push((held.lease_id(), LEASE * number));
    }
    // Twice the same lease, with less: the longer time counts.
    leases.push((leases[0].0.clone(), LEASE));
    backend.renew(&leases).await;
    proxy.round_trips();
    for answer in backend.renew(&leases).await {
        assert_eq!(answer.unwrap(), Renewal::Renewed);
    }
    assert_eq!(proxy.round_trips(), 1);
    // The number in the name, in minutes, is what is left of it now.
    let exact = "SELECT COUNT(*) FROM {} WHERE name LIKE 'job-%' AND ABS(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), lock_until)
                 - 60 * CAST(SUBSTRING(name, 5) AS SIGNED)) <= 30";
    assert_eq!(store.value::<i64>(exact).await, 100);
    store.close().await;
}

async fn a_lost_lease_costs_one_more_round_trip_and_the_others_are_renewed(server: Server) {
    let mut store = Store::new(server, "lost").await;
    let (proxy, backend) = warm(&store).await;
    let mut leases = Vec::new();
    for number in 0..7 {
        let (held, _) = acquire(&backend, &format!("job-{number}")).await;
        leases.push((held.lease_id(), LEASE * 10));
    }
    store
        .run("UPDATE {} SET token = 'x', locked_by = 'thief' WHERE name = 'job-3'; DELETE FROM {} WHERE name = 'job-5'")
        .await;
    backend.renew(&leases).await;
    proxy.round_trips();
    let answers = backend.renew(&leases).await;
    assert_eq!(proxy.round_trips(), 2);
    for ((lease, _), answer) in leases.iter().zip(answers) {
        let expected = match lease.name.as_str() {
            "job-3" => Renewal::Lost {
                to: Some("thief".to_owned()),
            },
            "job-5" => Renewal::Lost { to: None },
            _ => Renewal::Renewed,
        };
        assert_eq!(answer.unwrap(), expected, "{lease:?}");
    }
    store.close().await;
}

async fn a_thousand_leases_are_renewed_in_few_statements(server: Server) {
    let store = Store::new(server, "thousand").await;
    let (proxy, backend) = warm(&store).await;
    let mut leases = Vec::new();
    for number in 0..1000 {
        let (held, _) = acquire(&backend, &format!("job-{number}")).await;
        leases.push((held.lease_id(), LEASE));
    }
    let stranger = request("job-999").lease_id();
    leases.push((stranger, LEASE));
    backend.renew(&leases).await;
    proxy.round_trips();
    let answers = backend.renew(&leases).await;
    assert_eq!(proxy.round_trips(), 5);
    let lost = answers
        .iter()
        .filter(|answer| answer.as_ref().unwrap() != &Renewal::Renewed);
    assert_eq!(lost.count(), 1);
    assert_ne!(answers[1000].as_ref().unwrap(), &Renewal::Renewed);
    store.close().await;
}

/// How many rows of the table were read so far, as often as they were.
async fn rows_read(store: &mut Store) -> i64 {
    let counted = match store.server {
        Server::MySql => {
            "SELECT CAST(count_fetch AS SIGNED) FROM performance_schema.table_io_waits_summary_by_table
             WHERE object_schema = DATABASE() AND object_name = '{}'"
        }
        Server::MariaDb => {
            "SELECT CAST(rows_read AS SIGNED) FROM information_schema.table_statistics
             WHERE table_schema = DATABASE() AND table_name = '{}'"
        }
    };
    store.value(counted).await
}

async fn a_renewal_reads_and_so_locks_no_rows_but_those_of_its_leases(server: Server) {
    let mut store = Store::new(server, "rows").await;
    if server == Server::MariaDb {
        // So that it counts, which it does not of itself.
        store.run("SET GLOBAL userstat = 1").await;
    }
    let backend = store.backend();
    let mut leases = Vec::new();
    for number in 0..30 {
        let (held, _) = acquire(&backend, &format!("job-{number}")).await;
        leases.push((held.lease_id(), LEASE * 2));
    }
    leases.truncate(3);
    // One of them is lost, so that the holders are asked for, too.
    release(&backend, &leases[1].0).await;
    let before = rows_read(&mut store).await;
    backend.renew(&leases).await;
    let read = rows_read(&mut store).await - before;
    assert!((3..=4 * 3).contains(&read), "{read} rows read");
    store.close().await;
}

/// Counts again until it is little, for a minute at most; the least. Others on the same server only add.
async fn least(little: i64, mut count: impl AsyncFnMut() -> i64) -> i64 {
    let start = Instant::now();
    let mut least = i64::MAX;
    while least >= little && start.elapsed() < Duration::from_secs(60) {
        least = least.min(count().await);
    }
    least
}

/// How much redo the server has written so far, in bytes.
async fn redo(store: &mut Store) -> i64 {
    let value = match store.server {
        Server::MySql => {
            "SELECT CAST(variable_value AS SIGNED) FROM performance_schema.global_status
             WHERE variable_name = 'Innodb_os_log_written'"
        }
        Server::MariaDb => {
            "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
             WHERE variable_name = 'Innodb_lsn_current'"
        }
    };
    store.value(value).await
}

async fn a_refusal_writes_no_redo(server: Server) {
    // (F16)
    let mut store = Store::new(server, "refusals").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    let bytes = least(200, async || {
        let before = redo(&mut store).await;
        for _ in 0..200 {
            let refused = backend.try_acquire(&request("job")).await.unwrap();
            assert_eq!(granted(&refused), None);
        }
        redo(&mut store).await - before
    })
    .await;
    assert!(bytes < 200, "{bytes} bytes of redo in 200 refusals");
    store.close().await;
}

async fn a_grant_is_in_the_redo(server: Server) {
    // What shows that the counter counts.
    let mut store = Store::new(server, "grants").await;
    let backend = store.backend();
    let before = redo(&mut store).await;
    for _ in 0..20 {
        let (held, _) = acquire(&backend, "job").await;
        release(&backend, &held.lease_id()).await;
    }
    let bytes = redo(&mut store).await - before;
    assert!(bytes > 20 * 100, "{bytes} bytes of redo in 20 grants");
    store.close().await;
}

on_both![
    every_operation_takes_as_many_round_trips_as_promised,
    a_hundred_leases_are_renewed_in_one_round_trip_with_a_time_for_each,
    a_lost_lease_costs_one_more_round_trip_and_the_others_are_renewed,
    a_thousand_leases_are_renewed_in_few_statements,
    a_renewal_reads_and_so_locks_no_rows_but_those_of_its_leases,
    a_refusal_writes_no_redo,
    a_grant_is_in_the_redo,
];
