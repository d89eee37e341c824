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
        let line = format!("{} {}: {finding}", finding.severity, finding.kind);
        line.replace(&anew(store), "ANEW").replace(&table, "{}")
    };
    findings.iter().map(line).collect()
}

/// How a table of the wrong shape is replaced.
fn anew(store: &Store) -> String {
    let table = &store.table;
    format!(
        "ALTER TABLE \"{table}\" RENAME TO \"{table}_old\"\n\
         distlock migrate --store URL (stop the jobs first: locks held in it are let go; any name that is free will do \
         for the old one)"
    )
}

/// Does what the findings say, line by line and each once, and takes a lock.
async fn mend(store: &mut Store, backend: &PostgresBackend) {
    let findings = backend.check().await.unwrap();
    let mut done = Vec::new();
    for line in findings.iter().flat_map(|finding| finding.fix.lines()) {
        if done.contains(&line) {
            continue;
        }
        done.push(line);
        match line.starts_with("distlock migrate ") {
            true => store.backend().migrate().await.unwrap(),
            false => store.run(line).await,
        }
    }
    assert_eq!(lines(store, backend).await, [""; 0]);
    acquire(backend, "job").await;
    store.run("DROP TABLE IF EXISTS {}_old").await;
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
        "fault config: {} has no key on name alone: ANEW",
        "fault config: {} takes null in the column token: ANEW",
        "fault config: {} has the column fence as integer: ANEW",
        "fault config: {} has no column resting: ANEW",
        "fault config: {} has a further column \"my extra\" that refuses null: ANEW",
    ];
    assert_eq!(lines(&store, &store.backend()).await, expected);
    let backend = store.backend();
    mend(&mut store, &backend).await;
    store.close().await;
}

#[tokio::test]
async fn whatever_can_refuse_a_lock_is_told_with_the_fix_that_mends_it() {
    let mut store = Store::new("refuses").await;
    store
        .run(
            "CREATE TABLE {}_people (name text PRIMARY KEY);
             ALTER TABLE {} ADD CONSTRAINT {}_apart EXCLUDE (locked_by WITH =),
                 ADD CONSTRAINT {}_busy UNIQUE (locked_by),
                 ADD CONSTRAINT known FOREIGN KEY (locked_by) REFERENCES {}_people,
                 ADD CONSTRAINT short CHECK (length(locked_by) < 4),
                 DROP last_tick, ADD last_tick bigint GENERATED ALWAYS AS (fence) STORED,
                 ADD length smallint NOT NULL GENERATED ALWAYS AS (9000 * length(locked_by)) STORED;
             CREATE RULE twice AS ON UPDATE TO {} DO ALSO SELECT 1;
             CREATE RULE asleep AS ON INSERT TO {} DO INSTEAD NOTHING;
             ALTER TABLE {} DISABLE RULE asleep;
             CREATE RULE kept AS ON DELETE TO {} DO INSTEAD NOTHING;
             CREATE UNIQUE INDEX {}_zone ON {} (lower(name))",
        )
        .await;
    let refuses = |kind: &str, fix: &str| {
        format!("fault config: {{}} has the {kind} that can refuse a lock: {fix}")
    };
    let constraint = |name: &str| {
        let fix = format!("ALTER TABLE {{}} DROP CONSTRAINT \"{name}\"");
        refuses(&format!("constraint \"{name}\""), &fix)
    };
    let [apart, busy, zone] =
        ["apart", "busy", "zone"].map(|name| format!("{}_{name}", store.table));
    let expected = [
        constraint("known"),
        constraint("short"),
        constraint(&apart),
        constraint(&busy),
        refuses(
            &format!("unique index \"{zone}\""),
            &format!("DROP INDEX \"public\".\"{zone}\""),
        ),
        refuses("rule \"twice\"", "DROP RULE \"twice\" ON {}"),
        "fault config: {} has the column last_tick as a generated one: ANEW".to_owned(),
        refuses("generated column \"length\"", "ANEW"),
    ];
    assert_eq!(lines(&store, &store.backend()).await, expected);
    let backend = store.backend();
    mend(&mut store, &backend).await;
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
    mend(&mut store, &backend).await;
    store.close().await;
}

/// What no look at the table tells, and how what the server says of it begins, or what we say.
#[rustfmt::skip]
const REFUSING: [(&str, &str); 6] = [
    ("ALTER TABLE {} ALTER fence ADD GENERATED ALWAYS AS IDENTITY",
     "{} refuses a lock: cannot insert "),
    ("ALTER TABLE {} ADD UNIQUE (name) DEFERRABLE",
     "{} refuses a lock: ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters"),
    ("CREATE TRIGGER odd BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION {}_null()",
     "{} does not keep what a lock writes"),
    ("CREATE TRIGGER odd BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION {}_null()",
     "{} does not keep what a lock writes"),
    ("CREATE TRIGGER odd BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION {}_raise()",
     "{} refuses a lock: not today"),
    ("CREATE CONSTRAINT TRIGGER odd AFTER INSERT ON {} DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION {}_raise()",
     "{} refuses a lock: not today"),
];

#[tokio::test]
async fn a_lock_that_would_be_refused_is_told_direct_and_through_a_pooler() {
    for (change, what) in REFUSING {
        let mut store = Store::new("refusing").await;
        let function = |name: &str, body: &str| {
            format!(
                "CREATE FUNCTION {{}}_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$; "
            )
        };
        let functions = function("null", "RETURN NULL") + &function("raise", "RAISE 'not today'");
        store.run(&(functions + change)).await;
        let direct = store.backend();
        let pooled = store.builder().for_options(common::pooler_options());
        for backend in [&direct, &pooled.unwrap()] {
            let told = lines(&store, backend).await.remove(0);
            assert!(told.starts_with(&format!("fault config: {what}")), "{told}");
            assert!(told.ends_with(": ANEW"), "{told}");
        }
        if change.starts_with("ALTER") {
            mend(&mut store, &direct).await;
        }
        store
            .run("DROP TABLE {}; DROP FUNCTION {}_null, {}_raise")
            .await;
        store.close().await;
    }
}

#[tokio::test]
async fn a_partitioned_table_is_told_whatever_its_partitions_are() {
    let mut store = Store::without_table("parts").await;
    let made = distlock_postgres::schema_sql(&distlock_postgres::Table::new(&store.table).unwrap());
    let made = made.replace("WITH (fillfactor = 70)", "PARTITION BY HASH (name)");
    store.run(&made).await;
    store
        .run("CREATE TABLE {}_all PARTITION OF {} FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
        .await;
    let expected = "fault config: {} is partitioned, so that a lock may find no partition: ANEW";
    assert_eq!(lines(&store, &store.backend()).await, [expected]);
    let backend = store.backend();
    mend(&mut store, &backend).await;
    store.close().await;
}

#[tokio::test]
async fn looking_whether_a_lock_can_be_had_waits_for_none_and_leaves_nothing() {
    let mut store = Store::new("rehearsal").await;
    let (_, before) = acquire(&store.backend(), "job").await;
    store.run("BEGIN; SELECT FROM {} FOR UPDATE").await;
    for options in [store.options(), common::pooler_options()] {
        let backend = store.builder().for_options(options).unwrap();
        assert_eq!(lines(&store, &backend).await, [""; 0]);
    }
    store.run("ROLLBACK").await;
    let rows = "SELECT string_agg(name || fence, ',') FROM {}";
    assert_eq!(store.value::<String>(rows).await, format!("job{before}"));
    store.close().await;
}

#[tokio::test]
async fn a_table_that_is_locked_is_no_fault() {
    let mut store = Store::new("locked").await;
    let limit = std::time::Duration::from_millis(500);
    let builder = store.builder().operation_limit(limit);
    let backend = builder.for_options(store.options()).unwrap();
    store.run("BEGIN; LOCK TABLE {}").await;
    let error = backend.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    store.run("ROLLBACK").await;
    store.close().await;
}

#[tokio::test]
async fn what_is_rolled_back_for_others_sake_is_tried_again_in_the_same_session() {
    let mut store = Store::new("again").await;
    store
        .run(
            "CREATE SEQUENCE {}_tries;
             CREATE FUNCTION {}_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval(TG_ARGV[0]) = 1 THEN RAISE 'once' USING ERRCODE = 'serialization_failure'; END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER once BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION {}_once('public.{}_tries')",
        )
        .await;
    acquire(&store.backend(), "job").await;
    store
        .run("DROP TABLE {}; DROP FUNCTION {}_once; DROP SEQUENCE {}_tries")
        .await;
    store.close().await;
}

#[tokio::test]
async fn a_schema_that_is_named_and_may_not_be_looked_into_is_told_with_the_grant() {
    let mut store = Store::new("named").await;
    let (role, options) = store.role().await;
    let schema = common::unique("Closed");
    store
        .run(&format!(
            "CREATE SCHEMA \"{schema}\"; ALTER TABLE {{}} SET SCHEMA \"{schema}\""
        ))
        .await;
    let table = distlock_postgres::Table::new(&store.table).unwrap();
    let builder = PostgresBackend::builder().table(table.in_schema(&schema).unwrap());
    let backend = builder.for_options(options).unwrap();
    let grant = format!("GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\"");
    let expected = format!(
        "fault denied: \"{role}\" has no right to look into the schema \"{schema}\": {grant}"
    );
    assert_eq!(lines(&store, &backend).await, [expected]);
    mend(&mut store, &backend).await;
    store
        .run(&format!("DROP SCHEMA \"{schema}\" CASCADE"))
        .await;
    store.close().await;
}

#[tokio::test]
async fn what_makes_sessions_read_only_is_lifted_where_it_was_set() {
    let mut store = Store::new("lifts").await;
    let (role, options) = store.role().await;
    let database: String = store.value("SELECT current_database()::text").await;
    for place in [
        format!("ALTER ROLE {role}"),
        format!("ALTER ROLE {role} IN DATABASE {database}"),
    ] {
        store
            .run(&format!("{place} SET default_transaction_read_only = on"))
            .await;
        let backend = store.builder().for_options(options.clone()).unwrap();
        let expected = format!(
            "fault read_only: sessions of \"{role}\" are read-only: {place} RESET default_transaction_read_only"
        );
        assert_eq!(lines(&store, &backend).await, [expected]);
        mend(&mut store, &backend).await;
        store.run("DELETE FROM {}").await;
    }
    let set = [("default_transaction_read_only", "on")];
    let backend = store.builder().for_options(options.options(set)).unwrap();
    let expected = format!(
        "fault read_only: sessions of \"{role}\" are read-only: lift default_transaction_read_only"
    );
    assert_eq!(lines(&store, &backend).await, [expected]);
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
            "fault read_only: sessions of \"{role}\" are read-only: \
             ALTER ROLE {role} RESET default_transaction_read_only"
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
                    DROP TRIGGER \"spy\" ON {}\nor leave it, if you know that it does no harm";
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
