//! What is wrong with the server, the URL or the rights is told as what it is, and never as "held".
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::{LEASE, Server, Store, acquire, connect, request};
use distlock_api::{Effect, Error, ErrorKind, LockAdmin, LockBackend, Operation};
use distlock_mysql::{MySqlBackend, Table};
use sqlx::mysql::MySqlSslMode;
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
    assert_eq!(error.backend(), Some("mysql"), "{error}");
}

/// The test URL with another user, port and parameters.
fn other_url(server: Server, user: &str, query: &str) -> String {
    let options = server.options();
    let (host, port) = (options.get_host(), options.get_port());
    format!("mysql://{user}@{host}:{port}/{}?{query}", server.database())
}

async fn a_wrong_password_is_denied(server: Server) {
    let store = Store::new(server, "password").await;
    let user = format!("{}:wrong-canary", store.user);
    let error = MySqlBackend::connect(&other_url(server, &user, "")).await;
    let error = error.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "password");
    assert_eq!(error.operation(), Some(Operation::Connect));
    store.close().await;
}

async fn a_url_with_either_scheme_and_our_parameters_leads_to_the_table(server: Server) {
    let store = Store::new(server, "url").await;
    let query = format!("lock_table={}&charset=utf8mb4", store.table);
    let url = other_url(server, &format!("{}:canary", store.user), &query);
    for url in [url.clone(), url.replacen("mysql:", "mariadb:", 1)] {
        let backend = MySqlBackend::connect(&url).await.unwrap();
        acquire(&backend, &url[..5]).await;
        assert_eq!(backend.capabilities().backend, "mysql");
    }
    assert_eq!(store.backend().list().await.unwrap().len(), 2);
    store.close().await;
}

async fn an_unknown_database_is_a_config_error(server: Server) {
    let options = server.options().database("no_such_database");
    let backend = MySqlBackend::from_options(options).unwrap();
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_is(&error, ErrorKind::Config, "no such database");
    assert_eq!(error.lock_name(), Some("job"));
}

async fn options_without_a_database_are_told(server: Server) {
    let url = server.url().replacen("mariadb:", "mysql:", 1);
    let (url, _) = url.rsplit_once('/').unwrap();
    let backend = MySqlBackend::from_options(url.parse().unwrap()).unwrap();
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_is(&error, ErrorKind::Config, "no database was chosen");
}

async fn a_missing_table_says_how_to_make_it(server: Server) {
    let store = Store::without_table(server, "missing").await;
    let backend = store.backend();
    let lease = request("job").lease_id();
    let renewal = backend.renew(&[(lease.clone(), LEASE)]).await.remove(0);
    let renewal = renewal.unwrap_err();
    assert_eq!(renewal.lock_name(), Some("job"));
    for error in [
        backend.check().await.unwrap().usable().unwrap_err(),
        backend.try_acquire(&request("job")).await.unwrap_err(),
        backend.release(&lease, LEASE).await.unwrap_err(),
        renewal,
        backend.list().await.unwrap_err(),
        backend.purge(LEASE).await.unwrap_err(),
    ] {
        let error = error.during("mysql", Operation::Check);
        assert_is(&error, ErrorKind::SchemaMissing, "distlock migrate");
    }
    // Failure is not remembered.
    backend.migrate().await.unwrap();
    acquire(&backend, "job").await;
    store.close().await;
}

async fn a_missing_right_is_denied_and_named(server: Server) {
    // (U7)
    let mut store = Store::new(server, "rights").await;
    for right in ["SELECT", "INSERT", "UPDATE"] {
        store.revoke(right).await;
        let backend = store.backend();
        let error = backend.try_acquire(&request("job")).await.unwrap_err();
        let fix = format!("GRANT {right} ON `{}` TO '{}'@'%'", store.table, store.user);
        assert_is(&error, ErrorKind::Denied, &fix);
        store.grant(right).await;
        acquire(&backend, right).await;
    }
    let backend = store.backend();
    acquire(&backend, "job").await;
    store.revoke("UPDATE, DELETE").await;
    // The check is over by now: the server itself says it.
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "GRANT UPDATE ON");
    let error = backend.purge(LEASE).await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "GRANT DELETE ON");
    store.close().await;
}

async fn a_user_without_any_right_is_denied_and_told_all_that_is_missing(server: Server) {
    let mut store = Store::new(server, "none").await;
    store.revoke("SELECT, INSERT, UPDATE, DELETE").await;
    // A right elsewhere, so that the database can be chosen.
    store
        .run("CREATE TABLE {}_other (n INT); GRANT SELECT ON {}_other TO $USER")
        .await;
    let error = store
        .backend()
        .try_acquire(&request("job"))
        .await
        .unwrap_err();
    assert_is(&error, ErrorKind::Denied, "GRANT SELECT, INSERT, UPDATE ON");
    store.run("DROP TABLE {}_other").await;
    store.close().await;
}

async fn rights_that_come_by_a_role_are_rights(server: Server) {
    let mut store = Store::new(server, "role").await;
    let role = common::unique("r");
    store
        .run(&format!(
            "CREATE ROLE {role}; GRANT SELECT, INSERT, UPDATE ON {{}} TO {role}; GRANT {role} TO $USER"
        ))
        .await;
    store
        .run(&match server {
            Server::MySql => format!("SET DEFAULT ROLE {role} TO $USER"),
            Server::MariaDb => format!("SET DEFAULT ROLE {role} FOR $USER"),
        })
        .await;
    store.revoke("SELECT, INSERT, UPDATE, DELETE").await;
    acquire(&store.backend(), "job").await;
    store.run(&format!("DROP ROLE {role}")).await;
    store.close().await;
}

async fn a_user_who_may_not_create_can_migrate_what_is_there(server: Server) {
    let mut store = Store::new(server, "create").await;
    store.backend().migrate().await.unwrap();
    // There would be something to make, and all rights on it but that one.
    store.grant("CREATE").await;
    store.run("DROP TABLE {}").await;
    store.revoke("CREATE").await;
    let error = store.backend().migrate().await.unwrap_err();
    assert_is(&error, ErrorKind::Denied, "GRANT CREATE ON");
    store.close().await;
}

async fn an_account_that_is_locked_is_denied(server: Server) {
    let mut store = Store::new(server, "locked").await;
    store.run("ALTER USER $USER ACCOUNT LOCK").await;
    let error = store
        .backend()
        .try_acquire(&request("job"))
        .await
        .unwrap_err();
    assert_is(&error, ErrorKind::Denied, "locked");
    store.close().await;
}

async fn a_user_with_too_many_connections_is_unavailable(server: Server) {
    let mut store = Store::new(server, "many").await;
    store
        .run("ALTER USER $USER WITH MAX_USER_CONNECTIONS 1")
        .await;
    let only = connect(&store.options()).await;
    let error = store
        .backend()
        .try_acquire(&request("job"))
        .await
        .unwrap_err();
    assert_is(&error, ErrorKind::Unavailable, "takes no more connections");
    assert!(error.is_retryable());
    drop(only);
    store.close().await;
}

async fn a_statement_that_an_operator_ends_is_told_or_sent_again(server: Server) {
    let mut store = Store::new(server, "ended").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    let mut locker = server.session().await;
    let lock = format!("BEGIN; SELECT * FROM {} FOR UPDATE", store.table);
    let lock = sqlx::raw_sql(sqlx::AssertSqlSafe(lock));
    lock.execute(&mut locker).await.unwrap();
    // On a connection that is new nothing is sent again.
    let backend = store.backend();
    let request = request("job");
    let (attempt, ()) = tokio::join!(backend.try_acquire(&request), async {
        store.until_waiting(1).await;
        store.end_statements().await;
    });
    assert_is(&attempt.unwrap_err(), ErrorKind::Timeout, "ended");
    drop(locker);
    store.close().await;
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("mysql://u:canary@127.0.0.1:{port}/db");
    let error = MySqlBackend::connect(&url).await.unwrap_err();
    let text = format!("127.0.0.1:{port} cannot be reached");
    assert_is(&error, ErrorKind::Unavailable, &text);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_host_that_never_answers_is_unavailable_within_the_limit() {
    // (D12)
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("mysql://u:canary@127.0.0.1:{port}/db");
    let connecting = MySqlBackend::builder().operation_limit(Duration::from_secs(3));
    let error = connecting.connect(&url).await.unwrap_err();
    assert_is(&error, ErrorKind::Unavailable, "does not answer within");
}

#[tokio::test]
async fn something_that_is_not_mysql_is_a_config_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            // A packet, and no greeting of MySQL's.
            let greeting = b"\x05\0\0\0hello";
            tokio::io::AsyncWriteExt::write_all(&mut client, greeting)
                .await
                .ok();
        }
    });
    let url = format!("mysql://u:canary@127.0.0.1:{port}/db");
    let error = MySqlBackend::connect(&url).await.unwrap_err();
    assert_is(&error, ErrorKind::Config, "does not answer like MySQL");
}

async fn tls_is_never_replaced_by_plain_text(server: Server) {
    // (D13)
    let mut store = Store::new(server, "tls").await;
    let has_tls = server_has_tls(&mut store).await;
    for mode in [MySqlSslMode::Required, MySqlSslMode::VerifyIdentity] {
        let options = store.options().ssl_mode(mode);
        let answer = store.builder().for_options(options).unwrap().list().await;
        match (has_tls, mode) {
            (true, MySqlSslMode::Required) => drop(answer.unwrap()),
            // The certificate is the server's own, and nobody's whom this machine trusts.
            _ => assert_is(&answer.unwrap_err(), ErrorKind::Config, "no TLS with"),
        }
    }
    store.close().await;
}

/// By whether it encrypts our own session when it is asked to.
async fn server_has_tls(store: &mut Store) -> bool {
    let cipher = match store.server {
        Server::MySql => {
            "SELECT variable_value <> '' FROM performance_schema.session_status WHERE variable_name = 'Ssl_cipher'"
        }
        Server::MariaDb => {
            "SELECT variable_value <> '' FROM information_schema.session_status WHERE variable_name = 'Ssl_cipher'"
        }
    };
    store.value(cipher).await
}

async fn without_tls_a_password_goes_through_where_the_server_lets_it(server: Server) {
    let store = Store::new(server, "plain").await;
    let options = store.options().ssl_mode(MySqlSslMode::Disabled);
    let plain = || store.builder().for_options(options.clone()).unwrap();
    let first = plain().try_acquire(&request("first")).await;
    match server {
        // It wants RSA until it has seen the password once.
        Server::MySql => assert_is(&first.unwrap_err(), ErrorKind::Config, "over TLS only"),
        Server::MariaDb => drop(first.unwrap()),
    }
    acquire(&store.backend(), "seen").await;
    acquire(&plain(), "second").await;
    store.close().await;
}

async fn debug_shows_no_password(server: Server) {
    let options = server.options().password("canary");
    let backend = MySqlBackend::from_options(options).unwrap();
    let shown = format!("{backend:?}");
    assert!(
        shown.contains("distlock_locks") && !shown.contains("canary"),
        "{shown}"
    );
}

#[tokio::test]
async fn options_out_of_range_are_refused_before_any_io() {
    let builder = MySqlBackend::builder;
    for (builder, text) in [
        (
            builder().operation_limit(Duration::from_millis(2999)),
            "2.999s is out of range",
        ),
        (builder().operation_limit(Duration::MAX), "is out of range"),
        (builder().max_connections(0), "0 connections"),
        (
            builder().max_connections(usize::MAX),
            "connections are out of range",
        ),
    ] {
        let connecting = builder.connect("mysql://u:canary@256.0.0.1/db");
        assert_is(
            &connecting.await.unwrap_err(),
            ErrorKind::InvalidOption,
            text,
        );
    }
}

#[tokio::test]
async fn a_table_cannot_be_given_twice() {
    let builder = MySqlBackend::builder().table(Table::default());
    let connecting = builder.connect("mysql://u:canary@h/db?lock_table=x");
    assert_is(
        &connecting.await.unwrap_err(),
        ErrorKind::Config,
        "leave one",
    );
}

on_both![
    a_wrong_password_is_denied,
    a_url_with_either_scheme_and_our_parameters_leads_to_the_table,
    an_unknown_database_is_a_config_error,
    options_without_a_database_are_told,
    a_missing_table_says_how_to_make_it,
    a_missing_right_is_denied_and_named,
    a_user_without_any_right_is_denied_and_told_all_that_is_missing,
    rights_that_come_by_a_role_are_rights,
    a_user_who_may_not_create_can_migrate_what_is_there,
    an_account_that_is_locked_is_denied,
    a_user_with_too_many_connections_is_unavailable,
    a_statement_that_an_operator_ends_is_told_or_sent_again,
    tls_is_never_replaced_by_plain_text,
    without_tls_a_password_goes_through_where_the_server_lets_it,
    debug_shows_no_password,
];
