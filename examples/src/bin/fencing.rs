//! A holder that is frozen past the end of its lease and writes when it wakes up: the resource refuses it.
//!
//! `fencing STORE_URL`, with a URL of PostgreSQL, MySQL, MariaDB, Redis, or an SQLite file. What the lock protects lies in
//! the same store here, so that one URL is enough; it may lie in any other.

use std::time::Duration;

use distlock::{Admission, FencingToken, Guard, Locks, clock};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("say which store: a URL")?;
    distlock::open(&url).await?.migrate().await?;
    let locks = distlock::connect(&url).await?;
    let mut ledger = Ledger::open(&url).await?;
    let name = format!("ledger:{}", std::process::id());

    let slow = acquire(&locks, &name).await?;
    let stale = slow.fencing_token().ok_or("this store has no fencing")?;
    // The process is stopped here for longer than its lease, and does not know.
    std::mem::forget(slow);
    let quick = wait_for(&locks, &name).await?;
    let token = quick.fencing_token().ok_or("this store has no fencing")?;

    println!("quick writes: {:?}", ledger.write(&name, token).await?);
    match ledger.write(&name, stale).await? {
        Admission::Stale(stale) => println!("slow is refused: {}", stale.seen == token),
        Admission::Admitted => println!("slow wrote over it"),
    }
    quick.release().await?;
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

async fn acquire(locks: &Locks, name: &str) -> Result<Guard> {
    let lock = locks.lock(name)?.at_most_for(Duration::from_secs(1));
    let guard = lock.try_acquire().await?.acquired();
    Ok(guard.ok_or("somebody else has the lock")?)
}

async fn wait_for(locks: &Locks, name: &str) -> Result<Guard> {
    loop {
        match acquire(locks, name).await {
            Ok(guard) => return Ok(guard),
            Err(_) => clock::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What the lock protects.
enum Ledger {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
    Redis(distlock::redis::redis::aio::MultiplexedConnection),
}

impl Ledger {
    async fn open(url: &str) -> Result<Self> {
        let scheme = url.split(':').next().unwrap_or_default();
        Ok(match scheme {
            "postgres" | "postgresql" => {
                let mut connection = PgConnection::connect(url).await?;
                let fences = distlock::postgres::Fences::default().schema_sql();
                sqlx::raw_sql(AssertSqlSafe(fences))
                    .execute(&mut connection)
                    .await?;
                Self::Postgres(connection)
            }
            "mysql" | "mariadb" => {
                let mut connection = MySqlConnection::connect(url).await?;
                let fences = distlock::mysql::Fences::default().schema_sql();
                sqlx::raw_sql(AssertSqlSafe(fences))
                    .execute(&mut connection)
                    .await?;
                Self::MySql(connection)
            }
            "sqlite" => {
                let mut connection = SqliteConnection::connect(url).await?;
                let fences = distlock::sqlite::Fences::default().schema_sql();
                sqlx::raw_sql(AssertSqlSafe(fences))
                    .execute(&mut connection)
                    .await?;
                Self::Sqlite(connection)
            }
            _ => {
                let client = distlock::redis::redis::Client::open(url)?;
                Self::Redis(client.get_multiplexed_async_connection().await?)
            }
        })
    }

    /// Writes, unless a greater token was seen. In SQL the token is admitted first in the transaction that writes; in
    /// Redis the script that writes looks at it.
    async fn write(&mut self, resource: &str, token: FencingToken) -> Result<Admission> {
        match self {
            Self::Postgres(connection) => {
                let mut transaction = connection.begin().await?;
                let fences = distlock::postgres::Fences::default();
                let admission = fences.admit(&mut transaction, resource, token).await?;
                if admission == Admission::Admitted {
                    // The writes of the job stand here.
                    transaction.commit().await?;
                }
                Ok(admission)
            }
            Self::MySql(connection) => {
                let mut transaction = connection.begin().await?;
                let fences = distlock::mysql::Fences::default();
                let admission = fences.admit(&mut transaction, resource, token).await?;
                if admission == Admission::Admitted {
                    transaction.commit().await?;
                }
                Ok(admission)
            }
            Self::Sqlite(connection) => {
                let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
                let fences = distlock::sqlite::Fences::default();
                let admission = fences.admit(&mut transaction, resource, token).await?;
                if admission == Admission::Admitted {
                    transaction.commit().await?;
                }
                Ok(admission)
            }
            Self::Redis(connection) => {
                let script = distlock::redis::FencedScript::set();
                let fence = format!("{{{resource}}}:fence");
                let call = script.call(fence, token);
                let call = call.key(format!("{{{resource}}}")).arg("written");
                Ok(match call.run::<()>(connection).await? {
                    Ok(()) => Admission::Admitted,
                    Err(stale) => Admission::Stale(stale),
                })
            }
        }
    }
}
