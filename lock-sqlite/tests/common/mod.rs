//! What the tests of this folder share: a file with a table, requests, a second connection that looks on.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use distlock_api::{AcquireRequest, Attempt, Error, LockAdmin, LockBackend, LockName};
use distlock_sqlite::SqliteBackend;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, SqliteConnection};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A file in a folder of its own, deleted at the end.
pub(crate) struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    /// No file yet.
    pub(crate) fn empty() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// No file yet, in a folder of this one.
    #[cfg(unix)]
    pub(crate) fn empty_in(folder: &std::path::Path, prefix: &str) -> Self {
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix(prefix).tempdir_in(folder).unwrap();
        Self { folder }
    }

    /// A file with the table.
    pub(crate) async fn migrated() -> Self {
        let store = Self::empty();
        store.backend().migrate().await.unwrap();
        store
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn backend(&self) -> SqliteBackend {
        SqliteBackend::builder().file(self.path()).build().unwrap()
    }

    pub(crate) fn impatient(&self, limit: Duration) -> SqliteBackend {
        let builder = SqliteBackend::builder().file(self.path());
        builder.operation_limit(limit).build().unwrap()
    }

    /// A connection of another program's kind.
    pub(crate) async fn connection(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path());
        options.create_if_missing(true).connect().await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &str) {
        let mut connection = self.connection().await;
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

pub(crate) fn request(lock: &str) -> AcquireRequest {
    AcquireRequest::new(name(lock), "tester", LEASE)
}

/// The fencing token of a grant that must be given.
pub(crate) async fn granted(backend: &SqliteBackend, request: &AcquireRequest) -> u64 {
    match backend.try_acquire(request).await.unwrap() {
        Attempt::Acquired { fencing_token } => fencing_token.unwrap().value(),
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn refused(backend: &SqliteBackend, lock: &str) -> bool {
    let attempt = backend.try_acquire(&request(lock)).await.unwrap();
    matches!(attempt, Attempt::Held(_))
}

pub(crate) async fn error_of(backend: &SqliteBackend) -> Error {
    backend.try_acquire(&request("a")).await.unwrap_err()
}

const TASK: &str = "DISTLOCK_SQLITE_TEST_TASK";
const FILE: &str = "DISTLOCK_SQLITE_TEST_FILE";

/// This test program once more, to run only its test `worker_process`, which asks for [`task`].
pub(crate) fn worker(task: &str, store: &Store) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["worker_process", "--exact", "--ignored", "--nocapture"]);
    command.env(TASK, task).env(FILE, store.path());
    command.stdout(Stdio::null());
    command
}

/// What a worker is to do, and to which file; `None` where nobody started it as a worker.
pub(crate) fn task() -> Option<(String, PathBuf)> {
    Some((std::env::var(TASK).ok()?, std::env::var_os(FILE)?.into()))
}

/// Waits for all of them, and fails where one failed.
pub(crate) fn all_succeed(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}
