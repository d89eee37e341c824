//! What keeps the file from holding locks, or weakens a promise. It touches no lock.

use distlock_api::{Finding, Findings, Result};
use sqlx::{Executor, Row, SqliteConnection};

use crate::server::Server;
use crate::{error, file};

impl Server {
    /// Looks at the file, over a connection of its own. What the first call would make is made.
    pub(crate) async fn check(&self) -> Result<Findings> {
        if self.settings.create {
            // What keeps it from being made is seen below.
            let _ = self.open().await;
        }
        let mut findings = Findings::default();
        findings.extend((self.settings.not_local)(&self.settings.path));
        let mut connection = match self.connect_to_any(false).await {
            Ok(opened) => opened.connection,
            Err(error) => {
                findings.push(self.cannot_open(error)?);
                return Ok(findings);
            }
        };
        let faults = match self.table_faults(&mut connection).await {
            Ok(faults) => faults,
            Err(error) => {
                findings.push(self.cannot_open(error)?);
                return Ok(findings);
            }
        };
        let warnings = self.warnings(&mut connection).await.map_err(error::of)?;
        let written = match faults.is_empty() {
            true => self.write_nothing(&mut connection).await,
            false => self.rehearse_migration(&mut connection).await,
        };
        findings.extend(faults);
        if let Err(error) = written {
            findings.push(error::fault(&error).ok_or_else(|| error::of(error))?);
        }
        findings.extend(warnings);
        findings.extend(file::weaknesses(&self.settings.path));
        Ok(findings)
    }

    /// Why the file cannot be opened, if that is to be mended.
    fn cannot_open(&self, error: sqlx::Error) -> Result<Finding> {
        let obstacle = file::obstacle(&self.settings.path, false);
        let fault = obstacle.or_else(|| error::fault(&error));
        fault.ok_or_else(|| error::of(error))
    }

    /// Fails where the file cannot be written.
    async fn write_nothing(&self, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        let written = connection.execute(self.statements.write_nothing.clone());
        written.await.map(drop)
    }

    /// The same where there is no right table to write to: makes it, if it is missing, and undoes that.
    async fn rehearse_migration(&self, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        connection.execute("BEGIN IMMEDIATE").await?;
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
        let findings = server.check().await.unwrap();
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
