//! What is wrong with the server, the URL or the rights is told as what it is, and never as "held".
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::{LEASE, Store, acquire, options, request, unique, url};
use distlock_api::{Effect, Error, ErrorKind, LockAdmin, LockBackend, Operation};
use distlock_postgres::{PostgresBackend, Table};
use sqlx::postgres::PgSslMode;
use tokio::net::TcpListener;

fn assert_is(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!(
        (error.kind(), error.effect()),
        (kind, Effect::None),
        "{error}"
    );
    let shown = format!("{error} {error:?}");
    assert!(shown.contains(text), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
    assert_eq!(error.backend(), Some("postgres"), "{error}");
}

/// The test URL with other parts.
fn other_url(user: &str, port: u16, query: &str) -> String {
    let options = options();
    let (host, database) = (options.get_host(), options.get_database().unwrap());
    format!("postgres://{user}@{host}:{port}/{database}?{query}")
}

#[tokio::test]
async fn a_wrong_password_is_denied() {
    let mut store = Store::new("password").await;
    let (role, _) = store.role().await;
    let url = other_url(&format!("{role}:wrong-canary"), options().get_port(), "");
    let error = PostgresBackend::connect(&url).await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "password");
    assert_eq!(error.operation(), Some(Operation::Connect));
    store.close().await;
}

#[tokio::test]
async fn an_unknown_database_is_a_config_error() {
    let backend = PostgresBackend::from_options(options().database("no_such_database")).unwrap();
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_is(&error, ErrorKind::Config, "no such database");
    assert_eq!(error.lock_name(), Some("job"));
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://u:canary@127.0.0.1:{port}/db");
    let error = PostgresBackend::connect(&url).await.unwrap_err();
    assert_is(
        &error,
        ErrorKind::Unavailable,
        &format!("127.0.0.1:{port} cannot be reached"),
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_host_that_never_answers_is_unavailable_within_the_limit() {
    // (D12)
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://u:canary@127.0.0.1:{port}/db");
    let limit = Duration::from_millis(200);
    let connecting = PostgresBackend::builder().operation_limit(limit);
    let error = connecting.connect(&url).await.unwrap_err();
    assert_is(&error, ErrorKind::Unavailable, "does not answer within");
}

#[tokio::test]
async fn something_that_is_not_postgresql_is_a_config_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut client, greeting)
                .await
                .ok();
        }
    });
    let url = format!("postgres://u:canary@127.0.0.1:{port}/db");
    let error = PostgresBackend::connect(&url).await.unwrap_err();
    assert_is(&error, ErrorKind::Config, "does not answer like PostgreSQL");
}

#[tokio::test]
async fn tls_is_never_replaced_by_plain_text() {
    // (D13)
    let mut store = Store::without_table("tls").await;
    let backend = PostgresBackend::from_options(options().ssl_mode(PgSslMode::Require)).unwrap();
    let answer = backend.list().await;
    let has_tls: String = store.value("SHOW ssl").await;
    match answer {
        Err(error) if error.kind() == ErrorKind::Config => {
            assert_eq!(has_tls, "off", "{error}");
            assert_is(&error, ErrorKind::Config, "no TLS with");
        }
        _ => assert_eq!(has_tls, "on"),
    }
    store.close().await;
}

#[tokio::test]
async fn a_missing_table_says_how_to_make_it() {
    let store = Store::without_table("missing").await;
    let url = format!("{}?lock_table={}", url(), store.table);
    let backend = PostgresBackend::connect(&url).await.unwrap();
    let renewal = backend.renew(&[(request("job").lease_id(), LEASE)]).await;
    let lock = renewal[0].as_ref().unwrap_err().lock_name();
    assert_eq!(lock, Some("job"));
    for error in [
        common::fault(&backend).await,
        backend.try_acquire(&request("job")).await.unwrap_err(),
        backend
            .release(&request("job").lease_id(), LEASE)
            .await
            .unwrap_err(),
        backend
            .renew(&[(request("job").lease_id(), LEASE)])
            .await
            .remove(0)
            .unwrap_err(),
        backend.list().await.unwrap_err(),
        backend.purge(LEASE).await.unwrap_err(),
    ] {
        assert_is(&error, ErrorKind::SchemaMissing, "distlock migrate");
    }
    // Failure is not remembered.
    backend.migrate().await.unwrap();
    acquire(&backend, "job").await;
    store.close().await;
}

#[tokio::test]
async fn a_missing_right_is_denied_and_named() {
    // (U7)
    let mut store = Store::new("rights").await;
    let (role, options) = store.role().await;
    for right in ["SELECT", "INSERT", "UPDATE"] {
        store
            .run(&format!("REVOKE {right} ON {{}} FROM {role}"))
            .await;
        let backend = store.builder().for_options(options.clone()).unwrap();
        let error = backend.try_acquire(&request("job")).await.unwrap_err();
        assert_is(&error, ErrorKind::Denied, &format!("GRANT {right} ON"));
        store.run(&format!("GRANT {right} ON {{}} TO {role}")).await;
        acquire(&backend, right).await;
    }
    let backend = store.builder().for_options(options).unwrap();
    acquire(&backend, "job").await;
    store
        .run(&format!("REVOKE UPDATE, DELETE ON {{}} FROM {role}"))
        .await;
    // The check is over by now: the server itself says it.
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "permission denied");
    let error = backend.purge(LEASE).await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "permission denied");
    store.close().await;
}

#[tokio::test]
async fn a_schema_that_may_not_be_looked_into_is_denied_and_not_missing() {
    let mut store = Store::new("usage").await;
    let (role, options) = store.role().await;
    let schema = unique("closed");
    let table = Table::new("locks").unwrap();
    let builder = PostgresBackend::builder().table(table.clone().in_schema(&schema).unwrap());
    let owner = builder.for_options(store.options()).unwrap();
    owner.migrate().await.unwrap();
    let options = options.options([("search_path", &schema)]);
    let builder = PostgresBackend::builder().table(table);
    let backend = builder.for_options(options).unwrap();
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    let fix = format!("GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\"");
    assert_is(&error, ErrorKind::Denied, &fix);
    store.run(&format!("DROP SCHEMA {schema} CASCADE")).await;
    store.close().await;
}

#[tokio::test]
async fn a_database_that_may_not_be_connected_to_is_told_with_the_grant() {
    let mut store = Store::new("connect").await;
    let (role, options) = store.role().await;
    let database = unique("db");
    store.run(&format!("CREATE DATABASE {database}")).await;
    store
        .run(&format!(
            "REVOKE CONNECT ON DATABASE {database} FROM PUBLIC"
        ))
        .await;
    let backend = store.builder().for_options(options.database(&database));
    let error = backend.unwrap().check().await.unwrap_err();
    let fix = format!("GRANT CONNECT ON DATABASE \"{database}\" TO \"{role}\"");
    assert_is(&error, ErrorKind::Denied, &fix);
    store.run(&format!("DROP DATABASE {database}")).await;
    store.close().await;
}

#[tokio::test]
async fn a_role_that_may_not_create_can_migrate_what_is_there() {
    let mut store = Store::new("create").await;
    let (role, options) = store.role().await;
    let schema = unique("create");
    store
        .run(&format!(
            "CREATE SCHEMA {schema}; GRANT USAGE ON SCHEMA {schema} TO {role}"
        ))
        .await;
    let there = store.builder().for_options(options.clone()).unwrap();
    there.migrate().await.unwrap();
    let missing = Table::new("locks").unwrap().in_schema(&schema).unwrap();
    let missing = PostgresBackend::builder()
        .table(missing)
        .for_options(options)
        .unwrap();
    let error = missing.migrate().await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "permission denied for schema");
    store.run(&format!("DROP SCHEMA {schema}")).await;
    store.close().await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_read_only_and_recovers() {
    // (F9, U8)
    let mut store = Store::new("readonly").await;
    let (role, options) = store.role().await;
    store
        .run(&format!(
            "ALTER ROLE {role} SET default_transaction_read_only = on"
        ))
        .await;
    let backend = store.builder().for_options(options).unwrap();
    for error in [
        common::fault(&backend).await,
        backend.migrate().await.unwrap_err(),
        backend.try_acquire(&request("job")).await.unwrap_err(),
    ] {
        assert_is(&error, ErrorKind::ReadOnly, "default_transaction_read_only");
    }
    assert!(
        backend.list().await.unwrap().is_empty(),
        "reading is allowed"
    );
    store
        .run(&format!(
            "ALTER ROLE {role} RESET default_transaction_read_only"
        ))
        .await;
    acquire(&backend, "job").await;
    store.close().await;
}

#[tokio::test]
async fn a_session_that_began_read_only_is_replaced_once_writes_are_allowed() {
    // (U8)
    let mut store = Store::new("began").await;
    let (role, options) = store.role().await;
    let backend = store.builder().for_options(options).unwrap();
    acquire(&backend, "job").await;
    store
        .run(&format!(
            "ALTER ROLE {role} SET default_transaction_read_only = on;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        ))
        .await;
    assert_eq!(backend.list().await.unwrap().len(), 1);
    let error = backend.try_acquire(&request("other")).await.unwrap_err();
    assert_is(&error, ErrorKind::ReadOnly, "takes no writes");
    assert_eq!(backend.list().await.unwrap().len(), 1);
    store
        .run(&format!(
            "ALTER ROLE {role} RESET default_transaction_read_only"
        ))
        .await;
    acquire(&backend, "other").await;
    store.close().await;
}

#[tokio::test]
async fn debug_shows_no_password() {
    let options = options().password("canary");
    let backend = PostgresBackend::from_options(options).unwrap();
    let shown = format!("{backend:?}");
    assert!(
        shown.contains("distlock_locks") && !shown.contains("canary"),
        "{shown}"
    );
}

#[tokio::test]
async fn options_out_of_range_are_refused_before_any_io() {
    let builder = PostgresBackend::builder;
    for (builder, text) in [
        (
            builder().operation_limit(Duration::ZERO),
            "0ns is out of range",
        ),
        (builder().operation_limit(Duration::MAX), "is out of range"),
        (builder().max_connections(0), "0 connections"),
        (
            builder().max_connections(usize::MAX),
            "connections are out of range",
        ),
    ] {
        let error = builder
            .connect("postgres://u:canary@256.0.0.1/db")
            .await
            .unwrap_err();
        assert_is(&error, ErrorKind::InvalidOption, text);
    }
}

#[tokio::test]
async fn a_table_cannot_be_given_twice() {
    let builder = PostgresBackend::builder().table(Table::default());
    let error = builder
        .connect("postgres://u:canary@h/db?lock_table=x")
        .await
        .unwrap_err();
    assert_is(&error, ErrorKind::Config, "leave one");
}
