//! Fencing at the resource: what keeps a holder out whose lock was granted to somebody else since.
//!
//! A lock cannot stop a holder that was frozen past the end of its lease and goes on writing when it wakes up. The
//! database that it writes to can, in the same transaction, by the fencing token, which is greater for every later grant.
//!
//! # With a table for all resources
//!
//! [`Fences`] remembers the greatest token that each resource has seen. Call [`admit`](Fences::admit) first in the
//! transaction that writes, and roll back when it says that the token is stale:
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool, guard: distlock_api::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! use distlock_postgres::Fences;
//!
//! let token = guard.fencing_token().expect("PostgreSQL has fencing tokens");
//! let mut transaction = pool.begin().await?;
//! let admission = Fences::default().admit(&mut transaction, "stock", token).await?;
//! admission.admitted()?; // a stale token ends here, and the transaction with it
//! sqlx::query("UPDATE stock SET quantity = 7 WHERE id = 1").execute(&mut *transaction).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The row of the resource stays locked until the transaction ends, so that transactions of one resource come one after
//! the other, and a stale one cannot slip in behind the check.
//!
//! # With a column of your own table
//!
//! Where a job writes a single row, a column `fence bigint NOT NULL DEFAULT 0` in it does the same without a second table:
//!
//! ```sql
//! UPDATE stock SET quantity = $2, fence = $3 WHERE id = $1 AND fence <= $3
//! ```
//!
//! `$3` is the fencing token as a `bigint`. **No row updated** means that the token is stale, or that there is no such row:
//! either way nothing was written, and the job must end. A row that is missing is inserted with `INSERT … ON CONFLICT (id)
//! DO UPDATE SET quantity = EXCLUDED.quantity, fence = EXCLUDED.fence WHERE stock.fence <= EXCLUDED.fence`, whose row count
//! says the same.
//!
//! Tokens of different lock names cannot be compared: one resource, one lock name.

use distlock_api::fencing;
use distlock_api::{Admission, Effect, Error, ErrorKind, FencingToken, Result, StaleToken};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::error;
use crate::schema::Table;
use crate::statements::statement;
use crate::value::{Value, filled};

/// The greatest fencing token that each of your resources has seen, in a table beside them.
///
/// The [module's documentation](self) shows how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fences {
    table: Table,
}

impl Fences {
    /// Fences in this table.
    pub fn in_table(table: Table) -> Self {
        Self { table }
    }

    /// The SQL that makes the table, for people and their migration tools. It may be run again.
    ///
    /// The schema must exist. Who calls [`admit`](Self::admit) needs `USAGE` on it, and `SELECT`, `INSERT`, `UPDATE` on the
    /// table.
    pub fn schema_sql(&self) -> String {
        include_str!("statements/fences.sql").replace("{table}", &self.table.to_string())
    }

    /// Lets a fencing token in if the resource has seen none greater, and remembers it, in the caller's transaction.
    ///
    /// To be called first in it. The resource's row stays locked until it ends, so that others wait meanwhile: for as long
    /// as your session's `lock_timeout` says. Right at every isolation level. Under repeatable read and serializable, whoever
    /// waited for another transaction gets an error to retry.
    ///
    /// `resource` is any text without a zero byte, up to 2000 bytes. One simple message, two for a stale token, which pass a
    /// pooler as well.
    ///
    /// # Errors
    ///
    /// Always without effect, for the transaction is to be rolled back. [`ErrorKind::Unavailable`], retryable, where the
    /// server rolled it back for others' sake (40001, a deadlock): begin the transaction again.
    /// [`ErrorKind::SchemaMissing`] for a missing table, [`ErrorKind::Config`] outside of a transaction.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have let the token in. Roll the transaction back, as dropping it does.
    pub async fn admit(
        &self,
        connection: &mut PgConnection,
        resource: &str,
        token: FencingToken,
    ) -> Result<Admission> {
        let admission = self.ask(connection, resource, token).await;
        admission.map_err(|error| self.refused(error))
    }

    async fn ask(
        &self,
        connection: &mut PgConnection,
        resource: &str,
        token: FencingToken,
    ) -> sqlx::Result<Admission> {
        let fence = i64::try_from(token.value()).map_err(|_| ours(fencing::too_great(token)))?;
        let values = [resource.into(), fence.into()];
        let admitted = include_str!("statements/admit.sql");
        if self.row(connection, admitted, &values).await?.is_some() {
            return Ok(Admission::Admitted);
        }
        let seen = include_str!("statements/seen.sql");
        let row = self.row(connection, seen, &values).await?;
        let row = row.ok_or(sqlx::Error::RowNotFound)?;
        if !row.try_get::<bool, _>("in_transaction")? {
            return Err(ours(fencing::no_transaction()));
        }
        let seen: i64 = row.try_get("fence")?;
        let seen = FencingToken::new(u64::try_from(seen).unwrap_or(0));
        Ok(Admission::Stale(StaleToken { token, seen }))
    }

    /// By a simple message with the values in it: the connection is the caller's, and what is prepared in it could be
    /// another's behind a pooler.
    async fn row(
        &self,
        connection: &mut PgConnection,
        template: &str,
        values: &[Value<'_>],
    ) -> sqlx::Result<Option<PgRow>> {
        let sql = statement(template, &self.table);
        let sql = filled(&sql, values)?;
        sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_optional(connection)
            .await
    }

    fn refused(&self, error: sqlx::Error) -> Error {
        let error = match error::failed(error) {
            error if error.kind() == ErrorKind::SchemaMissing => fencing::missing(&self.table),
            error => error,
        };
        error.with_effect(Effect::None)
    }
}

/// `distlock_fences`, found by the search path.
impl Default for Fences {
    fn default() -> Self {
        Self::in_table(Table::new("distlock_fences").expect("a good name"))
    }
}

fn ours(error: Error) -> sqlx::Error {
    sqlx::Error::Decode(error.into())
}
