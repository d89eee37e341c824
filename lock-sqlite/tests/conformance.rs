//! One SQLite file under all rules.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use distlock_api::{LockAdmin, Result};
use distlock_conformance::{StoreError, Suite};
use distlock_sqlite::{DEFAULT_TABLE, SqliteBackend};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions};

/// Names the file for the rules' second processes, which are this program again.
const FILE: &str = "DISTLOCK_SQLITE_CONFORMANCE_FILE";

fn main() -> ExitCode {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else {
        return again_with_a_file();
    };
    let open = |table: &'static str| {
        let file = file.clone();
        move || open(file.clone(), table)
    };
    let delete = |condition: &'static str| {
        let file = file.clone();
        move |name: String| delete(file.clone(), condition, name)
    };
    let (forget, empty) = (
        delete("distlock_locks WHERE name = ?1"),
        delete("emptied WHERE ?1 = ''"),
    );
    Suite::with_admin("sqlite", open(DEFAULT_TABLE))
        .forget(move |name| forget(name.as_str().to_owned()))
        .flush(open("emptied"), move || empty(String::new()))
        .server(version)
        .rules_run(102)
        .run()
}

/// Runs the suite in this program started once more, with a file that is deleted afterwards.
fn again_with_a_file() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(std::env::args_os().skip(1));
    let status = again
        .env(FILE, folder.path().join("locks.db"))
        .status()
        .unwrap();
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

async fn open(file: PathBuf, table: &str) -> Result<SqliteBackend> {
    let backend = SqliteBackend::builder().file(file).table(table).build()?;
    backend.migrate().await?;
    Ok(backend)
}

async fn version() -> Result<String, StoreError> {
    let mut connection = SqliteConnectOptions::new().connect().await?;
    let version = sqlx::query_scalar("SELECT 'SQLite ' || sqlite_version()");
    Ok(version.fetch_one(&mut connection).await?)
}

async fn delete(file: impl AsRef<Path>, condition: &str, name: String) -> Result<(), StoreError> {
    let mut connection = SqliteConnectOptions::new().filename(file).connect().await?;
    let delete = AssertSqlSafe(format!("DELETE FROM {condition}"));
    sqlx::query(delete)
        .bind(name)
        .execute(&mut connection)
        .await?;
    Ok(())
}
