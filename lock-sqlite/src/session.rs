//! The connection in use: reading, and write transactions.

use std::time::Duration;

use distlock_api::connections::Taken;
use distlock_api::{LeaseId, LockName, Result};
use sqlx::Executor;

use crate::clock::Now;
use crate::error;
use crate::record::Record;
use crate::schema::Statements;
use crate::server::Opened;

/// The connection, between transactions. Dropped before [`keep`](Self::keep), it is closed.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    taken: Taken<'a, Opened>,
    statements: &'a Statements,
}

impl<'a> Session<'a> {
    pub(crate) fn new(taken: Taken<'a, Opened>, statements: &'a Statements) -> Self {
        Self { taken, statements }
    }

    /// The record as it is, without a lock on the file.
    pub(crate) async fn find(&mut self, name: &LockName) -> Result<Option<Record>> {
        let query = sqlx::query(self.statements.find.clone()).bind(name.as_str());
        let row = query
            .fetch_optional(&mut self.taken.connection)
            .await
            .map_err(error::of)?;
        row.as_ref().map(Record::from_row).transpose()
    }

    pub(crate) async fn list(&mut self) -> Result<Vec<Record>> {
        let query = sqlx::query(self.statements.list.clone());
        let rows = query
            .fetch_all(&mut self.taken.connection)
            .await
            .map_err(error::of)?;
        rows.iter().map(Record::from_row).collect()
    }

    /// Deletes what has been free for this long.
    pub(crate) async fn purge(&mut self, free_for: Duration, now: &Now<'_>) -> Result<u64> {
        let free_for = i64::try_from(free_for.as_micros()).unwrap_or(i64::MAX);
        let query = sqlx::query(self.statements.purge.clone())
            .bind(now.boot_id)
            .bind(now.boot() - free_for)
            .bind(now.wall() - free_for)
            .bind(now.wall());
        let done = query
            .execute(&mut self.taken.connection)
            .await
            .map_err(error::of)?;
        Ok(done.rows_affected())
    }

    /// Takes the file's write lock, so that nothing changes any more, and reads the record.
    ///
    /// The clock is to be read afterwards: a lease that ends while we wait for the write lock is over.
    pub(crate) async fn begin(
        mut self,
        name: &LockName,
    ) -> Result<(Transaction<'a>, Option<Record>)> {
        let query = sqlx::query(self.statements.begin_find.clone()).bind(name.as_str());
        let row = query
            .fetch_optional(&mut self.taken.connection)
            .await
            .map_err(error::of)?;
        let found = row.as_ref().map(Record::from_row).transpose()?;
        Ok((Transaction { session: self }, found))
    }

    /// Takes the file's write lock; the clock is to be read afterwards.
    pub(crate) async fn begin_many(mut self) -> Result<Transaction<'a>> {
        let begun = self.taken.connection.execute("BEGIN IMMEDIATE").await;
        begun.map_err(error::of)?;
        Ok(Transaction { session: self })
    }

    /// Gives the connection back: it is in no transaction.
    pub(crate) fn keep(self) {
        self.taken.keep();
    }
}

/// The connection in a write transaction. Dropped before the end it is closed, and SQLite undoes what was begun.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    session: Session<'a>,
}

impl Transaction<'_> {
    /// Writes the record and commits.
    pub(crate) async fn save(mut self, record: &Record) -> Result<()> {
        let statement = self.session.statements.save_commit.clone();
        let saved = record.bound_to(statement);
        let saved = saved.execute(&mut self.session.taken.connection).await;
        saved.map_err(error::of)?;
        self.session.keep();
        Ok(())
    }

    /// Moves the end of one lease; false where the lease is over.
    pub(crate) async fn renew(
        &mut self,
        lease: &LeaseId,
        ttl: Duration,
        now: &Now<'_>,
    ) -> Result<bool> {
        let query = sqlx::query(self.session.statements.renew.clone())
            .bind(lease.name.as_str())
            .bind(lease.token.as_bytes().as_slice())
            .bind(now.boot_id)
            .bind(now.boot())
            .bind(now.boot_after(ttl))
            .bind(now.wall_after(ttl));
        let done = query
            .execute(&mut self.session.taken.connection)
            .await
            .map_err(error::of)?;
        Ok(done.rows_affected() == 1)
    }

    pub(crate) async fn find(&mut self, name: &LockName) -> Result<Option<Record>> {
        self.session.find(name).await
    }

    /// Ends the transaction with what was written, if anything was.
    pub(crate) async fn commit(mut self) -> Result<()> {
        let connection = &mut self.session.taken.connection;
        connection.execute("COMMIT").await.map_err(error::of)?;
        self.session.keep();
        Ok(())
    }
}
