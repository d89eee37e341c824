use distlock_api::fencing;
use distlock_api::{Admission, Effect, Error, ErrorKind, FencingToken, Result, StaleToken};
use sqlx::SqliteConnection;

use crate::error;
use crate::schema::{about, check_table};

/// A table of yours that refuses holders whose lock has been granted to somebody else since.
///
/// A holder can be frozen between its last look at the lock and its write, longer than the lease. SQLite then still
/// takes the write, and only the fencing token tells that it comes too late. So the table remembers the greatest token
/// that was let in for each resource, in the transaction that does the writing:
///
/// ```
/// use distlock_api::{FencingToken, StaleToken};
/// use distlock_sqlite::Fences;
/// use sqlx::{Connection, Executor, SqliteConnection};
///
/// async fn sell(database: &mut SqliteConnection, token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
///     let mut transaction = database.begin_with("BEGIN IMMEDIATE").await?;
///     // First of all. Where it fails, the transaction is undone when it is dropped.
///     Fences::default().admit(&mut transaction, "stock", token).await?.admitted()?;
///     transaction.execute("UPDATE stock SET quantity = quantity - 1 WHERE id = 42").await?;
///     Ok(transaction.commit().await?)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut database = SqliteConnection::connect("sqlite::memory:").await?;
/// # database.execute("CREATE TABLE stock (id, quantity); INSERT INTO stock VALUES (42, 7)").await?;
/// # database.execute(sqlx::AssertSqlSafe(Fences::default().schema_sql())).await?;
/// # sell(&mut database, FencingToken::new(8)).await?;
/// # sell(&mut database, FencingToken::new(8)).await?;
/// # let stale = sell(&mut database, FencingToken::new(7)).await.unwrap_err();
/// # assert_eq!(stale.to_string(), "fencing token 7 is stale: 8 was seen already");
/// # let left: i64 = sqlx::query_scalar("SELECT quantity FROM stock").fetch_one(&mut database).await?;
/// # assert_eq!(left, 5);
/// # Ok(())
/// # }
/// ```
///
/// The table is in the database that is protected, which need not be the one of the locks. Make it by
/// [`schema_sql`](Self::schema_sql) in your own migrations.
///
/// One resource, one lock name: tokens of different names, or of one name in different stores, cannot be compared. All
/// that the lock protects is to be written in transactions that begin like this. A row is needed as long as its resource.
///
/// # Without a table
///
/// Where what is protected is one row, the token can be a column of it, `fence INTEGER NOT NULL DEFAULT 0`:
///
/// ```sql
/// UPDATE stock SET quantity = ?2, fence = ?3 WHERE id = ?1 AND fence <= ?3
/// ```
///
/// No row affected: the token is stale, or there is no such row. Every statement that writes the row needs the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fences {
    table: String,
}

impl Fences {
    /// A table of another name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] where `table` is no plain name: 1 to 63 letters (a to z), digits and `_`, no digit first,
    /// not `sqlite_…`.
    pub fn in_table(table: &str) -> Result<Self> {
        check_table(table)?;
        let table = table.to_owned();
        Ok(Self { table })
    }

    /// The SQL that makes the table, for your own migrations. It changes nothing where the table is there.
    pub fn schema_sql(&self) -> String {
        let schema = about(include_str!("statements/fences_schema.sql"), &self.table);
        schema.as_str().to_owned()
    }

    /// Lets the holder of this token in, if no greater one was seen for the resource, and remembers it.
    ///
    /// Call it first in a transaction of yours that began with `BEGIN IMMEDIATE`. It keeps all other writers out until that
    /// ends, so that nothing comes between the look at the token and what you write. After a plain `BEGIN`, SQLite refuses
    /// it where somebody wrote since the transaction read.
    ///
    /// # Errors
    ///
    /// Always without effect, for the transaction is to be rolled back. [`ErrorKind::SchemaMissing`] for a missing table,
    /// [`ErrorKind::Config`] outside of a transaction, [`ErrorKind::Timeout`] where another kept the file locked,
    /// [`ErrorKind::InvalidOption`] for a token greater than an `i64`, which no store of locks gives; and what else SQLite
    /// says.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have let the token in. Roll the transaction back, as dropping it does.
    pub async fn admit(
        &self,
        connection: &mut SqliteConnection,
        resource: &str,
        token: FencingToken,
    ) -> Result<Admission> {
        let fence = i64::try_from(token.value()).map_err(|_| fencing::too_great(token))?;
        if !is_in_transaction(connection).await? {
            return Err(fencing::no_transaction());
        }
        let admission = self.ask(connection, resource, token, fence).await;
        admission.map_err(|error| self.refused(error))
    }

    async fn ask(
        &self,
        connection: &mut SqliteConnection,
        resource: &str,
        token: FencingToken,
        fence: i64,
    ) -> sqlx::Result<Admission> {
        let admit = about(include_str!("statements/fences_admit.sql"), &self.table);
        let admit = sqlx::query(admit).bind(resource).bind(fence);
        if admit.fetch_optional(&mut *connection).await?.is_some() {
            return Ok(Admission::Admitted);
        }
        let seen = about(include_str!("statements/fences_seen.sql"), &self.table);
        let seen = sqlx::query_scalar(seen).bind(resource);
        let seen: i64 = seen.fetch_one(connection).await?;
        let seen = FencingToken::new(seen.cast_unsigned());
        Ok(Admission::Stale(StaleToken { token, seen }))
    }

    fn refused(&self, error: sqlx::Error) -> Error {
        let error = match error::of(error) {
            error if error.kind() == ErrorKind::SchemaMissing => fencing::missing(&self.table),
            error => error,
        };
        error.with_effect(Effect::None)
    }
}

/// The table `distlock_fences`.
impl Default for Fences {
    fn default() -> Self {
        Self::in_table("distlock_fences").expect("a good name")
    }
}

/// The driver knows only of the transactions that it began itself.
async fn is_in_transaction(connection: &mut SqliteConnection) -> Result<bool> {
    let statement = include_str!("statements/fences_in_transaction.sql");
    match sqlx::raw_sql(statement).execute(connection).await {
        Ok(_) => Ok(false),
        Err(sqlx::Error::Database(error)) if error.message().contains("inside a transaction") => {
            Ok(true)
        }
        Err(error) => Err(error::of(error).with_effect(Effect::None)),
    }
}
