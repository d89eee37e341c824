//! What keeps the file from holding locks, or weakens a promise. It touches no lock.

use std::cmp::Reverse;
use std::time::Duration;

use distlock_api::{AcquireRequest, Error, Finding, Findings, LockName, Result, options};
use sqlx::{Executor, Row, SqliteConnection};

use crate::clock::Now;
use crate::record::Record;
use crate::server::Server;
use crate::{error, file};

/// A write that fails where the file cannot be written.
const WRITE_NOTHING: &str = include_str!("statements/write_nothing.sql");

impl Server {
    /// Looks at the file, over a connection of its own. What the first call would make is made.
    pub(crate) async fn check(&self, now: &Now<'_>) -> Result<Findings> {
        if let Some(fault) = file::irregular(&self.settings.path) {
            // Nothing else is to be asked of a pipe or a device.
            return Ok(fault.into());
        }
        if self.settings.create {
            // What keeps it from being made is seen below.
            let _ = self.open().await;
        }
        let mut findings = Vec::from_iter((self.settings.not_local)(&self.settings.path));
        let looked = self.look(&mut findings, now).await;
        findings.extend(file::weaknesses(&self.settings.path));
        match looked {
            Err(error) if findings.is_empty() => return Err(error),
            Err(error) => findings.push(unfinished(&error)),
            Ok(()) => {}
        }
        findings.sort_by_key(|finding| Reverse(finding.severity));
        Ok(findings.into_iter().collect())
    }

    /// Adds what it finds as it goes. An error is something that passes by itself.
    async fn look(&self, findings: &mut Vec<Finding>, now: &Now<'_>) -> Result<()> {
        let looked = async {
            let mut connection = self.connect_to_any(false).await?.connection;
            let faults = self.table_faults(&mut connection).await?;
            let is_right = faults.is_empty();
            findings.extend(faults);
            findings.extend(self.warnings(&mut connection).await?);
            Ok((connection, is_right))
        };
        let (mut connection, is_right) = match looked.await {
            Ok(looked) => looked,
            Err(error) => {
                findings.push(self.cannot_open(error)?);
                return Ok(());
            }
        };
        let written = match is_right {
            true => self.rehearse_grant(&mut connection, now).await?,
            false => self.rehearse_migration(&mut connection).await,
        };
        if let Err(error) = written {
            let fault = error::fault(&error, &self.statements.table);
            findings.push(fault.ok_or_else(|| error::of(error))?);
        }
        Ok(())
    }

    /// Why the file cannot be opened, if that is to be mended.
    fn cannot_open(&self, error: sqlx::Error) -> Result<Finding> {
        let obstacle = file::obstacle(&self.settings.path, false);
        let fault = obstacle.or_else(|| error::fault(&error, &self.statements.table));
        fault.ok_or_else(|| error::of(error))
    }

    /// Writes a lock twice and undoes that. It fails where the file cannot be written, or where a constraint of the table's
    /// refuses locks.
    async fn rehearse_grant(
        &self,
        connection: &mut SqliteConnection,
        now: &Now<'_>,
    ) -> Result<sqlx::Result<()>> {
        let [granted, resting] = rehearsed(now)?;
        let rehearsed = async {
            connection.execute("BEGIN IMMEDIATE").await?;
            for record in [&granted, &resting] {
                let save = record.bound_to(self.statements.save.clone());
                save.execute(&mut *connection).await?;
            }
            connection.execute("ROLLBACK").await.map(drop)
        };
        Ok(rehearsed.await)
    }

    /// The same where there is no right table to write to: makes it, if it is missing, and undoes that.
    async fn rehearse_migration(&self, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        connection.execute("BEGIN IMMEDIATE").await?;
        connection.execute(WRITE_NOTHING).await?;
        connection.execute(self.statements.schema.clone()).await?;
        connection.execute("ROLLBACK").await.map(drop)
    }

    async fn warnings(&self, connection: &mut SqliteConnection) -> sqlx::Result<Vec<Finding>> {
        let mut warnings = Vec::new();
        let mode = connection.fetch_one("PRAGMA journal_mode").await?;
        warnings.extend(journal(mode.try_get(0)?));
        let table = &self.statements.table;
        let triggers = sqlx::query_scalar(self.statements.triggers.clone()).bind(table);
        for trigger in triggers.fetch_all(connection).await? {
            let trigger: String = trigger;
            warnings.push(Finding::warning(
                format!(
                    "the table {table} has a trigger {trigger}, which may change what locks store"
                ),
                format!("DROP TRIGGER \"{}\"", trigger.replace('"', "\"\"")),
            ));
        }
        Ok(warnings)
    }
}

/// What else there is to find is not known: what was found is so all the same.
fn unfinished(error: &Error) -> Finding {
    let what = format!("not all was looked at ({})", error.message());
    Finding::fault(error.kind(), what, "check again after that")
}

/// A lock with the longest name and owner, as it is granted for the first time, and as it rests after its first tick.
fn rehearsed(now: &Now<'_>) -> Result<[Record; 2]> {
    let name = LockName::new("n".repeat(LockName::MAX_BYTES))?;
    let owner = "o".repeat(options::MAX_OWNER_BYTES);
    let request = AcquireRequest::new(name, owner, Duration::from_secs(1));
    let granted = Record::granted(&request, None, now)?;
    let mut resting = granted.clone();
    resting.last_tick = Some(now.wall());
    resting.resting = true;
    Ok([granted, resting])
}

/// What is to be said of how a write is kept whole. How it gets to the disk is ours to say, and said.
fn journal(mode: &str) -> Option<Finding> {
    match mode {
        "wal" => None,
        "off" | "memory" => Some(Finding::warning(
            format!("a crash in the middle of a write can damage the file (journal_mode {mode})"),
            "leave journal_mode out of the connection's options",
        )),
        _ => Some(Finding::warning(
            format!(
                "whoever reads the file for long keeps locks from being taken, renewed and freed (journal_mode {mode})"
            ),
            "PRAGMA journal_mode = WAL",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::schema::Statements;
    use crate::server::Settings;

    fn server(path: std::path::PathBuf) -> Server {
        let settings = Settings {
            path,
            options: sqlx::sqlite::SqliteConnectOptions::new(),
            operation_limit: std::time::Duration::from_secs(5),
            create: false,
            not_local: |path| Some(file::not_local(path, "NFS")),
        };
        Server::new(settings, Statements::new("t").unwrap())
    }

    #[tokio::test]
    async fn a_file_that_other_machines_may_share_is_told_with_all_else_and_never_used() {
        let folder = tempfile::tempdir().unwrap();
        let server = server(folder.path().join("a.db"));
        let clock = Clock::new().unwrap();
        let findings = server.check(&clock.now()).await.unwrap();
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(found[0].contains("(NFS), where SQLite cannot"), "{found:?}");
        assert!(found[1].starts_with("there is no file"), "{found:?}");
        for error in [
            server.session().await.unwrap_err(),
            server.migrate().await.unwrap_err(),
        ] {
            assert_eq!(error.message(), found[0]);
        }
        assert!(!folder.path().join("a.db").exists());
    }
}
