use distlock_api::fencing;
use distlock_api::{Admission, Effect, Error, ErrorKind, FencingToken, Result, StaleToken};
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::error;
use crate::schema::Table;
use crate::statements::text;

/// Refuses stale holders where the data is: a table that remembers the greatest fencing token of each resource.
///
/// A lease can end while its holder is about to write: no lock service can prevent that, only the resource can. Let each
/// transaction that writes to what a lock protects begin with [`admit`](Self::admit). It lets the token in if no greater one
/// came before, and keeps all others out until the transaction ends. So a holder that was frozen is refused once its
/// successor was here, and cannot come between the successor's statements.
///
/// ```no_run
/// # async fn example(pool: &sqlx::MySqlPool, token: distlock_api::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// use distlock_mysql::Fences;
///
/// let mut transaction = pool.begin().await?;
/// let fences = Fences::default();
/// fences.admit(&mut transaction, "stock", token).await?.admitted()?;
/// sqlx::query("UPDATE stock SET quantity = quantity - 1 WHERE id = ?")
///     .bind(7)
///     .execute(&mut *transaction)
///     .await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// One resource, one lock name: tokens of different names, or of one name in different stores, cannot be compared. The table
/// is [made](Self::schema_sql) once; nothing is ever deleted from it. It takes `SELECT`,
/// `INSERT` and `UPDATE` on it.
///
/// # A column of your own instead
///
/// Where all that is protected is one row, it can remember the token itself:
///
/// ```sql
/// UPDATE stock SET quantity = ?, fence = ? WHERE id = ? AND fence <= ?
/// ```
///
/// with the token for `fence`, twice. No row: the row is missing, or the token is stale. Mind what your driver counts: sqlx
/// always sets the flag `CLIENT_FOUND_ROWS`, so that `rows_affected` tells the rows that were found. Without that flag, as in
/// many other drivers, a row that has all these values already is not counted, and a holder that writes the same twice looks
/// stale. `fence` is `BIGINT UNSIGNED NOT NULL DEFAULT 0`; a column that may be null refuses everybody.
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
    pub fn schema_sql(&self) -> String {
        let table = self.table.to_string();
        include_str!("statements/fences_schema.sql").replace("{table}", &table)
    }

    /// Lets a holder in unless one with a greater fencing token came before, and remembers it.
    ///
    /// Call it first in your transaction, under any isolation level: its row stays locked until the transaction ends, and
    /// under `REPEATABLE READ` what you read before might be older than what the last holder wrote.
    ///
    /// `resource` is any text of up to 255 characters, compared byte for byte. Three round trips, two more for the first
    /// call of a connection.
    ///
    /// # Errors
    ///
    /// Always without effect, for the transaction is to be rolled back. [`ErrorKind::Unavailable`], retryable, where the
    /// server rolled the whole transaction back for others' sake: begin it again, and write nothing more in the session
    /// before, for it would be outside of any transaction. That is a deadlock (1213), such as of first comers behind one that
    /// rolled back; and on MariaDB with `innodb_snapshot_isolation`, as it is by default since 11.6, 1020: somebody else
    /// changed the row after your transaction had its snapshot, which under `REPEATABLE READ` it has from its first read on,
    /// and under `SERIALIZABLE` from its first statement on. [`ErrorKind::SchemaMissing`] for a missing table,
    /// [`ErrorKind::Config`] outside of a transaction and for a table that is not as [`schema_sql`](Self::schema_sql) makes
    /// it, [`ErrorKind::InvalidOption`] for a resource that is too long.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have let the token in. Roll the transaction back, as dropping it does.
    pub async fn admit(
        &self,
        connection: &mut MySqlConnection,
        resource: &str,
        token: FencingToken,
    ) -> Result<Admission> {
        // A session that is not strict would cut it, and take two resources for one.
        if resource.chars().count() > MAX_CHARS {
            let text = format!("a resource's name has at most {MAX_CHARS} characters: shorten it");
            return Err(Error::new(ErrorKind::InvalidOption, text));
        }
        let admission = self.ask(connection, resource, token).await;
        admission.map_err(|error| self.refused(error))
    }

    async fn ask(
        &self,
        connection: &mut MySqlConnection,
        resource: &str,
        token: FencingToken,
    ) -> sqlx::Result<Admission> {
        let in_transaction = text(include_str!("statements/in_transaction.sql"), &self.table);
        sqlx::raw_sql(AssertSqlSafe(in_transaction))
            .execute(&mut *connection)
            .await
            .map_err(outside)?;
        let admit = text(include_str!("statements/admit.sql"), &self.table);
        sqlx::query(AssertSqlSafe(admit))
            .bind(resource)
            .bind(resource)
            .bind(token.value())
            .bind(token.value())
            .execute(&mut *connection)
            .await?;
        let admitted = text(include_str!("statements/admitted.sql"), &self.table);
        let seen: Vec<u64> = sqlx::query_scalar(AssertSqlSafe(admitted))
            .bind(resource)
            .fetch_all(connection)
            .await?;
        match seen[..] {
            [seen] if seen == token.value() => Ok(Admission::Admitted),
            [seen] if seen > token.value() => {
                let seen = FencingToken::new(seen);
                Ok(Admission::Stale(StaleToken { token, seen }))
            }
            // Two rows of one resource, or none, or one that does not have the token.
            _ => Err(self.unfit()),
        }
    }

    fn unfit(&self) -> sqlx::Error {
        ours(fencing::unfit(&self.table))
    }

    fn refused(&self, error: sqlx::Error) -> Error {
        let error = match error {
            // The driver cannot read it as what it should be.
            sqlx::Error::ColumnDecode { .. } => self.unfit(),
            error => error,
        };
        let error = match error::failed(error) {
            error if error.kind() == ErrorKind::SchemaMissing => fencing::missing(&self.table),
            error => error,
        };
        error.with_effect(Effect::None)
    }
}

/// The longest name that the table can hold.
const MAX_CHARS: usize = 255;

/// The table `distlock_fences`, in the connection's database.
impl Default for Fences {
    fn default() -> Self {
        let table = Table::new("distlock_fences").expect("a good name");
        Self::in_table(table)
    }
}

fn outside(error: sqlx::Error) -> sqlx::Error {
    match error::is_no_savepoint(&error) {
        true => ours(fencing::no_transaction()),
        false => error,
    }
}

fn ours(error: Error) -> sqlx::Error {
    sqlx::Error::Decode(error.into())
}
