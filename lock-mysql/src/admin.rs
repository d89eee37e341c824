use std::time::Duration;

use async_trait::async_trait;
use distlock_api::exchange;
use distlock_api::{
    ErrorKind, FencingToken, Finding, Findings, ForceRelease, LockAdmin, LockName, LockRecord,
    Operation, Result,
};
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::backend::MySqlBackend;
use crate::check::check;
use crate::error;
use crate::schema::{quoted, schema_sql};
use crate::statements::{Forced, Purge, Records};

#[async_trait]
impl LockAdmin for MySqlBackend {
    async fn check(&self) -> Result<Findings> {
        self.limited(Operation::Check, async {
            let mut connection = self.server().connect().await?;
            self.findings(&mut connection).await
        })
        .await
    }

    /// Does nothing where the table is right already, so that it then needs no right to create one.
    async fn migrate(&self) -> Result<()> {
        self.limited(Operation::Migrate, async {
            let mut connection = self.server().connect().await?;
            let found = self.findings(&mut connection).await?;
            let is_missing = |finding: &Finding| finding.kind == ErrorKind::SchemaMissing;
            if !found.iter().any(is_missing) {
                return found.usable();
            }
            self.make_table(&mut connection).await?;
            self.findings(&mut connection).await?.usable()
        })
        .await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockRecord>> {
        let read = async { Ok(self.server().ask(&Records(Some(name))).await?.answer.pop()) };
        let read = self.limited(Operation::Inspect, read).await;
        read.map_err(|error| error.on(name))
    }

    /// A row whose name is no lock name, which only people can make, fails the whole list and is named: nothing that is
    /// in the table is passed over in silence.
    async fn list(&self) -> Result<Vec<LockRecord>> {
        self.limited(Operation::List, async {
            Ok(self.server().ask(&Records(None)).await?.answer)
        })
        .await
    }

    async fn force_release(
        &self,
        name: &LockName,
        only_if: Option<FencingToken>,
    ) -> Result<ForceRelease> {
        let force = async {
            let answered = self.server().ask(&Forced { name, only_if }).await?;
            answered.decided()
        };
        let forced = self.limited(Operation::ForceRelease, force).await;
        forced.map_err(|error| error.on(name))
    }

    async fn purge(&self, free_for: Duration) -> Result<u64> {
        let mut purged = 0;
        loop {
            let batch = async {
                let answered = self.server().ask(&Purge(free_for)).await?;
                match answered.doubt {
                    // How many the try in doubt deleted is unknown.
                    Some(doubt) => Err(doubt.error),
                    None => Ok(answered.answer),
                }
            };
            let deleted = self.limited(Operation::Purge, batch).await?;
            purged += deleted;
            if deleted < Purge::BATCH {
                return Ok(purged);
            }
        }
    }
}

impl MySqlBackend {
    async fn findings(&self, connection: &mut MySqlConnection) -> Result<Findings> {
        let found = check(connection, self.server().table()).await;
        found.map_err(error::failed)
    }

    /// The servers let one of many that make the same table go first, and the others find it made. Each statement commits
    /// by itself, on a connection that is nobody else's.
    async fn make_table(&self, connection: &mut MySqlConnection) -> Result<()> {
        let table = self.server().table();
        let made = execute(connection, schema_sql(table)).await;
        let (Err(error), Some(schema)) = (&made, table.schema()) else {
            return made.map_err(error::failed);
        };
        if !error::is_unknown_schema(error) {
            return made.map_err(error::failed);
        }
        let schema = format!("CREATE DATABASE IF NOT EXISTS {}", quoted(schema));
        let made = execute(connection, schema).await;
        made.map_err(error::failed)?;
        let made = execute(connection, schema_sql(table)).await;
        made.map_err(error::failed)
    }

    /// Nobody stands above these operations and limits them, so that they limit themselves.
    async fn limited<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        exchange::limited(self.server().limit(), "mysql", operation, work).await
    }
}

async fn execute(connection: &mut MySqlConnection, sql: String) -> sqlx::Result<()> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    done.map(drop)
}
