//! Three replicas that start at the same time, and one schema that only one of them may change.
//!
//! `migration_guard postgres://localhost/shop`
//!
//! All wait for the lock, and whoever has it looks first whether the work is done. A migration that takes long must not
//! lose its lock half-way: `at_most_for` is longer than it can take, and the statements carry the fencing token.

use std::time::Duration;

use distlock::postgres::Fences;
use distlock::{Acquisition, FencingToken, Guard, Locks, clock};
use sqlx::{Connection, PgConnection};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("say which database: a URL")?;
    distlock::open(&url).await?.migrate().await?;
    // What one start of the service changes; a real one has a fixed name here.
    let table = format!("orders_{}", std::process::id());

    let mut replicas = Vec::new();
    for replica in ["pod-a", "pod-b", "pod-c"] {
        let start = start(replica, url.clone(), table.clone());
        replicas.push(tokio::spawn(start));
    }
    for replica in replicas {
        replica.await??;
    }
    let mut connection = PgConnection::connect(&url).await?;
    let drop = sqlx::AssertSqlSafe(format!("DROP TABLE {table}"));
    sqlx::raw_sql(drop).execute(&mut connection).await?;
    Ok(())
}

async fn start(replica: &str, url: String, table: String) -> Result<()> {
    let locks = distlock::connect(&url).await?;
    let guard = wait_for(&locks, &format!("migrate:{table}"), replica).await?;
    let token = guard.fencing_token().ok_or("PostgreSQL has fencing")?;
    let applied = apply(&url, &table, token).await?;
    guard.release().await?;
    println!(
        "{replica} {}",
        if applied {
            "applied it"
        } else {
            "found it done"
        }
    );
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

async fn wait_for(locks: &Locks, name: &str, replica: &str) -> Result<Guard> {
    let lock = locks
        .lock(name)?
        .owner(replica)
        .at_most_for(Duration::from_secs(300));
    loop {
        match lock.try_acquire().await? {
            Acquisition::Acquired(guard) => return Ok(guard),
            _ => clock::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// True if it was still to be done. In one transaction with the fence, so that a replica that was frozen half-way and
/// wakes up after its lock was given to another changes nothing.
async fn apply(url: &str, table: &str, token: FencingToken) -> Result<bool> {
    let mut connection = PgConnection::connect(url).await?;
    let fences = Fences::default();
    sqlx::raw_sql(sqlx::AssertSqlSafe(fences.schema_sql()))
        .execute(&mut connection)
        .await?;
    let mut transaction = connection.begin().await?;
    let resource = format!("schema:{table}");
    let admission = fences.admit(&mut transaction, &resource, token).await?;
    admission.admitted()?;
    let missing: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NULL")
        .bind(table)
        .fetch_one(&mut *transaction)
        .await?;
    if missing {
        let create = format!("CREATE TABLE {table} (id bigint PRIMARY KEY, amount bigint)");
        sqlx::raw_sql(sqlx::AssertSqlSafe(create))
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(missing)
}
