//! What a check tells of a table that does not fit: all of it at once, each with its fix.
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use common::{Server, Store, acquire, request};
use distlock_api::{Effect, ErrorKind, LockAdmin, LockBackend, Severity};
use tokio::task::JoinSet;

/// What does not fit, and the beginning of the fix.
const UNFIT: [(&str, &str); 24] = [
    ("MODIFY lock_until TIMESTAMP(6) NULL", NEW_TABLE),
    ("MODIFY lock_until DATETIME NOT NULL", NEW_TABLE),
    ("MODIFY locked_at DATETIME(3) NOT NULL", NEW_TABLE),
    (
        "MODIFY name VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
        NEW_TABLE,
    ),
    (
        "MODIFY name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
        NEW_TABLE,
    ),
    (
        "MODIFY name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL",
        NEW_TABLE,
    ),
    (
        "MODIFY locked_by VARCHAR(255) CHARACTER SET latin1 NOT NULL",
        NEW_TABLE,
    ),
    ("MODIFY locked_by VARCHAR(20) NOT NULL", NEW_TABLE),
    ("MODIFY fence BIGINT NOT NULL", NEW_TABLE),
    ("MODIFY token VARBINARY(16)", NEW_TABLE),
    ("MODIFY token BINARY(16)", NEW_TABLE),
    ("MODIFY last_tick BIGINT NOT NULL", NEW_TABLE),
    ("DROP COLUMN resting", NEW_TABLE),
    ("DROP PRIMARY KEY", NEW_TABLE),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (name, token)", NEW_TABLE),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (token)", NEW_TABLE),
    ("ADD UNIQUE KEY busy (locked_by)", "DROP INDEX `busy`"),
    ("ADD COLUMN extra INT NOT NULL", NEW_TABLE),
    // The number that the server makes up would be taken for the fencing token.
    (
        "ADD COLUMN id BIGINT NOT NULL AUTO_INCREMENT UNIQUE",
        NEW_TABLE,
    ),
    (
        "ADD UNIQUE KEY busy (locked_by(3), last_tick)",
        "DROP INDEX `busy`",
    ),
    (
        "DROP COLUMN last_tick, ADD COLUMN last_tick BIGINT GENERATED ALWAYS AS (fence) VIRTUAL",
        NEW_TABLE,
    ),
    (
        "ADD COLUMN length TINYINT GENERATED ALWAYS AS (100 * CHAR_LENGTH(locked_by)) STORED",
        NEW_TABLE,
    ),
    (
        "PARTITION BY RANGE COLUMNS (name) (PARTITION early VALUES LESS THAN ('job'))",
        NEW_TABLE,
    ),
    (
        "PARTITION BY LIST COLUMNS (name) (PARTITION one VALUES IN ('one'))",
        NEW_TABLE,
    ),
];

const NEW_TABLE: &str = "RENAME TABLE";

async fn a_table_that_does_not_fit_is_refused_with_the_fix_that_mends_it(server: Server) {
    // (F11, B15, traps 1, 3 and 4)
    for (change, fix) in UNFIT {
        refused_until_it_is_mended(server, &format!("ALTER TABLE {{}} {change}"), fix).await;
    }
    // Some versions of MariaDB do not show us constraints; there a grant is refused.
    let fix = match server {
        Server::MySql => "DROP CONSTRAINT `short`",
        Server::MariaDb => " TABLE ",
    };
    let short = "ALTER TABLE {} ADD CONSTRAINT short CHECK (CHAR_LENGTH(locked_by) < 4)";
    refused_until_it_is_mended(server, short, fix).await;
    // On MariaDB each of these has a default.
    if server == Server::MySql {
        for column in [
            "inv INT NOT NULL INVISIBLE",
            "ts DATETIME NOT NULL ON UPDATE CURRENT_TIMESTAMP",
        ] {
            let change = format!("ALTER TABLE {{}} ADD COLUMN {column}");
            refused_until_it_is_mended(server, &change, NEW_TABLE).await;
        }
    }
}

async fn what_only_a_grant_shows_is_refused_and_leaves_nothing(server: Server) {
    for change in [
        "CREATE TRIGGER {}_t BEFORE INSERT ON {} FOR EACH ROW SIGNAL SQLSTATE '45000'",
        "CREATE TRIGGER {}_t BEFORE UPDATE ON {} FOR EACH ROW SIGNAL SQLSTATE '45000'",
        "CREATE TRIGGER {}_t BEFORE INSERT ON {} FOR EACH ROW SET NEW.token = 'another'",
        "CREATE TRIGGER {}_t BEFORE INSERT ON {} FOR EACH ROW SET NEW.name = 'another'",
        "CREATE TRIGGER {}_t BEFORE UPDATE ON {} FOR EACH ROW SET NEW.fence = 7",
        "CREATE TRIGGER {}_t BEFORE UPDATE ON {} FOR EACH ROW SET NEW.lock_until = '2020-01-01'",
        "CREATE TRIGGER {}_t AFTER INSERT ON {} FOR EACH ROW DO no_such_function()",
    ] {
        refused_until_it_is_mended(server, change, NEW_TABLE).await;
    }
}

async fn refused_until_it_is_mended(server: Server, change: &str, fix: &str) {
    let mut store = Store::new(server, "unfit").await;
    store.run(change).await;
    let backend = store.backend();
    let found = backend.check().await.unwrap();
    let fault = found
        .iter()
        .find(|finding| finding.severity == Severity::Fault);
    let fault = fault
        .unwrap_or_else(|| panic!("not found: {change}"))
        .clone();
    assert_eq!(fault.kind, ErrorKind::Config, "{fault}");
    assert!(fault.fix.contains(fix), "{change}: {fault}");
    for error in [
        backend.migrate().await.unwrap_err(),
        backend.try_acquire(&request("job")).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(fix), "{change}: {error}");
    }
    assert_eq!(store.value::<i64>("SELECT COUNT(*) FROM {}").await, 0);
    mend(&mut store, &fault.fix).await;
    acquire(&backend, "job").await;
    store.run("DROP TABLE IF EXISTS {}_old").await;
    store.close().await;
}

/// Does what a fix says: the first of its lines is a statement.
async fn mend(store: &mut Store, fix: &str) {
    let (statement, words) = fix.split_once('\n').unwrap_or((fix, ""));
    store.run(statement).await;
    if words.contains("distlock migrate") {
        let operator = store.builder().for_options(store.server.options());
        operator.unwrap().migrate().await.unwrap();
    }
}

async fn a_check_leaves_nothing_and_disturbs_no_lock(server: Server) {
    let store = Store::new(server, "rehearsal").await;
    let backend = store.backend();
    acquire(&backend, "job").await;
    let before = backend.list().await.unwrap();
    let mut checks = JoinSet::new();
    for backend in [(); 16].map(|()| store.backend()) {
        checks.spawn(async move { backend.check().await });
    }
    for found in checks.join_all().await {
        found.unwrap().usable().unwrap();
    }
    assert_eq!(backend.list().await.unwrap().len(), before.len());
    assert_eq!(
        backend.list().await.unwrap()[0].lock_until,
        before[0].lock_until
    );
    store.close().await;
}

async fn each_trigger_is_named_with_the_statement_that_drops_it(server: Server) {
    let mut store = Store::new(server, "triggers").await;
    for event in ["INSERT", "UPDATE"] {
        let trigger =
            format!("CREATE TRIGGER `{{}} {event}` BEFORE {event} ON {{}} FOR EACH ROW SET @x = 1");
        store.run(&trigger).await;
    }
    store.run("GRANT TRIGGER ON {} TO $USER").await;
    let found = store.backend().check().await.unwrap();
    found.clone().usable().unwrap();
    for (finding, event) in found.iter().zip(["INSERT", "UPDATE"]) {
        let fix = format!("DROP TRIGGER `{} {event}`\n", store.table);
        assert!(finding.fix.starts_with(&fix), "{finding}");
        mend(&mut store, &finding.fix).await;
    }
    assert_eq!(found.iter().count(), 2, "{found:?}");
    assert!(store.backend().check().await.unwrap().is_empty());
    store.close().await;
}

/// A user with a quote and a backslash in its name.
const ODD: &str = r"o''d\\d";

async fn a_grant_for_a_missing_table_and_an_odd_name_can_be_run_line_by_line(server: Server) {
    let mut store = Store::new(server, "odd").await;
    let user = format!("'{ODD}{}'", std::process::id());
    store
        .run(&format!(
            "CREATE TABLE {{}}_other (n INT); CREATE USER {user} IDENTIFIED BY 'canary';
             GRANT SELECT ON {{}}_other TO {user}; DROP TABLE {{}}"
        ))
        .await;
    let name = format!(r"o'd\d{}", std::process::id());
    let options = server.options().username(&name).password("canary");
    let backend = store.builder().for_options(options).unwrap();
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    let found = backend.check().await.unwrap();
    let fault = found.iter().next().unwrap();
    assert_eq!(
        (error.kind(), fault.kind),
        (ErrorKind::Denied, ErrorKind::Denied)
    );
    let (words, grant) = fault.fix.split_once('\n').unwrap();
    assert!(
        words.starts_with("migrate with an account that may CREATE"),
        "{fault}"
    );
    let operator = store.builder().for_options(server.options()).unwrap();
    operator.migrate().await.unwrap();
    store.run(grant).await;
    acquire(&backend, "job").await;
    store
        .run(&format!("DROP TABLE {{}}_other; DROP USER {user}"))
        .await;
    store.close().await;
}

async fn constraints_that_can_refuse_a_lock_are_named_and_mended(server: Server) {
    let mut store = Store::new(server, "constraint").await;
    store
        .run("CREATE TABLE {}_people (name VARCHAR(255) CHARACTER SET utf8mb4 PRIMARY KEY)")
        .await;
    store
        .run(
            "ALTER TABLE {}
             MODIFY locked_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL CHECK (CHAR_LENGTH(locked_by) < 4),
             ADD CONSTRAINT name CHECK (name <> 'job'),
             ADD CONSTRAINT known FOREIGN KEY (locked_by) REFERENCES {}_people (name)",
        )
        .await;
    let backend = store.backend();
    let error = backend.try_acquire(&request("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let found = backend.check().await.unwrap();
    let faults = found
        .iter()
        .filter(|finding| finding.severity == Severity::Fault);
    let fixes: Vec<_> = faults.map(|finding| finding.fix.clone()).collect();
    match server {
        Server::MySql => {
            assert_eq!(fixes.len(), 3, "{found:?}");
            for fix in fixes {
                mend(&mut store, &fix).await;
            }
        }
        // One of them may be part of a column, or they are not shown to us: a new table mends all.
        Server::MariaDb => {
            assert!(fixes.iter().all(|fix| *fix == fixes[0]), "{found:?}");
            mend(&mut store, &fixes[0]).await;
        }
    }
    acquire(&backend, "job").await;
    store.run("DROP TABLE IF EXISTS {}_old").await;
    store.run("DROP TABLE {}_people").await;
    store.close().await;
}

async fn what_refuses_rows_since_the_check_is_an_error_and_never_held(server: Server) {
    for (change, back) in [
        ("ADD UNIQUE KEY busy (locked_by)", "DROP INDEX busy"),
        (
            "ADD CONSTRAINT busy CHECK (locked_by <> 'test' OR name = 'one')",
            "DROP CONSTRAINT busy",
        ),
    ] {
        let mut store = Store::new(server, "since").await;
        let backend = store.backend();
        acquire(&backend, "one").await;
        store.run(&format!("ALTER TABLE {{}} {change}")).await;
        // A name that is unknown is inserted, one that is known updated.
        let unknown = backend.try_acquire(&request("two")).await.unwrap_err();
        store
            .run("INSERT INTO {} SELECT 'two', '2020-01-01', '2020-01-01', 'me', 'x', 1, NULL, 0")
            .await;
        let known = backend.try_acquire(&request("two")).await.unwrap_err();
        for error in [unknown, known] {
            let told = (error.kind(), error.effect());
            assert_eq!(told, (ErrorKind::Config, Effect::None), "{error}");
            assert!(error.to_string().contains("busy"), "{error}");
        }
        store.run(&format!("ALTER TABLE {{}} {back}")).await;
        acquire(&backend, "two").await;
        store.close().await;
    }
}

async fn everything_that_is_wrong_is_told_at_once(server: Server) {
    let mut store = Store::new(server, "all").await;
    store.run("ALTER TABLE {} ENGINE = MyISAM, DROP PRIMARY KEY, MODIFY lock_until TIMESTAMP NULL, ADD COLUMN extra INT NOT NULL").await;
    store.run("CREATE TRIGGER {}_t BEFORE UPDATE ON {} FOR EACH ROW SET @x = 1; GRANT TRIGGER ON {} TO $USER").await;
    store.revoke("UPDATE").await;
    let found = store.backend().check().await.unwrap();
    let text: Vec<_> = found.iter().map(ToString::to_string).collect();
    let text = text.join("\n");
    for part in [
        "ENGINE = InnoDB",
        "has the column lock_until as timestamp",
        "has no key on name alone",
        "has a further column `extra`",
        "RENAME TABLE",
        "GRANT UPDATE ON",
        "DROP TRIGGER",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let severities = found.iter().map(|finding| finding.severity);
    assert!(severities.rev().is_sorted(), "faults first: {found:?}");
    store.close().await;
}

async fn a_table_that_forgets_in_a_crash_is_refused(server: Server) {
    for engine in ["MyISAM", "MEMORY"] {
        let mut store = Store::new(server, "engine").await;
        store
            .run(&format!(
                "ALTER TABLE {{}} DROP PRIMARY KEY, ENGINE = {engine}"
            ))
            .await;
        let backend = store.backend();
        let error = backend.try_acquire(&request("job")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("ENGINE = InnoDB"), "{error}");
        store.close().await;
    }
}

async fn a_view_is_refused(server: Server) {
    let mut store = Store::new(server, "view").await;
    store
        .run("RENAME TABLE {} TO {}_old; CREATE VIEW {} AS SELECT * FROM {}_old")
        .await;
    let error = store
        .backend()
        .try_acquire(&request("job"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("is no table"), "{error}");
    store.run("DROP VIEW {}; RENAME TABLE {}_old TO {}").await;
    store.close().await;
}

async fn further_columns_keys_and_longer_columns_are_welcome(server: Server) {
    let mut store = Store::new(server, "further").await;
    store
        .run(
            "ALTER TABLE {} ADD COLUMN note TEXT, ADD COLUMN made DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
             ADD COLUMN more JSON, ADD UNIQUE KEY more (name, locked_by), ADD KEY (locked_by),
             MODIFY locked_by VARCHAR(300) CHARACTER SET utf8mb4 NOT NULL",
        )
        .await;
    if server == Server::MySql {
        store
            .run("ALTER TABLE {} ADD CONSTRAINT asleep CHECK (name = 'never') NOT ENFORCED")
            .await;
    }
    let backend = store.backend();
    backend.check().await.unwrap().usable().unwrap();
    acquire(&backend, "one").await;
    acquire(&backend, "two").await;
    store.close().await;
}

on_both![
    a_table_that_does_not_fit_is_refused_with_the_fix_that_mends_it,
    what_only_a_grant_shows_is_refused_and_leaves_nothing,
    a_check_leaves_nothing_and_disturbs_no_lock,
    each_trigger_is_named_with_the_statement_that_drops_it,
    a_grant_for_a_missing_table_and_an_odd_name_can_be_run_line_by_line,
    constraints_that_can_refuse_a_lock_are_named_and_mended,
    what_refuses_rows_since_the_check_is_an_error_and_never_held,
    everything_that_is_wrong_is_told_at_once,
    a_table_that_forgets_in_a_crash_is_refused,
    a_view_is_refused,
    further_columns_keys_and_longer_columns_are_welcome,
];
