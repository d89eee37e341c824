//! What a check finds in a badly set up file, word for word.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;

use common::{Store, error_of, granted, request};
use distlock_api::{ErrorKind, LockAdmin, Severity};
use distlock_sqlite::{SqliteBackend, schema_sql};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, Executor};

/// Each finding as `severity kind what: fix`.
async fn found(backend: &SqliteBackend) -> Vec<String> {
    let findings = backend.check().await.unwrap();
    let text = findings.iter().map(|finding| match finding.severity {
        Severity::Fault => format!("fault {} {finding}", finding.kind),
        severity => format!("{severity} {finding}"),
    });
    text.collect()
}

/// A file with a write-ahead log, and in it what the SQL makes.
async fn with(sql: &str) -> Store {
    let store = Store::empty();
    store.run("PRAGMA journal_mode = WAL").await;
    store.run(sql).await;
    store
}

fn read_only(store: &Store) -> SqliteBackend {
    let options = SqliteConnectOptions::new().filename(store.path());
    let builder = SqliteBackend::builder().options(options.read_only(true));
    builder.build().unwrap()
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_file_that_is_set_up_well_gives_nothing_to_find() {
    let store = Store::migrated().await;
    granted(&store.backend(), &request("a")).await;
    assert!(found(&store.backend()).await.is_empty());
    let locks = store.backend().list().await.unwrap();
    assert_eq!(locks.len(), 1, "the check left one: {locks:?}");
}

#[tokio::test]
async fn what_is_not_there_is_told_by_its_name() {
    let store = Store::empty();
    let file = store.path();
    let shown = file.display();
    let no_file = format!(
        "fault config there is no file {shown}: \
         make it with `distlock migrate --store URL`, or add ?mode=rwc to the URL"
    );
    assert_eq!(found(&store.backend()).await, [no_file]);
    let deeper = file.join("deeper.db");
    let backend = SqliteBackend::builder().file(&deeper).build().unwrap();
    let no_folder = format!(
        "fault config the folder of {} does not exist: make it",
        deeper.display()
    );
    assert_eq!(found(&backend).await, [no_folder]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere/locks.db", &file).unwrap();
        let link = format!(
            "fault config {shown} is a symbolic link that leads to nothing: correct it; or see that it leads into a \
             folder, and run `distlock migrate --store URL`"
        );
        assert_eq!(found(&store.backend()).await, [link]);
        std::fs::remove_file(&file).unwrap();
    }
    std::fs::create_dir(&file).unwrap();
    let directory = format!("fault config {shown} is a directory: name a file in it");
    assert_eq!(found(&store.backend()).await, [directory]);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_told_and_left_alone() {
    let store = Store::empty();
    let text = "the quick brown fox ".repeat(1000);
    std::fs::write(store.path(), &text).unwrap();
    let expected = "fault config the file is no SQLite database, or an encrypted one (file is not a database, code 26): \
                    choose another file";
    assert_eq!(found(&store.backend()).await, [expected]);
    assert_eq!(std::fs::read_to_string(store.path()).unwrap(), text);
}

/// Neither the migration nor a lock call could write.
#[tokio::test]
async fn a_missing_table_and_a_file_that_cannot_be_written_are_told_at_once() {
    let store = with("CREATE TABLE theirs (id)").await;
    let missing = "fault schema_missing there is no table distlock_locks: run `distlock migrate --store URL`, call \
                   migrate(), or run the SQL of `distlock schema --for sqlite`";
    assert_eq!(found(&store.backend()).await, [missing]);
    let read_only_fault = "fault read_only the file cannot be written (attempt to write a readonly database, code 8): \
                     give this user the right to write it, the -wal and -shm beside it and their folder, and leave \
                     mode=ro out";
    assert_eq!(found(&read_only(&store)).await, [missing, read_only_fault]);
    store.backend().migrate().await.unwrap();
    assert_eq!(found(&read_only(&store)).await, [read_only_fault]);
    // Where a migration would find a table or a view, and write nothing.
    for theirs in [
        "TABLE distlock_locks (id)",
        "VIEW distlock_locks AS SELECT 1",
    ] {
        let store = with(&format!("CREATE {theirs}")).await;
        let found = found(&read_only(&store)).await;
        assert!(found.len() == 2 && found[1] == read_only_fault, "{found:?}");
    }
}

/// What is advised for any table of a wrong shape.
const ANEW: &str = "ALTER TABLE \"distlock_locks\" RENAME TO \"distlock_locks_old\"\n\
                    then run `distlock migrate --store URL`, or call migrate() (stop the jobs first: locks held in it \
                    are let go, and the ticks that were run forgotten; any name that is free will do for the old \
                    one)";

/// Does so.
async fn make_anew(store: &Store) {
    store.run(ANEW.lines().next().unwrap()).await;
    store.backend().migrate().await.unwrap();
    assert!(found(&store.backend()).await.is_empty());
}

#[tokio::test]
async fn all_that_is_wrong_with_a_table_is_told_at_once_and_mended_as_advised() {
    let ours = schema_sql("distlock_locks").unwrap();
    let theirs = ours
        .replace("PRIMARY KEY", "PRIMARY KEY COLLATE NOCASE")
        .replace(
            "fence      INTEGER NOT NULL",
            "fence TEXT, extra TEXT NOT NULL",
        )
        .replace("last_tick  INTEGER, ", "");
    let store = with(&theirs).await;
    let expected = "fault config the table distlock_locks has a column fence that is not INTEGER NOT NULL, has no column \
                    last_tick, has another primary key than name with the collation BINARY, has a column extra that \
                    wants a value: ";
    let expected = format!("{expected}{ANEW}");
    assert_eq!(found(&store.backend()).await, [&*expected]);
    let error = error_of(&store.backend()).await;
    assert!(expected.ends_with(error.message()), "{error}");
    make_anew(&store).await;
}

#[tokio::test]
async fn a_key_of_more_columns_than_the_name_is_told() {
    let ours = schema_sql("distlock_locks").unwrap();
    let theirs = ours
        .replace(" PRIMARY KEY", "            ")
        .replace(") WITHOUT", ", PRIMARY KEY (name, token)) WITHOUT");
    let store = with(&theirs).await;
    let found = found(&store.backend()).await;
    let key = "fault config the table distlock_locks has another primary key than name with the collation BINARY: ";
    assert!(found.len() == 1 && found[0].starts_with(key), "{found:?}");
}

/// What the definition does not show, a lock does that is written and undone.
#[tokio::test]
async fn a_constraint_that_refuses_locks_is_told_with_the_servers_words_and_nothing_stays_of_the_try()
 {
    let ours = schema_sql("distlock_locks").unwrap();
    for (constraint, words, code) in [
        (
            "CHECK (length(name) <= 100)",
            "CHECK constraint failed: length(name) <= 100",
            275,
        ),
        (
            "CHECK (resting = 0)",
            "CHECK constraint failed: resting = 0",
            275,
        ),
        (
            "FOREIGN KEY (locked_by) REFERENCES x",
            "FOREIGN KEY constraint failed",
            787,
        ),
    ] {
        let theirs = ours.replace(") WITHOUT", &format!(", {constraint}) WITHOUT"));
        let store = with(&format!("CREATE TABLE x (y PRIMARY KEY); {theirs}")).await;
        let expected = format!(
            "fault config the table has a constraint that is not ours ({words}, code {code}): {ANEW}"
        );
        assert_eq!(found(&store.backend()).await, [expected]);
        assert!(store.backend().list().await.unwrap().is_empty());
        make_anew(&store).await;
    }
    let harmless = ours.replace(") WITHOUT", ", CHECK (name <> '')) WITHOUT");
    assert!(found(&with(&harmless).await.backend()).await.is_empty());
}

#[tokio::test]
async fn a_unique_key_that_can_refuse_a_lock_is_told_and_one_with_the_name_in_it_is_not() {
    let ours = schema_sql("distlock_locks").unwrap();
    let theirs = ours.replace(") WITHOUT", ", UNIQUE (locked_by, fence)) WITHOUT");
    let store = with(&theirs).await;
    let fault = "fault config the table distlock_locks has a UNIQUE constraint on locked_by, fence that can refuse a \
                 lock: ";
    assert_eq!(found(&store.backend()).await, [format!("{fault}{ANEW}")]);
    make_anew(&store).await;

    let store = with(&ours).await;
    let indexes = "CREATE UNIQUE INDEX fine ON distlock_locks (locked_by, name); \
                   CREATE INDEX also_fine ON distlock_locks (locked_by); \
                   CREATE UNIQUE INDEX folded ON distlock_locks (name COLLATE NOCASE); \
                   CREATE UNIQUE INDEX \"their \"\"own\" ON distlock_locks (upper(locked_by))";
    store.run(indexes).await;
    let told = |index: &str| {
        format!(
            "fault config the table distlock_locks has an index {index} that can refuse a lock: DROP INDEX {index}"
        )
    };
    let two = found(&store.backend()).await;
    assert_eq!(two, [told(r#""their ""own""#), told("\"folded\"")]);
    assert_eq!(error_of(&store.backend()).await.kind(), ErrorKind::Config);
    for fault in two {
        store.run(fault.split_once("lock: ").unwrap().1).await;
    }
    assert!(found(&store.backend()).await.is_empty());
}

#[tokio::test]
async fn a_view_in_the_place_of_the_table_is_told_and_nothing_else_of_it() {
    let store = with("CREATE VIEW distlock_locks AS SELECT 1 AS name").await;
    let expected = "fault config distlock_locks is a view: drop it and run `distlock migrate --store URL`, or choose \
                    another lock_table";
    assert_eq!(found(&store.backend()).await, [expected]);
}

#[tokio::test]
async fn a_file_with_a_rollback_journal_is_warned_of_and_gives_locks() {
    let store = Store::empty();
    store.run(&schema_sql("distlock_locks").unwrap()).await;
    let backend = store.backend();
    let expected = "warning whoever reads the file for long keeps locks from being taken, renewed and freed \
                    (journal_mode delete): PRAGMA journal_mode = WAL";
    assert_eq!(found(&backend).await, [expected]);
    granted(&backend, &request("a")).await;
    let (_, statement) = expected.split_once("): ").unwrap();
    store.run(statement).await;
    assert!(found(&backend).await.is_empty());
}

#[tokio::test]
async fn a_journal_that_a_crash_would_lose_is_warned_of() {
    let store = Store::empty();
    store.run(&schema_sql("distlock_locks").unwrap()).await;
    for (mode, name) in [
        (SqliteJournalMode::Off, "off"),
        (SqliteJournalMode::Memory, "memory"),
    ] {
        let options = SqliteConnectOptions::new().filename(store.path());
        let builder = SqliteBackend::builder().options(options.journal_mode(mode));
        let expected = format!(
            "warning a crash in the middle of a write can damage the file (journal_mode {name}): \
             leave journal_mode out of the connection's options"
        );
        assert_eq!(found(&builder.build().unwrap()).await, [expected]);
    }
}

#[tokio::test]
async fn a_trigger_on_the_table_is_warned_of() {
    let store = Store::migrated().await;
    let mut connection = store.connection().await;
    let other = "CREATE TABLE x (y); CREATE TRIGGER z AFTER UPDATE ON x BEGIN SELECT 1; END";
    connection.execute(other).await.unwrap();
    let trigger =
        r#"CREATE TRIGGER "their ""own" AFTER UPDATE ON distlock_locks BEGIN SELECT 1; END"#;
    connection.execute(trigger).await.unwrap();
    let found_one = found(&store.backend()).await;
    let expected = r#"warning the table distlock_locks has a trigger their "own, which may change what locks store: DROP TRIGGER "their ""own""#;
    assert_eq!(found_one, [expected]);
    let (_, statement) = found_one[0].split_once("store: ").unwrap();
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
    assert!(found(&store.backend()).await.is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_others_may_write_or_replace_is_warned_of() {
    let store = Store::migrated().await;
    let (file, path) = (store.path(), store.path().display().to_string());
    let folder = file.parent().unwrap();
    let replaced = format!(
        "warning anybody on this machine may put another file in the place of {path}: chmod o-w {}",
        folder.display()
    );
    let beside = format!(
        "warning anybody on this machine may put a -wal or -journal of theirs beside {path}, and so change or break \
         it: choose a file in a folder that only its users may write"
    );
    let written = format!(
        "warning anybody on this machine may write {path}, and so take or free any lock: chmod o-w {path}"
    );
    for (of_file, of_folder, expected) in [
        (0o666, 0o700, vec![written.clone()]),
        (0o600, 0o777, vec![replaced.clone()]),
        // As /tmp.
        (0o600, 0o1777, vec![beside]),
        (0o666, 0o777, vec![written, replaced]),
        (0o664, 0o775, vec![]),
    ] {
        set_mode(&file, of_file);
        set_mode(folder, of_folder);
        assert_eq!(found(&store.backend()).await, expected);
    }
}

/// On a file system that is not mounted at the root, and in a folder whose name is no word for a shell.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_second_name_of_the_file_is_warned_of_and_shown_by_the_command() {
    let store = Store::empty_in(Path::new("/dev/shm"), "a b;'c");
    store.backend().migrate().await.unwrap();
    let (file, path) = (store.path(), store.path().display().to_string());
    let other = file.with_file_name("other.db");
    std::fs::hard_link(&file, &other).unwrap();
    let found_one = found(&store.backend()).await.join("\n");
    let begins = format!(
        "warning {path} has another name, by a hard link, and whoever opens it by that one breaks it: "
    );
    let ends = "\nthen stop whoever uses the other name, and delete it with the -wal, -shm and -journal beside it";
    let rest = found_one.strip_prefix(&begins).unwrap();
    let command = rest.strip_suffix(ends).unwrap();
    let mut shell = std::process::Command::new("sh");
    let shows = shell.arg("-c").arg(command).output().unwrap().stdout;
    let shows = String::from_utf8(shows).unwrap();
    let mut shows: Vec<_> = shows.lines().collect();
    shows.sort_unstable();
    assert_eq!(shows, [path.as_str(), other.to_str().unwrap()]);
    std::fs::remove_file(other).unwrap();
    assert!(found(&store.backend()).await.is_empty());
}

/// As the first call makes them.
#[tokio::test]
async fn what_the_first_call_would_make_is_made() {
    let store = Store::empty();
    let builder = SqliteBackend::builder().file(store.path()).create(true);
    assert!(found(&builder.build().unwrap()).await.is_empty());
    granted(&store.backend(), &request("a")).await;
    let builder =
        SqliteBackend::builder().file(store.path().with_file_name("no").join("deeper.db"));
    let found = found(&builder.create(true).build().unwrap()).await;
    assert!(found[0].ends_with("does not exist: make it"), "{found:?}");
}

/// It is not known what the file is like, so that nothing is said of it.
#[tokio::test]
async fn a_file_that_others_keep_locked_is_an_error_and_no_finding() {
    let store = Store::migrated().await;
    let mut writer = store.connection().await;
    writer.execute("BEGIN EXCLUSIVE").await.unwrap();
    let backend = store.impatient(std::time::Duration::from_millis(50));
    let error = backend.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn what_was_found_is_told_where_others_keep_the_file_locked_or_the_disk_is_full() {
    let store = with("CREATE TABLE distlock_locks (id)").await;
    let all = found(&store.backend()).await;
    let mut writer = store.connection().await;
    writer.execute("BEGIN IMMEDIATE").await.unwrap();
    let backend = store.impatient(std::time::Duration::from_millis(50));
    let busy = "fault timeout not all was looked at (another process kept the file locked for writing: keep write \
                transactions short): check again after that";
    assert_eq!(found(&backend).await, [all[0].as_str(), busy]);
    drop(writer);

    let store = with("CREATE TABLE theirs (id)").await;
    let missing = found(&store.backend()).await;
    let options = SqliteConnectOptions::new().filename(store.path());
    let options = options.pragma("max_page_count", "1");
    let backend = SqliteBackend::builder().options(options).build().unwrap();
    let full = "fault unavailable not all was looked at (the disk is full: free some of it): check again after that";
    assert_eq!(found(&backend).await, [missing[0].as_str(), full]);
}
