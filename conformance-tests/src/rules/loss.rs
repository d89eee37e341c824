//! Promise 7: the holder is told no later than the deadline, and the deadline is no later than the end of the lease.

use distlock_api::clock::{self, Instant};
use distlock_api::{Guard, Loss, Outcome};

use crate::client::Client;
use crate::context::Context;
use crate::engine::acquire;
use crate::failure::{Checked, Failure, ensure, must_be};
use crate::rule::rules;

rules! {
    "7.1" invalid_before_another_holds []
        "When another is granted the lock, the first holder's guard is not valid any more.";
    "7.2" lost_is_told []
        "The end of a lease is told by the guard, and the release then says that the lock is not held.";
    "7.3" run_stops_the_job []
        "A job that is still running when its time is up is stopped before another can hold the lock.";
}

async fn held_for(cx: &Context, client: &Client, millis: u64) -> Checked<Guard> {
    let lock = client.locks().lock(cx.name()?)?;
    acquire(&lock.at_most_for(cx.lease(millis))).await
}

async fn invalid_before_another_holds(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let guard = held_for(&cx, &one, 300).await?;
    two.take_when_free(&cx.request(guard.name(), cx.lease(5000)))
        .await?;
    ensure!(
        !guard.is_valid() && guard.remaining().is_zero(),
        "another holds the lock, and the first holder is told that {:?} remain",
        guard.remaining()
    );
    Ok(())
}

async fn lost_is_told(cx: Context) -> Checked {
    let client = cx.client().await?;
    let guard = held_for(&cx, &client, 200).await?;
    let told = clock::timeout(cx.patience, guard.lost()).await;
    must_be!(told, Some(Loss::TimeUp) => (), "the lease is over, and the guard says");
    ensure!(!guard.is_valid(), "the lock is lost, and the guard valid");
    Ok(())
}

async fn run_stops_the_job(cx: Context) -> Checked {
    let (one, two) = (cx.client().await?, cx.client().await?);
    let (name, lease) = (cx.name()?, cx.lease(300));
    let lock = one.locks().lock(&name)?.at_most_for(lease);
    let request = cx.request(&name, lease);
    let asked = Instant::now();
    let (begun, started) = tokio::sync::oneshot::channel();
    let contender = async {
        let _ = started.await;
        two.take_when_free(&request).await
    };
    let running = async {
        let outcome = lock
            .run(|_| async {
                let _ = begun.send(());
                std::future::pending::<()>().await
            })
            .await;
        (outcome, Instant::now())
    };
    let ((outcome, stopped), later) = tokio::join!(running, contender);
    must_be!(outcome?, Outcome::Stopped(Loss::TimeUp) => (), "a job without end");
    let later = later?;
    let ahead = stopped.since(&later.answered);
    if ahead.is_zero() {
        return Ok(());
    }
    // The stopped job's lock is released a little before its lease is over.
    later.came_after(&asked, lease - lease / 20)?;
    Err(Failure::stalled(format!(
        "{ahead:.1?} after another was granted the lock, the job was stopped"
    )))
}
