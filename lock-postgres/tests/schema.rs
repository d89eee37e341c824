//! Making the table, and what the start-up check says of one that does not fit.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::{Store, acquire, name, options, request, unique};
use distlock_api::{Effect, ErrorKind, LockAdmin, LockBackend};
use distlock_postgres::{PostgresBackend, Table, schema_sql};
use tokio::task::JoinSet;

async fn migrate_by_eight(backends: [PostgresBackend; 8]) {
    let mut nodes = JoinSet::new();
    for backend in backends {
        nodes.spawn(async move { backend.migrate().await });
    }
    for outcome in nodes.join_all().await {
        outcome.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_nodes_migrate_at_once_and_again_beside_a_held_lock() {
    // (U6)
    for _ in 0..5 {
        let store = Store::without_table("eight").await;
        migrate_by_eight([(); 8].map(|()| store.backend())).await;
        let backend = store.backend();
        acquire(&backend, "job").await;
        let before = backend.list().await.unwrap()[0].lock_until;
        migrate_by_eight([(); 8].map(|()| store.backend())).await;
        assert_eq!(backend.list().await.unwrap()[0].lock_until, before);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_let_go_at_the_same_moment_do_not_collide() {
    // (U6)
    let mut store = Store::without_table("moment").await;
    // An uncommitted table of that name stops whoever makes it, and leaves them all running when it vanishes.
    store.run("BEGIN; CREATE TABLE {} (n int)").await;
    // Each has a minute, so that all eight are there at last.
    let backend = |()| {
        let builder = store.builder().operation_limit(Duration::from_secs(60));
        builder.for_options(store.options()).unwrap()
    };
    let nodes = tokio::spawn(migrate_by_eight([(); 8].map(backend)));
    store.until_waiting(8).await;
    store.run("ROLLBACK").await;
    nodes.await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_schema_is_made_too() {
    let mut store = Store::without_table("schema").await;
    let schema = format!(r#"{} with "quotes"$$'"#, unique("Schema"));
    let table = Table::new(&store.table)
        .unwrap()
        .in_schema(&schema)
        .unwrap();
    let backend = || {
        PostgresBackend::builder()
            .table(table.clone())
            .for_options(options())
            .unwrap()
    };
    let error = common::fault(&backend()).await;
    assert_eq!(error.kind(), ErrorKind::SchemaMissing, "{error}");
    migrate_by_eight([(); 8].map(|()| backend())).await;
    acquire(&backend(), "job").await;
    store
        .run(&format!(
            "DROP SCHEMA \"{}\" CASCADE",
            schema.replace('"', "\"\"")
        ))
        .await;
    store.close().await;
}

#[tokio::test]
async fn the_printed_schema_is_what_migrate_makes_and_can_be_run_again() {
    let mut store = Store::without_table("printed").await;
    let sql = schema_sql(&Table::new(&store.table).unwrap());
    store.run(&sql).await;
    store.run(&sql).await;
    store.backend().check().await.unwrap().usable().unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_table_name_full_of_sql_is_only_a_name() {
    let mut victim = Store::new("victim").await;
    let evil = format!(r#"x"; DROP TABLE {}; --{{table}}"#, victim.table);
    let table = Table::new(&evil).unwrap();
    let backend = PostgresBackend::builder()
        .table(table)
        .for_options(options())
        .unwrap();
    backend.migrate().await.unwrap();
    acquire(&backend, "job").await;
    assert_eq!(backend.list().await.unwrap().len(), 1);
    assert_eq!(victim.value::<i64>("SELECT count(*) FROM {}").await, 0);
    victim
        .run(&format!("DROP TABLE \"{}\"", evil.replace('"', "\"\"")))
        .await;
    victim.close().await;
}

#[tokio::test]
async fn rows_deleted_by_hand_do_not_set_the_fence_back() {
    let mut store = Store::new("deleted").await;
    let backend = store.backend();
    let (_, before) = acquire(&backend, "job").await;
    store.run("DELETE FROM {}").await;
    let (_, after) = acquire(&backend, "job").await;
    assert!(after > before);
    assert!(backend.inspect(&name("other")).await.unwrap().is_none());
    store.close().await;
}

/// What does not fit, and a part of the complaint, which says how to mend it.
const UNFIT: [(&str, &str); 22] = [
    (
        "ALTER TABLE {} ALTER lock_until TYPE timestamp",
        "RENAME TO",
    ),
    (
        "ALTER TABLE {} ALTER lock_until TYPE timestamptz(0)",
        "RENAME TO",
    ),
    ("ALTER TABLE {} ALTER name TYPE varchar(20)", "RENAME TO"),
    ("ALTER TABLE {} ALTER fence TYPE int", "RENAME TO"),
    ("ALTER TABLE {} ALTER token DROP NOT NULL", "RENAME TO"),
    ("ALTER TABLE {} ALTER last_tick SET NOT NULL", "RENAME TO"),
    ("ALTER TABLE {} DROP resting", "RENAME TO"),
    ("ALTER TABLE {} DROP CONSTRAINT {}_pkey", "RENAME TO"),
    (
        "ALTER TABLE {} DROP CONSTRAINT {}_pkey, ADD PRIMARY KEY (name, token)",
        "RENAME TO",
    ),
    (
        "ALTER TABLE {} DROP CONSTRAINT {}_pkey, ADD PRIMARY KEY (name) DEFERRABLE",
        "RENAME TO",
    ),
    ("ALTER TABLE {} ADD COLUMN extra int NOT NULL", "RENAME TO"),
    (
        "CREATE UNIQUE INDEX {}_busy ON {} (locked_by)",
        ".\"{}_busy\"",
    ),
    (
        "CREATE UNIQUE INDEX {}_folds ON {} (lower(name))",
        ".\"{}_folds\"",
    ),
    (
        "CREATE UNIQUE INDEX {}_rests ON {} (resting) INCLUDE (name)",
        ".\"{}_rests\"",
    ),
    (
        "ALTER TABLE {} ADD CONSTRAINT {}_busy UNIQUE (locked_by)",
        "DROP CONSTRAINT \"{}_busy\"",
    ),
    (
        "ALTER TABLE {} ADD CONSTRAINT {}_apart EXCLUDE (locked_by WITH =)",
        "DROP CONSTRAINT \"{}_apart\"",
    ),
    (
        "ALTER TABLE {} ADD CONSTRAINT short CHECK (length(locked_by) < 4)",
        "DROP CONSTRAINT \"short\"",
    ),
    (
        "ALTER TABLE {} DROP last_tick, ADD last_tick bigint GENERATED ALWAYS AS (fence) STORED",
        "RENAME TO",
    ),
    (
        "ALTER TABLE {} ADD length smallint GENERATED ALWAYS AS (9000 * length(locked_by)) STORED",
        "RENAME TO",
    ),
    (
        "CREATE RULE odd AS ON INSERT TO {} DO INSTEAD NOTHING",
        "DROP RULE \"odd\" ON",
    ),
    ("ALTER TABLE {} SET UNLOGGED", "SET LOGGED"),
    (
        "ALTER TABLE {} RENAME TO {}_old; CREATE VIEW {} AS SELECT * FROM {}_old",
        "is no table",
    ),
];

#[tokio::test]
async fn a_table_that_does_not_fit_is_refused_with_the_fix() {
    // (F11, B15)
    for (change, complaint) in UNFIT {
        let mut store = Store::new("unfit").await;
        store.run(change).await;
        let complaint = &complaint.replace("{}", &store.table);
        let backend = store.backend();
        for error in [
            common::fault(&backend).await,
            backend.migrate().await.unwrap_err(),
            backend.try_acquire(&request("job")).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains(complaint), "{change}: {error}");
        }
        if complaint == "is no table" {
            store.run("DROP VIEW {}; DROP TABLE {}_old").await;
        }
        store.close().await;
    }
}

#[tokio::test]
async fn a_collation_that_folds_names_is_refused_be_it_the_columns_or_an_indexs() {
    let collation = unique("folds");
    for (change, fix) in [
        (
            format!("ALTER TABLE {{}} ALTER name TYPE text COLLATE {collation}"),
            "RENAME TO",
        ),
        (
            format!("CREATE UNIQUE INDEX {{}}_folds ON {{}} (name COLLATE {collation})"),
            "DROP INDEX",
        ),
    ] {
        let mut store = Store::new("folds").await;
        store
            .run(&format!(
                "CREATE COLLATION {collation} (provider = icu, locale = 'und-u-ks-level2', deterministic = false); {change}"
            ))
            .await;
        let error = store.backend().try_acquire(&request("job")).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(fix), "{error}");
        store
            .run(&format!("DROP TABLE {{}}; DROP COLLATION {collation}"))
            .await;
        store.close().await;
    }
}

#[tokio::test]
async fn further_columns_and_another_deterministic_collation_are_welcome() {
    let mut store = Store::new("further").await;
    store
        .run(
            "ALTER TABLE {} ADD COLUMN note text, ADD COLUMN made timestamptz NOT NULL DEFAULT now(),
             ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY, ALTER name TYPE text COLLATE \"default\"",
        )
        .await;
    acquire(&store.backend(), "job").await;
    store.close().await;
}

#[tokio::test]
async fn keys_and_constraints_that_refuse_no_lock_are_welcome() {
    let mut store = Store::new("harmless").await;
    store
        .run(
            "ALTER TABLE {} DROP CONSTRAINT {}_pkey, ADD UNIQUE (name),
                 ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ADD COLUMN number bigserial UNIQUE;
             CREATE UNIQUE INDEX ON {} (locked_by, name);
             CREATE INDEX ON {} (locked_by)",
        )
        .await;
    let version = "SELECT current_setting('server_version_num')::int";
    if store.value::<i32>(version).await >= 180_000 {
        store
            .run("ALTER TABLE {} ADD CONSTRAINT asleep CHECK (false) NOT ENFORCED")
            .await;
    }
    let backend = store.backend();
    acquire(&backend, "one").await;
    acquire(&backend, "two").await;
    store.close().await;
}

#[tokio::test]
async fn an_index_that_was_added_since_is_an_error_and_never_held() {
    let mut store = Store::new("since").await;
    let backend = store.backend();
    acquire(&backend, "one").await;
    store
        .run("CREATE UNIQUE INDEX {}_busy ON {} (locked_by)")
        .await;
    // A name that is unknown is inserted, one that is known updated.
    let unknown = backend.try_acquire(&request("two")).await.unwrap_err();
    store
        .run("INSERT INTO {} SELECT 'two', '-infinity', now(), 'me', '', 1, NULL, false")
        .await;
    let known = backend.try_acquire(&request("two")).await.unwrap_err();
    for error in [unknown, known] {
        let told = (error.kind(), error.effect());
        assert_eq!(told, (ErrorKind::Config, Effect::None), "{error}");
        assert!(error.to_string().contains("_busy"), "{error}");
    }
    store.run("DROP INDEX {}_busy").await;
    acquire(&backend, "two").await;
    store.close().await;
}
