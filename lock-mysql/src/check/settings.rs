//! The settings of the server.

use std::collections::HashMap;

use distlock_api::{ErrorKind, Finding, Findings};
use sqlx::MySqlConnection;

use crate::schema::Table;
use crate::statements::text;

pub(super) async fn check(connection: &mut MySqlConnection) -> sqlx::Result<Findings> {
    let show = text(
        include_str!("../statements/check_settings.sql"),
        &Table::default(),
    );
    let show = sqlx::query_as(sqlx::AssertSqlSafe(show)).persistent(false);
    let settings: Vec<(String, String)> = show.fetch_all(connection).await?;
    let settings: HashMap<_, _> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    Ok(findings(&settings))
}

fn findings(settings: &HashMap<&str, &str>) -> Findings {
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|found| *found == value);
    let is_not = |name: &str, value: &str| settings.get(name).is_some_and(|found| *found != value);
    let mut found = Findings::default();
    if let Some(version) = settings.get("version").filter(|version| is_old(version)) {
        found.push(Finding::fault(
            ErrorKind::Config,
            format!("the server is {version}"),
            "use MySQL 8.0.17, MariaDB 10.6, or a later one",
        ));
    }
    if is("log_bin", "ON") && is("binlog_format", "STATEMENT") {
        found.push(Finding::fault(
            ErrorKind::Config,
            "binlog_format is STATEMENT, with which InnoDB takes no writes under READ COMMITTED",
            "SET GLOBAL binlog_format = 'ROW'\nand in the server's configuration, for the next start",
        ));
    }
    if is_not("innodb_flush_log_at_trx_commit", "1") {
        found.push(Finding::warning(
            "innodb_flush_log_at_trx_commit is not 1, so that a crash forgets the last grants",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1\nand in the server's configuration, for the next start",
        ));
    }
    if is("log_bin", "ON") && is_not("sync_binlog", "1") {
        found.push(Finding::warning(
            "sync_binlog is not 1, so that a crash of the machine takes grants back that the binary log misses",
            "SET GLOBAL sync_binlog = 1\nand in the server's configuration, for the next start",
        ));
    }
    if is("wsrep_on", "ON") || is("group_replication_single_primary_mode", "OFF") {
        found.push(Finding::warning(
            "several nodes of the cluster take writes, and each counts leases by its own clock; refusals and lists may be out of date",
            "point the URLs of all clients at one node",
        ));
    }
    found
}

/// `8.0.36`, `10.11.6-MariaDB-log`. What cannot be read is not old.
fn is_old(version: &str) -> bool {
    let least = match version.contains("MariaDB") {
        true => [10, 6, 0],
        false => [8, 0, 17],
    };
    let digits = version.split(|c: char| !c.is_ascii_digit()).take(3);
    let parts: Result<Vec<u32>, _> = digits.map(str::parse).collect();
    parts.is_ok_and(|parts| parts.as_slice() < least.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_told_by_their_version() {
        for (version, old) in [
            ("8.0.16", true),
            ("5.7.44-log", true),
            ("8.0.17", false),
            ("8.0.36-0ubuntu0.22.04.1", false),
            ("9.7.4-2", false),
            ("10.5.29-MariaDB", true),
            ("10.6.0-MariaDB", false),
            ("11.8.1-MariaDB-log", false),
            ("8.0.mysql_aurora.3.04.0", false),
        ] {
            assert_eq!(is_old(version), old, "{version}");
        }
    }

    #[test]
    fn good_settings_say_nothing_and_each_bad_one_is_told() {
        let good = [
            ("version", "9.7.4"),
            ("log_bin", "ON"),
            ("binlog_format", "ROW"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("sync_binlog", "1"),
        ];
        assert!(findings(&HashMap::from(good)).is_empty());
        for (name, value) in [
            ("version", "5.7.44"),
            ("binlog_format", "STATEMENT"),
            ("innodb_flush_log_at_trx_commit", "2"),
            ("sync_binlog", "0"),
            ("wsrep_on", "ON"),
            ("group_replication_single_primary_mode", "OFF"),
        ] {
            let mut settings = HashMap::from(good);
            settings.insert(name, value);
            assert_eq!(findings(&settings).iter().count(), 1, "{name}");
        }
        let without_log = HashMap::from([("log_bin", "OFF"), ("sync_binlog", "0")]);
        assert!(findings(&without_log).is_empty());
    }
}
