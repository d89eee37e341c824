//! `check`: what is wrong with a store is told, with what to do about it. The tables have broken set-ups of each.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Command;

use common::{Store, distlock, finish, for_user, send_to_redis, sql, with};
use serde_json::{Value, json};

/// What breaks a set-up; the kind of the fault that this is, or `warning`; the essential part of what is told; that of
/// the fix, or nothing where what is told has it.
type SetUp<'a> = (&'a str, &'a str, &'a str, &'a str);

#[rustfmt::skip]
const UNREACHABLE: [SetUp<'_>; 6] = [
    ("postgres://u:canary@127.0.0.1:1/db", "unavailable", "127.0.0.1:1 cannot be reached: check host and port", ""),
    ("mysql://u:canary@127.0.0.1:1/db", "unavailable", "127.0.0.1:1 cannot be reached: check host and port", ""),
    ("redis://u:canary@127.0.0.1:1", "unavailable", "127.0.0.1:1 cannot be reached", ""),
    ("wat://canary@127.0.0.1/db", "config", "the scheme \"wat\" is not known: use postgres://", ""),
    ("postgres://u:can/ary@h/db", "config", "special characters in the password percent-encoded", ""),
    ("sqlite:///nowhere/at/all.db", "config", "the folder of /nowhere/at/all.db does not exist", "make it"),
];

/// `{}` is the name of a table and of a user.
#[rustfmt::skip]
const POSTGRES: [SetUp<'_>; 9] = [
    ("ALTER ROLE {} PASSWORD 'other'", "denied", "refused the user or the password: check both", ""),
    ("ALTER ROLE {} SET default_transaction_read_only = on", "read_only", "are read-only", "RESET default_transaction_read_only"),
    ("DROP TABLE {}", "schema_missing", "is missing", "distlock migrate"),
    ("REVOKE UPDATE ON {} FROM {}", "denied", "has no right to UPDATE on", "GRANT UPDATE ON"),
    ("ALTER TABLE {} ALTER lock_until TYPE timestamp", "config", "has the column lock_until as timestamp without", "RENAME TO"),
    ("ALTER TABLE {} SET UNLOGGED", "config", "is unlogged or temporary", "SET LOGGED"),
    ("ALTER TABLE {} DROP CONSTRAINT {}_pkey", "config", "has no key on name alone", "RENAME TO"),
    ("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", "config", "row security hides rows", "DISABLE ROW LEVEL SECURITY"),
    ("CREATE TRIGGER odd BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
     "warning", "has the trigger \"odd\"", "DROP TRIGGER \"odd\""),
];

/// The same of MySQL and MariaDB.
#[rustfmt::skip]
const MYSQL: [SetUp<'_>; 7] = [
    ("ALTER USER {} IDENTIFIED BY 'other'", "denied", "refused the user or the password: check both", ""),
    ("DROP TABLE {}", "schema_missing", "is missing", "distlock migrate"),
    ("REVOKE UPDATE ON {} FROM {}", "denied", "has no right to UPDATE on", "GRANT UPDATE ON"),
    ("ALTER TABLE {} MODIFY name VARCHAR(99) NOT NULL, ENGINE = MyISAM", "config", "is kept by MyISAM", "ENGINE = InnoDB"),
    ("ALTER TABLE {} MODIFY lock_until TIMESTAMP(6) NOT NULL",
     "config", "has the column lock_until as timestamp(6)", "RENAME TABLE"),
    ("ALTER TABLE {} MODIFY name VARCHAR(255) COLLATE utf8mb4_general_ci NOT NULL",
     "config", "takes different names for the same (collation utf8mb4_general_ci)", "RENAME TABLE"),
    ("ALTER TABLE {} DROP PRIMARY KEY", "config", "has no key on name alone", "RENAME TABLE"),
];

const ARIA: SetUp<'_> = (
    "ALTER TABLE {} ENGINE = Aria",
    "config",
    "is kept by Aria",
    "ENGINE = InnoDB",
);

/// The rights of a user who has all others.
#[rustfmt::skip]
const REDIS: [SetUp<'_>; 6] = [
    (">other", "denied", "the user or the password is wrong: correct them", ""),
    (">canary off", "denied", "the user or the password is wrong: correct them", ""),
    (">canary -@all +ping +hello +auth +client", "denied", "the user may not run eval, evalsha", " +eval +evalsha"),
    (">canary -incr", "denied", "the user may not run incr", " +incr"),
    (">canary resetkeys ~other:*", "denied", "the user may not use the keys lock:*", " ~lock:*"),
    (">canary -info", "warning", "the server does not show its settings", " +info"),
];

/// Commands of the shell, where there is `$FILE` in them.
#[rustfmt::skip]
const SQLITE: [SetUp<'_>; 10] = [
    ("rm $FILE*", "config", "there is no file", "distlock migrate"),
    ("rm $FILE*; mkdir $FILE", "config", "is a directory", "name a file in it"),
    ("rm $FILE*; yes | head -c 9999 > $FILE", "config", "is no SQLite database", "choose another file"),
    ("rm $FILE*; mkfifo $FILE", "config", "is no regular file", "name another one"),
    ("rm $FILE*; ln -s nowhere/x $FILE", "config", "is a symbolic link that leads to nothing", "correct it"),
    ("chmod o+w $FILE", "warning", "anybody on this machine may write", "chmod o-w"),
    ("DROP TABLE distlock_locks", "schema_missing", "there is no table distlock_locks", "distlock migrate"),
    ("DROP TABLE distlock_locks; CREATE VIEW distlock_locks AS SELECT 1", "config", "is a view", "choose another lock_table"),
    ("ALTER TABLE distlock_locks DROP COLUMN last_tick", "config", "has no column last_tick", "\"distlock_locks_old\"\nthen run `distlock migrate"),
    ("PRAGMA journal_mode = DELETE", "warning", "(journal_mode delete)", "PRAGMA journal_mode = WAL"),
];

on_store!(sqlite: broken_set_ups_of_sqlite);
on_store!(postgres: broken_set_ups_of_postgres);
on_store!(mysql: broken_set_ups_of_mysql);
on_store!(mariadb: broken_set_ups_of_mysql, a_broken_set_up_of_mariadb_alone);
on_store!(redis: broken_set_ups_of_redis);

#[test]
fn stores_that_cannot_be_reached_or_understood() {
    for set_up in UNREACHABLE {
        assert_told(set_up.0, set_up);
    }
}

fn broken_set_ups_of_sqlite(_: &Store) {
    for set_up in SQLITE {
        let store = Store::sqlite();
        let broken = set_up.0;
        if broken.contains("$FILE") {
            let mut shell = Command::new("sh");
            shell.env("FILE", store.path("locks.db"));
            let done = finish(shell.args(["-ec", broken]));
            assert_eq!(done.code, Some(0), "{broken}: {done:?}");
        } else {
            sql(&store.url, broken);
        }
        assert_told(&store.url, set_up);
    }
}

fn broken_set_ups_of_postgres(store: &Store) {
    let right = "CREATE ROLE {} LOGIN PASSWORD 'canary'; CREATE TABLE {} (LIKE distlock_locks INCLUDING ALL);
                 GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}";
    let tidy = "DROP TABLE IF EXISTS {}; DROP OWNED BY {}; DROP ROLE {}";
    for (nth, set_up) in POSTGRES.into_iter().enumerate() {
        assert_told_of_table(store, nth, right, set_up, tidy);
    }
}

const MYSQL_RIGHT: &str =
    "CREATE USER {} IDENTIFIED BY 'canary'; CREATE TABLE {} LIKE distlock_locks;
                           GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}";
const MYSQL_TIDY: &str = "DROP TABLE IF EXISTS {}; DROP USER {}";

fn broken_set_ups_of_mysql(store: &Store) {
    for (nth, set_up) in MYSQL.into_iter().enumerate() {
        assert_told_of_table(store, nth, MYSQL_RIGHT, set_up, MYSQL_TIDY);
    }
}

fn a_broken_set_up_of_mariadb_alone(store: &Store) {
    assert_told_of_table(store, 0, MYSQL_RIGHT, ARIA, MYSQL_TIDY);
}

/// Makes a table and a user that are as they should be, and breaks that.
fn assert_told_of_table(store: &Store, nth: usize, right: &str, set_up: SetUp<'_>, tidy: &str) {
    let name = format!("{}_{nth}", store.identifier());
    let run = |statements: &str| sql(&store.url, &statements.replace("{}", &name));
    run(right);
    run(set_up.0);
    let url = for_user(&store.url, &format!("{name}:canary"));
    assert_told(&with(&url, &format!("lock_table={name}")), set_up);
    run(tidy);
}

fn broken_set_ups_of_redis(store: &Store) {
    let user = store.identifier();
    for set_up in REDIS {
        let rights = format!("ACL SETUSER {user} on ~* +@all {}", set_up.0);
        assert_eq!(send_to_redis(&store.url, &rights), "+OK\r\n");
        assert_told(&for_user(&store.url, &format!("{user}:canary")), set_up);
        let gone = format!("ACL DELUSER {user}");
        assert_eq!(send_to_redis(&store.url, &gone), ":1\r\n");
    }
}

/// That people and scripts are told, with the exit code of a fault or of a warning, and without a password.
fn assert_told(url: &str, (broken, kind, what, fix): SetUp<'_>) {
    let (severity, kind, code) = match kind {
        "warning" => ("warning", "config", 0),
        kind => ("fault", kind, 1),
    };
    let report: Value = serde_json::from_str(&check(url, "--json", code)).unwrap();
    assert_eq!(report["usable"], code == 0, "{report}");
    let has = |field: &Value, part| field.as_str().is_some_and(|text| text.contains(part));
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|found| has(&found["what"], what));
    let found = found.unwrap_or_else(|| panic!("{broken}: {report}"));
    assert_eq!(found["severity"], severity, "{broken}: {report}");
    assert_eq!(found["kind"], kind, "{broken}: {report}");
    match fix {
        "" => assert_eq!(found["fix"], json!(null), "{broken}"),
        fix => assert!(has(&found["fix"], fix), "{broken}: {report}"),
    }

    let text = check(url, "--strict", 1);
    let block = text.split("\n\n").find(|block| block.contains(what));
    let block = block.unwrap_or_else(|| panic!("{broken}: {text}"));
    assert!(block.starts_with(&format!("{severity}: ")), "{text}");
    for line in fix.lines() {
        assert!(block.contains(line), "{line}: {text}");
    }
    let verdict = if code == 1 {
        "no lock can"
    } else {
        "locks can"
    };
    assert!(text.ends_with(&format!(": {verdict} be had.\n")), "{text}");
}

fn check(url: &str, option: &str, code: i32) -> String {
    let mut check = distlock();
    let done = finish(check.env("DISTLOCK_STORE", url).args(["check", option]));
    let end = (done.code, &*done.stderr);
    assert_eq!(end, (Some(code), ""), "{done:?}");
    assert!(!done.stdout.contains("canary"), "{done:?}");
    done.stdout
}
