//! What a check tells of a broken set-up: all of it at once, each with its fix.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::{Store, acquire};
use distlock_api::{ErrorKind, LockAdmin, Severity};
use distlock_postgres::PostgresBackend;

/// The findings as lines, with `{}` for the table.
async fn lines(store: &Store, backend: &PostgresBackend) -> Vec<String> {
    let findings = backend.check().await.unwrap();
    let table = format!("\"{}\"", store.table);
    let line = |finding: &distlock_api::Finding| {
        format!("{} {}: {finding}", finding.severity, finding.kind).replace(&table, "{}")
    };
    findings.iter().map(line).collect()
}

#[tokio::test]
async fn nothing_is_found_where_all_is_well() {
    let store = Store::new("well").await;
    assert_eq!(lines(&store, &store.backend()).await, [""; 0]);
    store.close().await;
}

#[tokio::test]
async fn a_missing_table_is_the_only_thing_to_tell() {
    let store = Store::without_table("gone").await;
    let expected = "fault schema_missing: the table {} is missing: run `distlock migrate --store URL`, call migrate(), \
                    or apply what `distlock schema --for postgres` prints";
    assert_eq!(lines(&store, &store.backend()).await, [expected]);
    store.close().await;
}

#[tokio::test]
async fn a_view_is_no_table() {
    let mut store = Store::new("view").await;
    store
        .run("ALTER TABLE {} RENAME TO {}_old; CREATE VIEW {} AS SELECT * FROM {}_old")
        .await;
    let expected = "fault config: {} is no table: drop it, or choose another lock_table";
    assert_eq!(lines(&store, &store.backend()).await, [expected]);
    store.run("DROP VIEW {}; DROP TABLE {}_old").await;
    store.close().await;
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_table_is_told_at_once() {
    let mut store = Store::new("wrong").await;
    store
        .run(
            "ALTER TABLE {} SET UNLOGGED;
             ALTER TABLE {} DROP CONSTRAINT {}_pkey, DROP resting, ALTER fence TYPE int,
                 ALTER token DROP NOT NULL, ADD COLUMN \"my extra\" int NOT NULL",
        )
        .await;
    let expected = [
        "fault config: {} is unlogged or temporary, so that a crash would forget who holds what: \
         ALTER TABLE {} SET LOGGED",
        "fault config: {} has no key on name alone: ALTER TABLE {} ADD PRIMARY KEY (name)",
        "fault config: {} takes null in the column token: ALTER TABLE {} ALTER COLUMN token SET NOT NULL",
        "fault config: {} has the column fence as integer: ALTER TABLE {} ALTER COLUMN fence TYPE bigint",
        "fault config: {} has no column resting: ALTER TABLE {} ADD COLUMN resting boolean NOT NULL",
        "fault config: {} has a further column \"my extra\" that refuses null: \
         ALTER TABLE {} ALTER COLUMN \"my extra\" DROP NOT NULL",
    ];
    assert_eq!(lines(&store, &store.backend()).await, expected);
    // The fixes are what they claim to be.
    let findings = store.backend().check().await.unwrap();
    for finding in &findings {
        store.run(&finding.fix).await;
    }
    assert_eq!(lines(&store, &store.backend()).await, [""; 0]);
    acquire(&store.backend(), "job").await;
    store.close().await;
}

#[tokio::test]
async fn whatever_can_refuse_a_lock_is_told_with_the_fix_that_mends_it() {
    let mut store = Store::new("refuses").await;
    store
        .run(
            "CREATE TABLE {}_people (name text PRIMARY KEY);
             ALTER TABLE {} ADD CONSTRAINT apart EXCLUDE (locked_by WITH =), ADD CONSTRAINT busy UNIQUE (locked_by),
                 ADD CONSTRAINT known FOREIGN KEY (locked_by) REFERENCES {}_people,
                 ADD CONSTRAINT short CHECK (length(locked_by) < 4),
                 DROP last_tick, ADD last_tick bigint GENERATED ALWAYS AS (fence) STORED,
                 ADD length smallint NOT NULL GENERATED ALWAYS AS (9000 * length(locked_by)) STORED;
             CREATE UNIQUE INDEX zone ON {} (lower(name))",
        )
        .await;
    let refuses = |kind: &str, fix: &str| {
        format!("fault config: {{}} has the {kind} that can refuse a lock: {fix}")
    };
    let constraint = |name: &str| {
        let fix = format!("ALTER TABLE {{}} DROP CONSTRAINT \"{name}\"");
        refuses(&format!("constraint \"{name}\""), &fix)
    };
    let expected = [
        constraint("apart"),
        constraint("busy"),
        constraint("known"),
        constraint("short"),
        refuses("unique index \"zone\"", "DROP INDEX \"public\".\"zone\""),
        "fault config: {} has the column last_tick as a generated one: \
         ALTER TABLE {} DROP COLUMN last_tick, ADD COLUMN last_tick bigint"
            .to_owned(),
        refuses("generated column \"length\"", "ALTER TABLE {} DROP COLUMN \"length\""),
    ];
    assert_eq!(lines(&store, &store.backend()).await, expected);
    for finding in &store.backend().check().await.unwrap() {
        store.run(&finding.fix).await;
    }
    assert_eq!(lines(&store, &store.backend()).await, [""; 0]);
    acquire(&store.backend(), "job").await;
    store.run("DROP TABLE {}_people").await;
    store.close().await;
}

#[tokio::test]
async fn missing_rights_and_hidden_rows_are_told_together() {
    let mut store = Store::new("hidden").await;
    let (role, options) = store.role().await;
    store
        .run(&format!(
            "REVOKE INSERT, UPDATE ON {{}} FROM {role}; ALTER TABLE {{}} ENABLE ROW LEVEL SECURITY"
        ))
        .await;
    let backend = store.builder().for_options(options).unwrap();
    let expected = [
        format!(
            "fault denied: \"{role}\" has no right to INSERT, UPDATE on {{}}: \
             GRANT INSERT, UPDATE ON {{}} TO \"{role}\""
        ),
        format!(
            "fault config: row security hides rows of {{}} from \"{role}\": \
             ALTER TABLE {{}} DISABLE ROW LEVEL SECURITY"
        ),
    ];
    assert_eq!(lines(&store, &backend).await, expected);
    for finding in &backend.check().await.unwrap() {
        store.run(&finding.fix).await;
    }
    acquire(&backend, "job").await;
    store.close().await;
}

#[tokio::test]
async fn a_role_that_may_only_read_is_told_beside_what_the_table_lacks() {
    let mut store = Store::new("reads").await;
    let (role, options) = store.role().await;
    store
        .run(&format!(
            "ALTER ROLE {role} SET default_transaction_read_only = on; ALTER TABLE {{}} SET UNLOGGED"
        ))
        .await;
    let backend = store.builder().for_options(options).unwrap();
    let expected = [
        format!(
            "fault read_only: sessions of \"{role}\" are read-only: lift default_transaction_read_only"
        ),
        "fault config: {} is unlogged or temporary, so that a crash would forget who holds what: \
         ALTER TABLE {} SET LOGGED"
            .to_owned(),
    ];
    assert_eq!(lines(&store, &backend).await, expected);
    let error = common::fault(&backend).await;
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    store.close().await;
}

#[tokio::test]
async fn a_trigger_is_a_warning_and_locks_work_all_the_same() {
    let mut store = Store::new("trigger").await;
    store
        .run(
            "CREATE FUNCTION {}_spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
             CREATE TRIGGER spy BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION {}_spy();
             CREATE TRIGGER off BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION {}_spy();
             ALTER TABLE {} DISABLE TRIGGER off",
        )
        .await;
    let backend = store.backend();
    let expected = "warning config: {} has the trigger \"spy\", which may change what is written: \
                    DROP TRIGGER \"spy\" ON {}, unless you know that it does not";
    assert_eq!(lines(&store, &backend).await, [expected]);
    let findings = backend.check().await.unwrap();
    assert!(
        findings
            .iter()
            .all(|finding| finding.severity == Severity::Warning)
    );
    findings.usable().unwrap();
    acquire(&backend, "job").await;
    store.run("DROP TABLE {}; DROP FUNCTION {}_spy").await;
    store.close().await;
}
