//! A lock from the service's own pool: even while the job has the pool's only connection, the lock has its own.
//!
//! `own_pool postgres://localhost/shop`

use std::time::Duration;

use distlock::postgres::PostgresBackend;
use distlock::{LockAdmin, Locks, Outcome};
use sqlx::postgres::PgPoolOptions;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("say which database: a URL")?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect(&url)
        .await?;
    let backend = PostgresBackend::from_pool(&pool)?;
    backend.migrate().await?;

    let locks = Locks::new(backend);
    let lock = locks
        .lock("revaluation")?
        .at_most_for(Duration::from_secs(60));
    let outcome = lock.run(|hold| {
        let pool = pool.clone();
        async move {
            let mut transaction = pool.begin().await?;
            let sum: i64 = sqlx::query_scalar("SELECT sum(n) FROM generate_series(1, 10) AS n")
                .fetch_one(&mut *transaction)
                .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>((sum, hold.fencing_token()))
        }
    });
    match outcome.await? {
        Outcome::Ran { value, release } => {
            println!(
                "sum {} under {:?}: {:?}",
                value.as_ref().map_or(0, |v| v.0),
                value?.1,
                release?
            );
        }
        other => println!("not ours: {other:?}"),
    }
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
