//! Rows that another session keeps locked: what callers who give up leave at the server, and what becomes of the leases in
//! the company of such a row (B13, U11, promise 8).
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{LEASE, Server, Store, acquire, request};
use distlock_api::clock::{self, Instant};
use distlock_api::{Effect, ErrorKind, Guard, Lock, LockBackend, Locks, Loss, Release, Renewal};
use distlock_mysql::MySqlBackend;

const SECOND: Duration = Duration::from_secs(1);

/// How long a call to the store may take.
const LIMIT: Duration = Duration::from_secs(3);

/// A table with one free lock, whose row is locked by the store's own session.
async fn with_locked_row(server: Server) -> (Store, Arc<MySqlBackend>) {
    let mut store = Store::new(server, "locked").await;
    let builder = store.builder().operation_limit(LIMIT);
    let backend = builder.for_options(store.options()).unwrap();
    let (held, _) = acquire(&backend, "job").await;
    let release = backend.release(&held.lease_id(), Duration::ZERO).await;
    assert_eq!(release.unwrap(), Release::Released);
    store.run("BEGIN; SELECT * FROM {} FOR UPDATE").await;
    (store, Arc::new(backend))
}

fn locks(backend: &Arc<MySqlBackend>) -> Locks {
    Locks::from_arc(Arc::clone(backend) as Arc<dyn LockBackend>)
}

fn job(locks: &Locks) -> Lock {
    locks.lock("job").unwrap().at_most_for(600 * SECOND)
}

/// That nothing of ours is under way at the server, although the row is still locked.
async fn nothing_is_left(store: &Store) {
    store.until_waiting(0).await;
    let mine = store.processes();
    store
        .server
        .until(&format!(
            "SELECT COUNT(*) = 0 FROM information_schema.innodb_trx JOIN ({mine}) AS mine ON trx_mysql_thread_id = mine.id"
        ))
        .await;
}

async fn a_dropped_try_stops_waiting_for_the_row_by_itself_and_takes_nothing(server: Server) {
    let (mut store, backend) = with_locked_row(server).await;
    let locks = locks(&backend);
    let met = clock::timeout(SECOND / 10, job(&locks).try_acquire()).await;
    assert!(met.is_none(), "{met:?}");
    store.until_waiting(1).await;
    nothing_is_left(&store).await;
    // The row is locked, so that a release would have to wait for it, too: none is needed.
    locks.shutdown(60 * SECOND).await.unwrap();
    store.run("ROLLBACK").await;
    acquire(&backend, "job").await;
    store.close().await;
}

async fn a_try_that_times_out_stops_waiting_for_the_row_and_takes_nothing(server: Server) {
    let (mut store, backend) = with_locked_row(server).await;
    let locks = locks(&backend);
    // Shorter than what the server waits for a row, so that the caller is told first.
    let short = locks.lock("job").unwrap().at_most_for(SECOND / 2);
    let error = short.try_acquire().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::Timeout, Effect::Unknown),
        "{error}"
    );
    nothing_is_left(&store).await;
    locks.shutdown(60 * SECOND).await.unwrap();
    store.run("ROLLBACK").await;
    acquire(&backend, "job").await;
    store.close().await;
}

async fn what_is_granted_after_its_caller_gave_up_is_released(server: Server) {
    let (mut store, backend) = with_locked_row(server).await;
    let locks = locks(&backend);
    let met = clock::timeout(SECOND / 10, job(&locks).try_acquire()).await;
    assert!(met.is_none(), "{met:?}");
    store.until_waiting(1).await;
    let fence: u64 = store.value("SELECT fence FROM {}").await;
    store.run("ROLLBACK").await;
    locks.shutdown(60 * SECOND).await.unwrap();
    let granted = format!("SELECT fence > {fence} FROM {{}}");
    assert!(store.value::<bool>(&granted).await, "nothing was granted");
    acquire(&backend, "job").await;
    store.close().await;
}

async fn a_renewal_waits_for_no_row_and_tells_which_was_locked(server: Server) {
    let mut store = Store::new(server, "skipped").await;
    let backend = store.builder().for_options(store.options()).unwrap();
    let mut leases = Vec::new();
    for number in 0..5 {
        let (held, _) = acquire(&backend, &format!("job-{number}")).await;
        leases.push((held.lease_id(), LEASE * 2));
    }
    leases.push((request("job-2").lease_id(), LEASE));
    store
        .run("BEGIN; SELECT * FROM {} WHERE name = 'job-2' FOR UPDATE")
        .await;
    let answers = backend.renew(&leases).await;
    let locked = answers[2].as_ref().unwrap_err();
    assert_eq!(
        (locked.kind(), locked.effect(), locked.lock_name()),
        (ErrorKind::Timeout, Effect::None, Some("job-2"))
    );
    for other in [0, 1, 3, 4] {
        assert_eq!(answers[other].as_ref().unwrap(), &Renewal::Renewed);
    }
    let by = Some("test".to_owned());
    assert_eq!(answers[5].as_ref().unwrap(), &Renewal::Lost { to: by });
    store.run("ROLLBACK").await;
    let again = backend.renew(&leases[2..3]).await.remove(0);
    assert_eq!(again.unwrap(), Renewal::Renewed);
    store.close().await;
}

async fn a_lease_whose_row_is_locked_is_told_where_it_is_the_only_one(server: Server) {
    // The statement finds no row, and yet must say when that was.
    let (mut store, backend) = with_locked_row(server).await;
    store.run("ROLLBACK").await;
    let (held, _) = acquire(&backend, "job").await;
    store.run("BEGIN; SELECT * FROM {} FOR UPDATE").await;
    let renewed = backend
        .renew(&[(held.lease_id(), LEASE * 2)])
        .await
        .remove(0);
    let locked = renewed.unwrap_err();
    assert_eq!(
        (locked.kind(), locked.effect()),
        (ErrorKind::Timeout, Effect::None)
    );
    store.close().await;
}

/// Sixty locks that the watchdog renews.
async fn sixty(locks: &Locks, ttl: Duration) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..60 {
        let lock = locks.lock(format!("job-{number}")).unwrap();
        let acquired = lock.watchdog(ttl).try_acquire().await.unwrap();
        guards.push(acquired.acquired().unwrap());
    }
    guards
}

/// Waits until the guard is no longer valid, which must be no later than the end of the lease at the server; how long it was
/// not looked at, at most.
async fn until_invalid(guard: &Guard, (answered, left): (Instant, Duration)) -> Duration {
    let (mut last, mut stall) = (Instant::now(), Duration::ZERO);
    loop {
        let now = Instant::now();
        stall = stall.max(now.since(&last));
        last = now;
        if !guard.is_valid() {
            return stall;
        }
        assert!(now.since(&answered) < left, "valid after the lease's end");
        clock::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether fifty-nine leases outlive their own time while the row of the sixtieth is locked; `false` where the machine stood
/// still for so long that nothing is shown.
async fn company_is_held(server: Server, ttl: Duration) -> bool {
    let mut store = Store::new(server, "company").await;
    let backend = Arc::new(store.builder().for_options(store.options()).unwrap());
    let locks = locks(&backend);
    let mut guards = sixty(&locks, ttl).await;
    store
        .run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; SELECT * FROM {} WHERE name = 'job-30' FOR UPDATE")
        .await;
    let since = Instant::now();
    let left = "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until) FROM {} WHERE name = 'job-30'";
    let left: i64 = store.value(left).await;
    let left = Duration::from_micros(u64::try_from(left).unwrap_or(0));
    let stuck = guards.remove(30);
    let stall = until_invalid(&stuck, (Instant::now(), left)).await;
    let loss = stuck.lost().await;
    clock::sleep(ttl.saturating_sub(since.elapsed())).await;
    let held = guards.iter().filter(|guard| guard.is_valid()).count();
    let in_force = "SELECT COUNT(*) FROM {} WHERE lock_until > UTC_TIMESTAMP(6)";
    let in_force: i64 = store.value(in_force).await;
    drop((guards, stuck));
    store.run("ROLLBACK").await;
    locks.shutdown(60 * SECOND).await.unwrap();
    store.close().await;
    if stall > ttl / 20 {
        return false;
    }
    let Loss::NotRenewed { cause: Some(cause) } = loss else {
        panic!("{loss}");
    };
    assert_eq!(cause.kind(), ErrorKind::Timeout, "{cause}");
    assert_eq!((held, in_force), (59, 59));
    true
}

async fn one_stuck_row_takes_no_other_lease_down_and_is_told_in_time(server: Server) {
    for ttl in [3 * SECOND, 6 * SECOND, 12 * SECOND] {
        if company_is_held(server, ttl).await {
            return;
        }
    }
    panic!("the machine is too slow to tell");
}

on_both![
    a_dropped_try_stops_waiting_for_the_row_by_itself_and_takes_nothing,
    a_try_that_times_out_stops_waiting_for_the_row_and_takes_nothing,
    what_is_granted_after_its_caller_gave_up_is_released,
    a_renewal_waits_for_no_row_and_tells_which_was_locked,
    a_lease_whose_row_is_locked_is_told_where_it_is_the_only_one,
    one_stuck_row_takes_no_other_lease_down_and_is_told_in_time,
];
