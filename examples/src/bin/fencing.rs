//! A holder that is frozen past the end of its lease and writes when it wakes up: the resource refuses it.
//!
//! `fencing STORE_URL`, with a URL of PostgreSQL, MySQL, MariaDB, Redis, or an SQLite file. What the lock protects lies in
//! the same store here, so that one URL is enough; it may lie in any other.

use std::time::Duration;

use distlock::redis::FencedScript;
use distlock::redis::redis::aio::MultiplexedConnection;
use distlock::{
    Acquisition, Admission, FencingToken, Guard, Locks, clock, mysql, postgres, sqlite,
};
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
    ledger.close(&name).await?;
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

async fn acquire(locks: &Locks, name: &str) -> Result<Guard> {
    let lock = locks.lock(name)?.at_most_for(Duration::from_secs(1));
    let guard = lock.try_acquire().await?.acquired();
    Ok(guard.ok_or("somebody else has the lock")?)
}

async fn wait_for(locks: &Locks, name: &str) -> Result<Guard> {
    let lock = locks.lock(name)?.at_most_for(Duration::from_secs(30));
    loop {
        match lock.try_acquire().await? {
            Acquisition::Acquired(guard) => return Ok(guard),
            _ => clock::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What the lock protects.
enum Ledger {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
    Redis(MultiplexedConnection),
}

/// The table of the fences. A service has `Fences::default()`, and makes it in its migrations.
fn table() -> String {
    format!("fences_{}", std::process::id())
}

/// In SQL: the token is admitted first in the transaction that writes.
macro_rules! write_in_transaction {
    ($transaction:expr, $fences:expr, $resource:expr, $token:expr) => {{
        let mut transaction = $transaction;
        let admission = $fences.admit(&mut transaction, $resource, $token).await?;
        if admission == Admission::Admitted {
            // The writes of the job stand here.
            transaction.commit().await?;
        }
        Ok(admission)
    }};
}

impl Ledger {
    async fn open(url: &str) -> Result<Self> {
        let scheme = url.split(':').next().unwrap_or_default();
        let mut ledger = match scheme {
            "postgres" | "postgresql" => Self::Postgres(PgConnection::connect(url).await?),
            "mysql" | "mariadb" => Self::MySql(MySqlConnection::connect(url).await?),
            "sqlite" => Self::Sqlite(SqliteConnection::connect(url).await?),
            _ => {
                let client = distlock::redis::redis::Client::open(url)?;
                Self::Redis(client.get_multiplexed_async_connection().await?)
            }
        };
        match ledger {
            Self::Postgres(_) => ledger.run(postgres_fences()?.schema_sql()).await?,
            Self::MySql(_) => ledger.run(mysql_fences()?.schema_sql()).await?,
            Self::Sqlite(_) => ledger.run(sqlite_fences()?.schema_sql()).await?,
            Self::Redis(_) => {}
        }
        Ok(ledger)
    }

    async fn write(&mut self, resource: &str, token: FencingToken) -> Result<Admission> {
        match self {
            Self::Postgres(connection) => {
                let transaction = connection.begin().await?;
                write_in_transaction!(transaction, postgres_fences()?, resource, token)
            }
            Self::MySql(connection) => {
                let transaction = connection.begin().await?;
                write_in_transaction!(transaction, mysql_fences()?, resource, token)
            }
            Self::Sqlite(connection) => {
                let transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
                write_in_transaction!(transaction, sqlite_fences()?, resource, token)
            }
            // In Redis the script that writes looks at the token.
            Self::Redis(connection) => {
                let script = FencedScript::set();
                let call = script.call(format!("{{{resource}}}:fence"), token);
                let call = call.key(format!("{{{resource}}}")).arg("written");
                Ok(match call.run::<()>(connection).await? {
                    Ok(()) => Admission::Admitted,
                    Err(stale) => Admission::Stale(stale),
                })
            }
        }
    }

    async fn close(mut self, resource: &str) -> Result<()> {
        if let Self::Redis(connection) = &mut self {
            let mut delete = distlock::redis::redis::cmd("DEL");
            delete.arg(format!("{{{resource}}}"));
            delete.arg(format!("{{{resource}}}:fence"));
            return Ok(delete.query_async(connection).await?);
        }
        self.run(format!("DROP TABLE {}", table())).await
    }

    async fn run(&mut self, sql: String) -> Result<()> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Postgres(connection) => sql.execute(connection).await.map(drop)?,
            Self::MySql(connection) => sql.execute(connection).await.map(drop)?,
            Self::Sqlite(connection) => sql.execute(connection).await.map(drop)?,
            Self::Redis(_) => {}
        }
        Ok(())
    }
}

fn postgres_fences() -> Result<postgres::Fences> {
    Ok(postgres::Fences::in_table(postgres::Table::new(table())?))
}

fn mysql_fences() -> Result<mysql::Fences> {
    Ok(mysql::Fences::in_table(mysql::Table::new(table())?))
}

fn sqlite_fences() -> Result<sqlite::Fences> {
    Ok(sqlite::Fences::in_table(&table())?)
}
