use std::time::Duration;

use async_trait::async_trait;
use distlock_api::exchange;
use distlock_api::{
    ErrorKind, FencingToken, Findings, ForceRelease, LockAdmin, LockName, LockRecord, Operation,
    Result,
};

use crate::backend::PostgresBackend;
use crate::error;
use crate::schema::schema_sql;
use crate::session::Session;
use crate::statements::{Forced, Purge, Records};

/// Any number that no other program is likely to lock: "distlock" in ASCII.
const MIGRATION: i64 = i64::from_be_bytes(*b"distlock");

#[async_trait]
impl LockAdmin for PostgresBackend {
    async fn check(&self) -> Result<Findings> {
        self.limited(Operation::Check, async {
            let mut session = self.server().connect().await?;
            self.look(&mut session).await
        })
        .await
    }

    /// Does nothing where the table is right already, so that it then needs no right to create one.
    async fn migrate(&self) -> Result<()> {
        self.limited(Operation::Migrate, async {
            let mut session = self.server().connect().await?;
            match self.look(&mut session).await?.usable() {
                Err(error) if error.kind() == ErrorKind::SchemaMissing => {}
                other => return other,
            }
            self.make_table(&mut session).await?;
            self.look(&mut session).await?.usable()
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

impl PostgresBackend {
    async fn look(&self, session: &mut Session) -> Result<Findings> {
        let found = self.server().check(session).await;
        found.map_err(error::failed)
    }

    /// What creates is one message, hence one transaction, which no dropped future can leave open.
    async fn make_table(&self, session: &mut Session) -> Result<()> {
        let made = async {
            let table = self.server().table();
            // The wait for the others tells the session nothing of what they made: it remembers the schema as missing until
            // it next opens a table.
            let mut sql = format!(
                "SELECT pg_advisory_xact_lock({MIGRATION}); SELECT FROM pg_catalog.pg_namespace LIMIT 0;"
            );
            if let Some(schema) = table.quoted_schema() {
                let question = "SELECT to_regnamespace($1) IS NULL".into();
                let missing: Vec<(bool,)> = session.ask(&question, &[(&*schema).into()]).await?;
                if missing == [(true,)] {
                    sql += &format!("CREATE SCHEMA IF NOT EXISTS {schema};");
                }
            }
            session.run(&(sql + &schema_sql(table))).await
        };
        made.await.map_err(error::failed)
    }

    /// Nobody stands above these operations and limits them, so that they limit themselves.
    async fn limited<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        exchange::limited(self.server().limit(), "postgres", operation, work).await
    }
}
