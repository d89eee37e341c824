//! Promise 9: a guard that goes out of sight frees its lock, and what is pending can be waited for.

use distlock_api::clock::Instant;
use distlock_api::{ErrorKind, Guard, Locks, Outcome, Release};

use crate::context::Context;
use crate::engine::acquire;
use crate::failure::{Checked, ensure, ensure_while, must_be};
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "9.1" dropped_guard []
        "A dropped guard frees its lock in the background.";
    "9.2" panic []
        "A job that panics frees its lock, and the panic goes on.";
    "9.3" forgotten_guard []
        "A forgotten guard's lock is free at the end of its lease, and not before.";
    "9.4" shutdown []
        "After a shutdown that ended well every dropped guard's lock is free, and no new lock is taken.";
    "9.5" release_reports []
        "A release says whether the lock was still held.";
}

async fn held(cx: &Context, locks: &Locks, lease: u64) -> Checked<Guard> {
    acquire(&locks.lock(cx.name()?)?.at_most_for(cx.lease(lease))).await
}

async fn dropped_guard(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let guard = held(&cx, &one.locks(), 60_000).await?;
    let name = guard.name().clone();
    drop(guard);
    two.take_when_free(&cx.request(&name, cx.lease(5000)))
        .await?;
    Ok(())
}

async fn panic(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let name = cx.name()?;
    let lock = one.locks().lock(&name)?.at_most_for(cx.lease(60_000));
    // Without the message that a panic would print into the tests' output.
    let job = |_| async { std::panic::resume_unwind(Box::new("a job that panics")) };
    let run = tokio::spawn(async move {
        let _: distlock_api::Result<Outcome<()>> = lock.run(job).await;
    });
    let panicked = run.await.is_err_and(|died| died.is_panic());
    ensure!(panicked, "the panic of a job did not go on to its caller");
    two.take_when_free(&cx.request(&name, cx.lease(5000)))
        .await?;
    Ok(())
}

async fn forgotten_guard(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let asked = Instant::now();
    let guard = held(&cx, &one.locks(), 500).await?;
    let request = cx.request(guard.name(), cx.lease(5000));
    std::mem::forget(guard);
    let later = two.take_when_free(&request).await?;
    later.came_after(&asked, cx.lease(500))
}

async fn shutdown(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let locks = one.locks();
    let mut names = Vec::new();
    for _ in 0..20 {
        names.push(held(&cx, &locks, 60_000).await?.name().clone());
    }
    locks.shutdown(cx.patience).await?;
    for name in &names {
        two.take(&cx.request(name, cx.lease(5000))).await?;
    }
    let lock = locks.lock(cx.name()?)?.at_most_for(cx.lease(5000));
    let error = must_be!(lock.try_acquire().await, Err(error) => error, "after a shutdown");
    ensure!(
        error.kind() == ErrorKind::Closed,
        "after a shutdown: {error}"
    );
    Ok(())
}

async fn release_reports(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let released = held(&cx, &one.locks(), 60_000).await?.release().await?;
    must_be!(released, Release::Released => (), "the release of a held lock");
    let guard = held(&cx, &one.locks(), 100).await?;
    let later = cx.request(guard.name(), cx.lease(5000));
    let later = two
        .take_when_free(&later.with_owner("the new holder"))
        .await?;
    let by = Some(later.request.owner.clone());
    let released = guard.release().await?;
    ensure_while!(
        later,
        released == Release::NotHeld { by },
        "a lock was released that had gone to another: {released:?}"
    );
    Ok(())
}
