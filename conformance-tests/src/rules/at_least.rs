//! Promise 4: `at_least_for` holds after a short job and after a crash, and a longer job frees at once.

use distlock_api::clock::{self, Instant};
use distlock_api::{Attempt, ForceRelease, Lock, LockState, Outcome, Release, Renewal};

use crate::client::{Client, Grant};
use crate::context::Context;
use crate::engine::acquire;
use crate::failure::{Checked, ensure, ensure_while, must_be};
use crate::process::Setting;
use crate::request::Like as _;
use crate::rule::rules;

rules! {
    "4.1" rests_for_the_linger []
        "A lock that is released with a linger is refused to others as resting until the linger is over.";
    "4.2" resting_token_is_over []
        "The token of a resting lock can neither renew nor acquire again.";
    "4.3" released_again_while_resting []
        "Releasing a resting lock again answers Released, and neither frees it nor makes it rest longer.";
    "4.4" resting_is_shown [Admin]
        "The record of a resting lock says so, and until when.";
    "4.5" forced_out_of_rest [Admin]
        "A forced release ends the rest.";
    "4.6" after_a_short_job []
        "A job that ends at once leaves its lock to nobody before at_least_for is over.";
    "4.7" after_a_long_job []
        "A job that took longer than at_least_for frees its lock at once.";
    "4.8" after_a_crash [Processes]
        "The lock of a holder that was killed at once goes to nobody before at_least_for is over.";
    "4.9" three_runs_of_one_lock []
        "Three runs of one and the same lock each keep at_least_for from their own start.";
}

/// A lock that was taken and released with a linger.
async fn resting(cx: &Context, client: &Client, linger: u64) -> Checked<Grant> {
    let request = cx.request(&cx.name()?, cx.lease(5000));
    let grant = client.take(&request).await?;
    client.rest(&grant, cx.lease(linger)).await
}

async fn rests_for_the_linger(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let rest = resting(&cx, &one, 500).await?;
    let other = rest.request.with_new_token();
    let asked = Instant::now();
    let held = two.refused(&other, &rest).await?;
    ensure_while!(
        rest,
        held.resting,
        "a resting lock is said to be held: {held:?}"
    );
    rest.ensure_remaining(held.remaining, &asked)?;
    let later = two.take_when_free(&other).await?;
    rest.kept_others_out(&later, rest.request.lease)
}

async fn resting_token_is_over(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let rest = resting(&cx, &one, 500).await?;
    let renewal = one.renew(rest.lease(), cx.lease(60_000)).await?;
    must_be!(renewal, Renewal::Lost { .. } => (), "a resting lease was renewed");
    one.refused(&rest.request, &rest).await?;
    let later = two.take_when_free(&rest.request.with_new_token()).await?;
    rest.kept_others_out(&later, rest.request.lease)
}

async fn released_again_while_resting(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let rest = resting(&cx, &one, 500).await?;
    for linger in [cx.lease(0), cx.lease(60_000)] {
        let again = one.release(&rest.lease(), linger).await?;
        ensure_while!(
            rest,
            again == Release::Released,
            "releasing a resting lock again answered {again:?}"
        );
        let held = two.refused(&rest.request.with_new_token(), &rest).await?;
        ensure_while!(
            rest,
            held.resting,
            "a resting lock is said to be held: {held:?}"
        );
    }
    let later = two.take_when_free(&rest.request.with_new_token()).await?;
    rest.kept_others_out(&later, rest.request.lease)
}

async fn resting_is_shown(cx: Context) -> Checked {
    let client = cx.client().await?;
    let rest = resting(&cx, &client, 2000).await?;
    let asked = Instant::now();
    let record = client.record(rest.name()).await?;
    ensure_while!(
        rest,
        record.state == LockState::Resting,
        "a resting lock is shown as {record:?}"
    );
    rest.ensure_remaining(Some(record.remaining), &asked)?;
    let owner = Some(rest.request.owner.clone());
    ensure!(
        record.owner == owner,
        "{owner:?} had it, and {:?} is shown",
        record.owner
    );
    Ok(())
}

async fn forced_out_of_rest(cx: Context) -> Checked {
    let client = cx.client().await?;
    let rest = resting(&cx, &client, 60_000).await?;
    let freed = client.admin()?.force_release(rest.name(), None).await?;
    must_be!(freed, ForceRelease::Freed { .. } => (), "a resting lock was not freed by force");
    client.take(&rest.request.with_new_token()).await?;
    Ok(())
}

/// Runs a job that ends at once, and says when the attempt was made.
async fn short_run(lock: &Lock) -> Checked<Instant> {
    let asked = Instant::now();
    let outcome = lock.run(|_| async {}).await?;
    match outcome {
        Outcome::Ran {
            release: Ok(Release::Released),
            ..
        } => Ok(asked),
        other => {
            ensure!(
                false,
                "a free lock was to be run under and released: {other:?}"
            );
            Ok(asked)
        }
    }
}

async fn after_a_short_job(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let name = cx.name()?;
    let at_least = cx.lease(400);
    let lock = one.locks().lock(&name)?;
    let lock = lock.at_most_for(cx.lease(5000)).at_least_for(at_least);
    let asked = short_run(&lock).await?;
    let later = two.take_when_free(&cx.request(&name, at_least)).await?;
    later.came_after(&asked, at_least)
}

async fn after_a_long_job(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let name = cx.name()?;
    let at_least = cx.lease(50);
    let lock = one.locks().lock(&name)?;
    let lock = lock.at_most_for(cx.lease(20_000)).at_least_for(at_least);
    let asked = Instant::now();
    // Longer by more than the local and the server's clock may differ.
    let outcome = lock.run(|_| clock::sleep(at_least * 2)).await?;
    let released = matches!(
        outcome,
        Outcome::Ran {
            release: Ok(Release::Released),
            ..
        }
    );
    ensure!(
        released,
        "the job was to run and its lock to be released: {outcome:?}"
    );
    let attempt = two.attempt(&cx.request(&name, at_least)).await?;
    ensure!(
        matches!(attempt, Attempt::Acquired { .. }),
        "{:.1?} after it was asked for with at_least_for {at_least:?}, the lock was not free: {attempt:?}",
        asked.elapsed()
    );
    Ok(())
}

async fn after_a_crash(cx: Context) -> Checked {
    let waiter = cx.client().await?;
    let (holder, process) = cx.process(Setting::default()).await?;
    let name = cx.name()?;
    let (at_most, at_least) = (cx.lease(900), cx.lease(600));
    let lock = holder.locks().lock(&name)?;
    let lock = lock.at_most_for(at_most).at_least_for(at_least);
    let asked = Instant::now();
    let guard = acquire(&lock).await?;
    process.kill().await?;
    drop(guard);
    let later = waiter.take_when_free(&cx.request(&name, at_least)).await?;
    later.came_after(&asked, at_least)
}

async fn three_runs_of_one_lock(cx: Context) -> Checked {
    let client = cx.client().await?;
    let name = cx.name()?;
    let at_least = cx.lease(200);
    let lock = client.locks().lock(&name)?;
    let lock = lock.at_most_for(cx.lease(5000)).at_least_for(at_least);
    for _ in 0..3 {
        let asked = short_run(&lock).await?;
        let later = client.take_when_free(&cx.request(&name, at_least)).await?;
        later.came_after(&asked, at_least)?;
        client.free(&later).await?;
    }
    Ok(())
}
