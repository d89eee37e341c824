//! Settings of the server that everybody shares: the tests of this file take turns, and put back what they change.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::time::Duration;

use common::{LEASE, Server, Store, acquire, granted, request};
use distlock_api::{Effect, ErrorKind, LockAdmin, LockBackend, LockState, Renewal, Severity};
use tokio::sync::Mutex;

/// The server's settings, which are put back in the end, also when the test fails.
struct Changed {
    server: Server,
    put_back: Vec<String>,
}

/// Each test of this file is run in here, so that none can forget its turn: from its first statement to its last.
async fn in_turn(test: impl Future<Output = ()>) {
    static TURN: Mutex<()> = Mutex::const_new(());
    let _turn = TURN.lock().await;
    test.await;
}

impl Changed {
    /// Sets them for all sessions that begin from now on.
    async fn set(store: &mut Store, settings: &[(&str, &str)]) -> Self {
        let mut changed = Self {
            server: store.server,
            put_back: Vec::new(),
        };
        for (setting, value) in settings {
            let before = format!("SELECT CAST(@@GLOBAL.{setting} AS CHAR)");
            let before: String = store.value(&before).await;
            // Numbers are not to be quoted, and texts are.
            let before = match before.parse::<u64>() {
                Ok(_) => before,
                Err(_) => format!("'{before}'"),
            };
            let back = format!("SET GLOBAL {setting} = {before}");
            changed.put_back.push(back);
            store.run(&format!("SET GLOBAL {setting} = {value}")).await;
        }
        changed
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let (server, put_back) = (self.server, self.put_back.join(";"));
        let work = async move {
            let mut session = server.session().await;
            let done = sqlx::raw_sql(sqlx::AssertSqlSafe(put_back));
            done.execute(&mut session).await.unwrap();
        };
        let runtime = || tokio::runtime::Runtime::new().unwrap();
        let undone = std::thread::spawn(move || runtime().block_on(work)).join();
        assert!(undone.is_ok() || std::thread::panicking(), "not put back");
    }
}

/// The setting of the isolation level.
fn isolation(server: Server) -> &'static str {
    match server {
        Server::MySql => "transaction_isolation",
        Server::MariaDb => "tx_isolation",
    }
}

/// Defaults that no lock statement would survive.
fn strange(server: Server) -> [(&'static str, &'static str); 8] {
    [
        ("autocommit", "0"),
        ("sql_safe_updates", "1"),
        ("sql_select_limit", "1"),
        ("time_zone", "'+05:00'"),
        ("innodb_lock_wait_timeout", "1000"),
        ("lock_wait_timeout", "1000"),
        (
            "sql_mode",
            "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
        ),
        (isolation(server), "'SERIALIZABLE'"),
    ]
}

async fn strange_defaults_of_the_server_do_not_reach_lock_statements(server: Server) {
    // (trap 7, U12)
    let mut store = Store::new(server, "defaults").await;
    let isolation = isolation(server);
    // In milliseconds and in seconds.
    let limit = match server {
        Server::MySql => "@@max_execution_time",
        Server::MariaDb => "ROUND(@@max_statement_time * 1000)",
    };
    let changed = Changed::set(&mut store, &strange(server)).await;
    let backend = store.backend();
    for text in ["one", "two"] {
        acquire(&backend, text).await;
    }
    let listed = backend.list().await;
    let refused = backend.try_acquire(&request("one")).await;
    store
        .run(&format!(
            "CREATE TRIGGER {{}}_spy BEFORE UPDATE ON {{}} FOR EACH ROW SET NEW.locked_by =
             CONCAT_WS(' ', @@{isolation}, IF(@@autocommit, 'on', 'off'), IF(@@sql_safe_updates, 'on', 'off'),
                 @@innodb_lock_wait_timeout, @@lock_wait_timeout, {limit}, @@time_zone)"
        ))
        .await;
    store
        .run("UPDATE {} SET lock_until = '2020-01-01' WHERE name = 'one'")
        .await;
    acquire(&backend, "one").await;
    drop(changed);
    assert_eq!(listed.unwrap().len(), 2);
    assert_eq!(granted(&refused.unwrap()), None);
    let seen: String = store
        .value("SELECT locked_by FROM {} WHERE name = 'one'")
        .await;
    assert_eq!(seen, "READ-COMMITTED on off 3 3 4500 +00:00");
    store.close().await;
}

async fn strange_defaults_of_the_server_do_not_reach_renewals_and_purges(server: Server) {
    // (U12)
    let mut store = Store::new(server, "renewals").await;
    let changed = Changed::set(&mut store, &strange(server)).await;
    let backend = store.backend();
    let mut leases = Vec::new();
    for text in ["one", "two"] {
        let (held, _) = acquire(&backend, text).await;
        leases.push((held.lease_id(), LEASE));
    }
    let renewed = backend.renew(&leases).await;
    // Not strict, the server would write a date of zeros.
    let too_long = backend.renew(&[(leases[0].0.clone(), Duration::MAX)]).await;
    let before = store.backend().list().await;
    store
        .run("UPDATE {} SET lock_until = '2020-01-01', fence = 1")
        .await;
    let purged = backend.purge(LEASE).await;
    drop(changed);
    for renewal in renewed {
        assert_eq!(renewal.unwrap(), Renewal::Renewed);
    }
    let error = too_long[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    let held = before.unwrap().into_iter().map(|record| record.state);
    assert_eq!(held.collect::<Vec<_>>(), [LockState::Held; 2]);
    assert_eq!(purged.unwrap(), 2);
    store.close().await;
}

async fn a_server_that_takes_no_writes_is_read_only_and_recovers(server: Server) {
    // (F9, U8)
    let mut store = Store::new(server, "readonly").await;
    let warm = store.backend();
    acquire(&warm, "warm").await;
    let changed = Changed::set(&mut store, &[("read_only", "1")]).await;
    let backend = store.backend();
    let errors = [
        backend.check().await.unwrap().usable().unwrap_err(),
        backend.migrate().await.unwrap_err(),
        backend.try_acquire(&request("job")).await.unwrap_err(),
        // Its check is over: the server itself says it.
        warm.try_acquire(&request("job")).await.unwrap_err(),
    ];
    let readable = backend.list().await;
    let privileged = store.builder().for_options(server.options()).unwrap();
    let privileged = privileged.check().await.unwrap().usable();
    drop(changed);
    for error in errors {
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::ReadOnly, Effect::None),
            "{error}"
        );
        assert!(error.to_string().contains("lift read_only"), "{error}");
    }
    assert_eq!(readable.unwrap().len(), 1, "reading is allowed");
    // Who may write all the same is not refused.
    privileged.unwrap();
    acquire(&backend, "job").await;
    acquire(&warm, "other").await;
    store.close().await;
}

async fn settings_that_forget_grants_in_a_crash_are_warned_of(server: Server) {
    let mut store = Store::new(server, "durable").await;
    let weak = [
        ("innodb_flush_log_at_trx_commit", "2"),
        ("sync_binlog", "0"),
    ];
    let has_log: bool = store.value("SELECT @@log_bin").await;
    let changed = Changed::set(&mut store, &weak).await;
    let found = store.backend().check().await.unwrap();
    drop(changed);
    let expected = if has_log { &weak[..] } else { &weak[..1] };
    assert_eq!(found.iter().count(), expected.len(), "{found:?}");
    for (finding, (setting, _)) in found.iter().zip(expected) {
        assert_eq!(finding.severity, Severity::Warning);
        assert!(
            finding.fix.contains(&format!("SET GLOBAL {setting} = 1")),
            "{finding}"
        );
    }
    found.usable().unwrap();
    store.close().await;
}

async fn an_idle_session_that_the_server_ended_is_replaced(server: Server) {
    // (F1)
    let mut store = Store::new(server, "idle").await;
    let changed = Changed::set(&mut store, &[("wait_timeout", "1")]).await;
    let backend = store.backend();
    let (held, _) = acquire(&backend, "job").await;
    drop(changed);
    let gone = format!("SELECT COUNT(*) = 0 FROM ({}) AS mine", store.processes());
    server.until(&gone).await;
    let lease = held.lease_id();
    let released = backend.release(&lease, Duration::ZERO).await;
    assert_eq!(released.unwrap(), distlock_api::Release::Released);
    store.close().await;
}

on_both![in in_turn:
    strange_defaults_of_the_server_do_not_reach_lock_statements,
    strange_defaults_of_the_server_do_not_reach_renewals_and_purges,
    a_server_that_takes_no_writes_is_read_only_and_recovers,
    settings_that_forget_grants_in_a_crash_are_warned_of,
    an_idle_session_that_the_server_ended_is_replaced,
];
