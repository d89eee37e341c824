//! Making the table.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::{LEASE, Server, Store, acquire, name, request, unique};
use distlock_api::{ErrorKind, LockAdmin, LockBackend, Release, Renewal, Severity};
use distlock_mysql::{MySqlBackend, Table, schema_sql};
use sqlx::mysql::MySqlConnectOptions;
use tokio::task::JoinSet;

async fn migrate_by_eight(backends: [MySqlBackend; 8]) {
    let mut nodes = JoinSet::new();
    for backend in backends {
        nodes.spawn(async move { backend.migrate().await });
    }
    for outcome in nodes.join_all().await {
        outcome.unwrap();
    }
}

async fn eight_nodes_migrate_at_once_and_again_beside_a_held_lock(server: Server) {
    // (U6)
    for _ in 0..5 {
        let store = Store::without_table(server, "eight").await;
        migrate_by_eight([(); 8].map(|()| store.backend())).await;
        let backend = store.backend();
        acquire(&backend, "job").await;
        let before = backend.list().await.unwrap()[0].lock_until;
        migrate_by_eight([(); 8].map(|()| store.backend())).await;
        assert_eq!(backend.list().await.unwrap()[0].lock_until, before);
        store.close().await;
    }
}

async fn a_missing_schema_is_made_too(server: Server) {
    let mut store = Store::without_table(server, "schema").await;
    let schema = format!("{} with `backticks`", unique("Schema"));
    let table = Table::new(&store.table)
        .unwrap()
        .in_schema(&schema)
        .unwrap();
    let backend = || {
        let builder = MySqlBackend::builder().table(table.clone());
        builder.for_options(server.options()).unwrap()
    };
    let found = backend().check().await.unwrap().usable().unwrap_err();
    assert_eq!(found.kind(), ErrorKind::SchemaMissing, "{found}");
    migrate_by_eight([(); 8].map(|()| backend())).await;
    acquire(&backend(), "job").await;
    let drop = format!("DROP DATABASE `{}`", schema.replace('`', "``"));
    store.run(&drop).await;
    store.close().await;
}

async fn a_table_with_a_schema_needs_no_database_in_the_url(server: Server) {
    let store = Store::new(server, "nowhere").await;
    let table = Table::new(&store.table).unwrap();
    let builder = MySqlBackend::builder().table(table.in_schema(server.database()).unwrap());
    let url = server.url().replacen("mariadb:", "mysql:", 1);
    let (nowhere, _) = url.rsplit_once('/').unwrap();
    let options: MySqlConnectOptions = nowhere.parse().unwrap();
    assert_eq!(options.get_database(), None);
    let options = options.username(&store.user).password("canary");
    let backend = builder.for_options(options).unwrap();
    let (held, _) = acquire(&backend, "job").await;
    let lost = request("job").lease_id();
    let leases = [(held.lease_id(), LEASE), (lost, LEASE)];
    let renewed = backend.renew(&leases).await;
    assert_eq!(renewed[0].as_ref().unwrap(), &Renewal::Renewed);
    assert!(matches!(renewed[1], Ok(Renewal::Lost { .. })));
    let release = backend.release(&held.lease_id(), Duration::ZERO).await;
    assert_eq!(release.unwrap(), Release::Released);
    assert_eq!(backend.list().await.unwrap().len(), 1);
    store.close().await;
}

async fn the_printed_schema_is_what_migrate_makes_and_can_be_run_again(server: Server) {
    let mut store = Store::without_table(server, "printed").await;
    let sql = schema_sql(&Table::new(&store.table).unwrap());
    store.run(&sql).await;
    store.run(&sql).await;
    let found = store.backend().check().await.unwrap();
    let faults = found
        .iter()
        .filter(|finding| finding.severity == Severity::Fault);
    assert_eq!(faults.count(), 0, "{found:?}");
    store.close().await;
}

async fn a_table_name_full_of_sql_is_only_a_name(server: Server) {
    let mut victim = Store::new(server, "victim").await;
    let evil = format!("x`; DROP TABLE {}; -- ?", victim.table);
    let table = Table::new(&evil).unwrap();
    let builder = MySqlBackend::builder().table(table);
    let backend = builder.for_options(server.options()).unwrap();
    backend.migrate().await.unwrap();
    acquire(&backend, "job").await;
    assert_eq!(backend.list().await.unwrap().len(), 1);
    assert_eq!(victim.value::<i64>("SELECT COUNT(*) FROM {}").await, 0);
    victim
        .run(&format!("DROP TABLE `{}`", evil.replace('`', "``")))
        .await;
    victim.close().await;
}

async fn rows_deleted_by_hand_do_not_set_the_fence_back(server: Server) {
    let mut store = Store::new(server, "deleted").await;
    let backend = store.backend();
    let (_, before) = acquire(&backend, "job").await;
    store.run("DELETE FROM {}").await;
    let (_, after) = acquire(&backend, "job").await;
    assert!(after > before);
    assert!(backend.inspect(&name("other")).await.unwrap().is_none());
    store.close().await;
}

on_both![
    eight_nodes_migrate_at_once_and_again_beside_a_held_lock,
    a_missing_schema_is_made_too,
    a_table_with_a_schema_needs_no_database_in_the_url,
    the_printed_schema_is_what_migrate_makes_and_can_be_run_again,
    a_table_name_full_of_sql_is_only_a_name,
    rows_deleted_by_hand_do_not_set_the_fence_back,
];
