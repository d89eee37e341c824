use std::time::Duration;

use async_trait::async_trait;
use distlock_api::{
    FencingToken, Findings, ForceRelease, LockAdmin, LockName, LockRecord, Operation, Result,
};

use crate::backend::{NAME, SqliteBackend};

impl SqliteBackend {
    async fn describe(&self, name: &LockName) -> Result<Option<LockRecord>> {
        let mut session = self.server.session().await?;
        let found = session.find(name).await?;
        session.keep();
        let now = self.clock.now();
        Ok(found.map(|record| record.describe(&now)))
    }

    async fn describe_all(&self) -> Result<Vec<LockRecord>> {
        let mut session = self.server.session().await?;
        let records = session.list().await?;
        session.keep();
        let now = self.clock.now();
        Ok(records.iter().map(|record| record.describe(&now)).collect())
    }

    async fn free(&self, name: &LockName, only_if: Option<FencingToken>) -> Result<ForceRelease> {
        let (transaction, found) = self.server.session().await?.begin(name).await?;
        let now = self.clock.now();
        let Some(mut record) = found else {
            transaction.commit().await?;
            return Ok(ForceRelease::NotHeld);
        };
        let answer = record.force_release(only_if, &now);
        match answer {
            ForceRelease::Freed { .. } => transaction.save(&record).await?,
            _ => transaction.commit().await?,
        }
        Ok(answer)
    }

    async fn delete(&self, free_for: Duration) -> Result<u64> {
        let mut session = self.server.session().await?;
        // One statement. A record that is granted anew while it waits to write no longer fits its condition.
        let deleted = session.purge(free_for, &self.clock.now()).await?;
        session.keep();
        Ok(deleted)
    }
}

#[async_trait]
impl LockAdmin for SqliteBackend {
    async fn check(&self) -> Result<Findings> {
        let findings = self.server.check(&self.clock.now()).await;
        findings.map_err(|e| e.during(NAME, Operation::Check))
    }

    async fn migrate(&self) -> Result<()> {
        let migrated = self.server.migrate().await;
        migrated.map_err(|e| e.during(NAME, Operation::Migrate))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockRecord>> {
        let record = self.describe(name).await;
        record.map_err(|e| e.during(NAME, Operation::Inspect).on(name))
    }

    async fn list(&self) -> Result<Vec<LockRecord>> {
        let records = self.describe_all().await;
        records.map_err(|e| e.during(NAME, Operation::List))
    }

    async fn force_release(
        &self,
        name: &LockName,
        only_if: Option<FencingToken>,
    ) -> Result<ForceRelease> {
        let answer = self.free(name, only_if).await;
        answer.map_err(|e| e.during(NAME, Operation::ForceRelease).on(name))
    }

    async fn purge(&self, free_for: Duration) -> Result<u64> {
        let deleted = self.delete(free_for).await;
        deleted.map_err(|e| e.during(NAME, Operation::Purge))
    }
}
