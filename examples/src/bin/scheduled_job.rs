//! A job that three replicas have on their timers and that runs once for each planned time.
//!
//! `scheduled_job STORE_URL`, for example `scheduled_job sqlite:///var/lib/shop/locks.db?mode=rwc`. The store is migrated first;
//! in a real service that is a step of the deployment.

use std::time::Duration;

use distlock::{Locks, Outcome, clock};

const PERIOD: Duration = Duration::from_secs(1);
const RUNS: i64 = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("say which store: a URL")?;
    distlock::open(&url).await?.migrate().await?;

    let mut replicas = Vec::new();
    for replica in ["pod-a", "pod-b", "pod-c"] {
        let locks = distlock::connect(&url).await?;
        replicas.push(tokio::spawn(replica_loop(replica, locks)));
    }
    for replica in replicas {
        replica.await??;
    }
    Ok(())
}

async fn replica_loop(replica: &'static str, locks: Locks) -> distlock::Result<()> {
    let first = unix_seconds() + 1;
    for planned in first..first + RUNS {
        sleep_until(planned).await;
        let lock = locks
            .lock("outbox")?
            .owner(replica)
            .at_most_for(Duration::from_secs(30))
            .at_least_for(PERIOD / 2) // timers may differ by this much
            .tick(planned); // and a planned second is never run twice
        match lock.run(|_| publish_outbox()).await? {
            Outcome::Ran { release, .. } => {
                println!("ran {planned} on {replica}");
                release?;
            }
            other => eprintln!("{replica} left {planned} alone: {other:?}"),
        }
    }
    locks.shutdown(Duration::from_secs(5)).await
}

async fn publish_outbox() {
    clock::sleep(Duration::from_millis(20)).await;
}

fn unix_seconds() -> i64 {
    let now = clock::wall().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs().cast_signed())
}

async fn sleep_until(second: i64) {
    while unix_seconds() < second {
        clock::sleep(Duration::from_millis(5)).await;
    }
}
