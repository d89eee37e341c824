//! What a row that another session keeps locked does to callers and to leases, for the tests of backends on databases.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_api::clock::{self, Instant};
use distlock_api::{
    AcquireRequest, Attempt, Effect, ErrorKind, FencingToken, Guard, LeaseId, Lock, LockAdmin,
    LockName, LockState, Locks, Loss, Release, Renewal, Result,
};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(60);

/// What each of these asks for.
const JOB: &str = "job";

/// A store of its own, whose rows a session that is not the backend's can lock.
#[async_trait]
pub trait LockedRows: Send {
    /// The backend, whose calls to the store take no more than some seconds.
    fn backend(&self) -> Arc<dyn LockAdmin>;
    /// Locks the row of this lock.
    async fn lock_row(&mut self, name: &str);
    /// Lets the row go.
    async fn unlock(&mut self);
    /// Waits until a statement of the backend waits for the row, at the server.
    async fn until_one_waits(&self);
    /// Waits until nothing of the backend is under way at the server.
    async fn until_nothing_is_left(&self);
}

/// That a try whose caller gave up stops waiting for the row by itself, while that is still locked, and takes nothing.
///
/// # Errors
///
/// Those of the backend, here and below. What is not as it should be panics.
pub async fn dropped_try(rows: &mut impl LockedRows) -> Result<()> {
    let locks = with_locked_job(rows).await?;
    let met = clock::timeout(SECOND / 10, job(&locks)?.try_acquire()).await;
    assert!(met.is_none(), "{met:?}");
    rows.until_one_waits().await;
    free_again(rows, &locks).await
}

/// That a try which times out tells so, stops waiting for the row at the server, too, and takes nothing.
pub async fn timed_out_try(rows: &mut impl LockedRows) -> Result<()> {
    let locks = with_locked_job(rows).await?;
    // Shorter than what the server waits for a row, so that the caller is told first.
    let short = locks.lock(JOB)?.at_most_for(SECOND / 2).try_acquire().await;
    let Err(error) = short else {
        panic!("the row is locked: {short:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    free_again(rows, &locks).await
}

/// That what is granted after its caller gave up is released.
pub async fn late_grant(rows: &mut impl LockedRows) -> Result<()> {
    let locks = with_locked_job(rows).await?;
    let met = clock::timeout(SECOND / 10, job(&locks)?.try_acquire()).await;
    assert!(met.is_none(), "{met:?}");
    rows.until_one_waits().await;
    let before = fence(rows).await?;
    rows.unlock().await;
    locks.shutdown(60 * SECOND).await?;
    assert!(fence(rows).await? > before, "nothing was granted");
    take(rows, JOB).await?;
    Ok(())
}

/// That a renewal does not wait for a locked row, tells which lease it was, and renews the others.
pub async fn renewal(rows: &mut impl LockedRows) -> Result<()> {
    let mut leases = Vec::new();
    for number in 0..5 {
        leases.push((take(rows, &format!("job-{number}")).await?, LEASE * 2));
    }
    let (ours, _) = &leases[2];
    leases.push((request(ours.name.as_str())?.lease_id(), LEASE));
    rows.lock_row("job-2").await;
    let backend = rows.backend();
    let answers = backend.renew(&leases).await;
    skipped(&answers[2]);
    for other in [0, 1, 3, 4] {
        assert_eq!(answers[other].as_ref().ok(), Some(&Renewal::Renewed));
    }
    let to = Some("test".to_owned());
    assert_eq!(answers[5].as_ref().ok(), Some(&Renewal::Lost { to }));
    // The statement finds no row, and yet must say when that was.
    skipped(&backend.renew(&leases[2..3]).await.remove(0));
    rows.unlock().await;
    let again = backend.renew(&leases[2..3]).await.remove(0)?;
    assert_eq!(again, Renewal::Renewed);
    Ok(())
}

fn skipped(answer: &Result<Renewal>) {
    let Err(locked) = answer else {
        panic!("its row is locked: {answer:?}");
    };
    assert_eq!(locked.kind(), ErrorKind::Timeout, "{locked}");
    assert_eq!(locked.effect(), Effect::None, "{locked}");
    assert!(!locked.is_store_down(), "{locked}");
    assert_eq!(locked.lock_name(), Some("job-2"), "{locked}");
}

/// Whether fifty-nine leases under a watchdog outlive their own time while the row of the sixtieth is locked, which is told
/// in time; `false` where the machine stood still for so long that nothing is shown.
pub async fn company(rows: &mut impl LockedRows, ttl: Duration) -> Result<bool> {
    let locks = locks(rows);
    let mut guards = Vec::new();
    for number in 0..60 {
        let lock = locks.lock(format!("job-{number:02}"))?.watchdog(ttl);
        guards.extend(lock.try_acquire().await?.acquired());
    }
    rows.lock_row("job-30").await;
    let since = Instant::now();
    let stuck = guards.remove(30);
    let record = rows.backend().inspect(stuck.name()).await?;
    let left = record.map_or(Duration::ZERO, |record| record.remaining);
    let stall = until_invalid(&stuck, (Instant::now(), left)).await;
    let loss = stuck.lost().await;
    clock::sleep(ttl.saturating_sub(since.elapsed())).await;
    let held = guards.iter().filter(|guard| guard.is_valid()).count();
    let records = rows.backend().list().await?;
    let in_force = records
        .iter()
        .filter(|record| record.state == LockState::Held);
    let in_force = in_force.count();
    drop((guards, stuck));
    rows.unlock().await;
    locks.shutdown(60 * SECOND).await?;
    if stall > ttl / 20 {
        return Ok(false);
    }
    let Loss::NotRenewed { cause: Some(cause) } = loss else {
        panic!("{loss}");
    };
    assert_eq!(cause.kind(), ErrorKind::Timeout, "{cause}");
    assert_eq!((held, in_force), (59, 59));
    Ok(true)
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

/// A free lock whose row is locked.
async fn with_locked_job(rows: &mut impl LockedRows) -> Result<Locks> {
    let lease = take(rows, JOB).await?;
    let release = rows.backend().release(&lease, Duration::ZERO).await?;
    assert_eq!(release, Release::Released);
    rows.lock_row(JOB).await;
    Ok(locks(rows))
}

/// The row is locked until nothing is under way any more, so that a release would have to wait for it, too: none is needed.
async fn free_again(rows: &mut impl LockedRows, locks: &Locks) -> Result<()> {
    rows.until_nothing_is_left().await;
    locks.shutdown(60 * SECOND).await?;
    rows.unlock().await;
    take(rows, JOB).await?;
    Ok(())
}

fn locks(rows: &impl LockedRows) -> Locks {
    Locks::from_arc(rows.backend())
}

fn job(locks: &Locks) -> Result<Lock> {
    Ok(locks.lock(JOB)?.at_most_for(600 * SECOND))
}

fn request(name: &str) -> Result<AcquireRequest> {
    Ok(AcquireRequest::new(LockName::new(name)?, "test", LEASE))
}

async fn take(rows: &impl LockedRows, name: &str) -> Result<LeaseId> {
    let request = request(name)?;
    let attempt = rows.backend().try_acquire(&request).await?;
    assert!(matches!(attempt, Attempt::Acquired { .. }), "{attempt:?}");
    Ok(request.lease_id())
}

async fn fence(rows: &impl LockedRows) -> Result<Option<FencingToken>> {
    let record = rows.backend().inspect(&LockName::new(JOB)?).await?;
    Ok(record.and_then(|record| record.fencing_token))
}
