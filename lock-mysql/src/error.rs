//! What the driver's and the servers' errors mean.

use distlock_api::exchange::{Again, Failed};
use distlock_api::{Effect, Error, ErrorKind};
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};

/// Error numbers to kind and advice. Below 1900 both servers mean the same by them.
///
/// <https://dev.mysql.com/doc/mysql-errors/9.4/en/server-error-reference.html>,
/// <https://mariadb.com/docs/server/reference/error-codes/mariadb-error-code-reference>
const NUMBERS: &[(&[u16], ErrorKind, &str)] = {
    use ErrorKind::*;
    &[
        (
            &[1146, 1932],
            SchemaMissing,
            "the table is missing: run `distlock migrate --store URL`, call migrate(), or apply what `distlock schema --for mysql` prints",
        ),
        (
            // Of the user or the password; of the host; of an account that is locked (3118, 4151) or too old (1820, 1862).
            &[1045, 1130, 1524, 1698, 1820, 1862, 3118, 3159, 4151],
            Denied,
            "the server refused the user or the password: check both, and the account",
        ),
        (
            &[1044, 1142, 1143, 1227, 1410],
            Denied,
            "a right is missing: GRANT SELECT, INSERT, UPDATE ON the table",
        ),
        (
            &[1046],
            Config,
            "no database was chosen: name it in the URL, or give lock_schema",
        ),
        (
            &[1049],
            Config,
            "there is no such database: create it, or correct the URL",
        ),
        (
            // --read-only and --super-read-only; innodb_read_only; the transaction; InnoDB after a forced recovery.
            &[1290, 1836, 1792, 1874],
            ReadOnly,
            "the server takes no writes: point the URL at the primary, or lift read_only",
        ),
        (
            &[1040, 1129, 1203, 1226],
            Unavailable,
            "the server takes no more connections, of this user or at all: raise the limit, or close some",
        ),
        (
            &[1047],
            Unavailable,
            "the node is not part of the cluster's majority: wait until it is, or connect to another one",
        ),
        (
            // 3101: the group's certification. 1020: MariaDB's innodb_snapshot_isolation, by which a transaction may not
            // change what others changed after it had its snapshot. Each ends the whole transaction.
            &[1020, 1213, 3101],
            Unavailable,
            "the server rolled it back for others' sake: try again",
        ),
        (
            &[1205],
            Timeout,
            "another session kept the row or the table locked: end it, or raise the operation limit",
        ),
        (
            &[1317, 1969, 3024],
            Timeout,
            "the statement was ended, by an operator or because it took too long: try again, or raise the operation limit",
        ),
        (
            &[1053, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 4031],
            Unavailable,
            "the server is stopping or ended the session: try again",
        ),
        (
            &[1021, 1037, 1038, 1041, 1114, 1135],
            Unavailable,
            "the server is out of memory or disk: make room and try again",
        ),
        (
            &[1015, 1026, 1030, 1180, 3100],
            Unavailable,
            "the server has trouble with its storage: see its log",
        ),
        (
            &[1153],
            Config,
            "the server takes no request of this size: raise max_allowed_packet",
        ),
        (
            // A column that is to be written is generated: 1906 MariaDB's, 3105 MySQL's.
            &[1364, 1366, 1906, 3105],
            Config,
            "the table does not fit: compare it with the printed schema",
        ),
        (
            // A check, which MariaDB gives a state that tells.
            &[3819],
            Config,
            "the table has a constraint that does not belong: compare it with the printed schema",
        ),
        (
            &[1665],
            Config,
            "binlog_format is STATEMENT: SET GLOBAL binlog_format = 'ROW'",
        ),
        (
            &[1690],
            Config,
            "a number in the table is as great as it can be: set fence to a smaller one",
        ),
        (
            &[1441],
            InvalidOption,
            "a time would be later than the server can tell: ask for a shorter one",
        ),
        (
            &[1243, 1412, 1615],
            Unavailable,
            "the session's statements are out of date: try again",
        ),
    ]
};

/// The beginning of SQLSTATE, for numbers that are not in the list.
const CLASSES: &[(&str, ErrorKind, &str)] = {
    use ErrorKind::*;
    &[
        ("08", Unavailable, "the connection failed: try again"),
        (
            "22",
            Config,
            "the table does not fit: compare it with the printed schema",
        ),
        (
            "23",
            Config,
            "the table has a constraint that does not belong: compare it with the printed schema",
        ),
        (
            "28",
            Denied,
            "the server refused the user or the password: check both, and the account",
        ),
        (
            "40",
            Unavailable,
            "the server rolled it back for others' sake: try again",
        ),
        (
            "42",
            Config,
            "the table does not fit: compare it with the printed schema",
        ),
    ]
};

/// A statement that failed, for the caller.
pub(crate) fn failed(error: sqlx::Error) -> Error {
    // What we ourselves say of a row.
    if let sqlx::Error::Decode(what) = &error
        && let Some(ours) = what.downcast_ref::<Error>()
    {
        return ours.clone();
    }
    let (kind, text) = match &error {
        sqlx::Error::Database(_) => return from_server(error),
        sqlx::Error::Io(_) => (
            ErrorKind::Unavailable,
            "the connection to the server broke: try again",
        ),
        sqlx::Error::ColumnDecode { .. } => (
            ErrorKind::Config,
            "the table does not fit: compare it with the printed schema",
        ),
        _ => (
            ErrorKind::Unexpected,
            "the driver reports what is not expected: please report it",
        ),
    };
    Error::new(kind, text).with_source(error)
}

/// A connection that could not be opened. Nothing was asked of the server yet.
pub(crate) fn not_connected(error: sqlx::Error, options: &MySqlConnectOptions) -> Error {
    use std::io::ErrorKind::{InvalidData, NotFound, PermissionDenied};
    let server = place(options);
    let (kind, text) = match &error {
        sqlx::Error::Database(_) => return from_server(error).with_effect(Effect::None),
        // A bad certificate comes as an I/O error about invalid data.
        sqlx::Error::Io(io) if io.kind() == InvalidData => (ErrorKind::Config, no_tls(&server)),
        sqlx::Error::Tls(_) => (ErrorKind::Config, no_tls(&server)),
        // Without a socket, the only files are those of TLS.
        sqlx::Error::Io(io)
            if options.get_socket().is_none()
                && matches!(io.kind(), NotFound | PermissionDenied) =>
        {
            (ErrorKind::Config, no_tls(&server))
        }
        sqlx::Error::Io(_) => (
            ErrorKind::Unavailable,
            format!("{server} cannot be reached: check host and port, and that the server runs"),
        ),
        // The driver asks for what we do not bring: see the crate's documentation.
        sqlx::Error::Configuration(what) if what.to_string().contains("RSA") => {
            let text = format!(
                "{server} takes this password over TLS only: leave ssl-mode=disabled out, or enable the feature mysql-rsa of sqlx"
            );
            return Error::new(ErrorKind::Config, text);
        }
        sqlx::Error::Configuration(_) => (
            ErrorKind::Config,
            "the connect options are no good: correct them".to_owned(),
        ),
        _ => (
            ErrorKind::Config,
            format!("{server} does not answer like MySQL: check host and port"),
        ),
    };
    Error::new(kind, text)
        .with_effect(Effect::None)
        .blaming(&error)
        .with_source(error)
}

fn no_tls(server: &str) -> String {
    format!("no TLS with {server}: check ssl-mode and ssl-ca, and the server's certificate")
}

/// Where the server is, for people.
pub(crate) fn place(options: &MySqlConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

fn from_server(error: sqlx::Error) -> Error {
    let number = database(&error).map_or(0, MySqlDatabaseError::number);
    let (kind, advice) = meaning(&error);
    let advice = missing_right(&error).unwrap_or_else(|| advice.to_owned());
    let mut ours = Error::new(kind, format!("{advice} [{number}]")).with_effect(effect(number));
    if matches!(number, 1020 | 1205 | 1213 | 3101) {
        ours = ours.with_store_up();
    }
    match kind {
        // All is said.
        ErrorKind::SchemaMissing => ours,
        _ => ours.with_source(error),
    }
}

/// `CREATE command denied to user …`: on the table (1142) or on a column (1143).
fn missing_right(error: &sqlx::Error) -> Option<String> {
    let server = database(error).filter(|server| matches!(server.number(), 1142 | 1143))?;
    let (right, _) = server.message().split_once(" command denied")?;
    Some(format!("a right is missing: GRANT {right} ON the table"))
}

/// The kind of an error, and what to do about it.
pub(crate) fn meaning(error: &sqlx::Error) -> (ErrorKind, &'static str) {
    let Some(server) = database(error) else {
        return (
            ErrorKind::Unavailable,
            "the connection to the server broke: try again",
        );
    };
    let (number, state) = (server.number(), server.code().unwrap_or(""));
    let known = NUMBERS
        .iter()
        .find(|(numbers, ..)| numbers.contains(&number));
    let known = known.map(|(_, kind, advice)| (*kind, *advice));
    let class = CLASSES.iter().find(|(class, ..)| state.starts_with(class));
    let class = class.map(|(_, kind, advice)| (*kind, *advice));
    known.or(class).unwrap_or((
        ErrorKind::Unexpected,
        "this is not expected: please report it",
    ))
}

/// A statement that fails is rolled back. One that fails while it is committed, or with its session, may not be.
fn effect(number: u16) -> Effect {
    match number {
        1053 | 1180 | 1927 | 3100 => Effect::Unknown,
        _ => Effect::None,
    }
}

/// A statement that failed, and whether it may be sent again.
pub(crate) fn failed_try(error: sqlx::Error) -> Failed {
    let again = again(&error);
    let may_still_run = database(&error).is_none();
    Failed {
        error: failed(error),
        again,
        may_still_run,
    }
}

fn again(error: &sqlx::Error) -> Again {
    let Some(server) = database(error) else {
        return match error {
            sqlx::Error::Io(_) => Again::Elsewhere,
            _ => Again::No,
        };
    };
    match server.number() {
        // A deadlock, or the certification of a cluster; a snapshot that was too old, which our own statements do not meet
        // under READ COMMITTED. Not a lock wait that took too long (1205): another one would outlast the operation, and
        // take the lock for nobody.
        1020 | 1213 | 3101 => Again::Here,
        // The server is stopping or ended the session, with the statement (1317) or before it.
        1053 | 1079 | 1317 | 1927 | 4031 => Again::Elsewhere,
        // The server, or the node, takes no writes: behind the same address there may be another one by now.
        1047 | 1290 | 1792 | 1836 => Again::Elsewhere,
        // The session does not know its statements any more, or in another form.
        1243 | 1412 | 1615 => Again::Elsewhere,
        _ => Again::No,
    }
}

/// Whether the database that was named is missing.
pub(crate) fn is_unknown_schema(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|server| server.number() == 1049)
}

/// Whether a savepoint is released that the session does not have.
pub(crate) fn is_no_savepoint(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|server| server.number() == 1305)
}

fn database(error: &sqlx::Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_in_one_line() {
        let mut numbers: Vec<_> = NUMBERS.iter().flat_map(|(numbers, ..)| *numbers).collect();
        let all = numbers.len();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }

    #[test]
    fn the_drivers_error_can_be_had_and_its_text_is_said_once() {
        let broken = std::io::Error::other("it broke");
        let error = failed(sqlx::Error::Io(broken));
        let driver = error.driver_error().unwrap();
        assert!(driver.is::<sqlx::Error>());
        assert_eq!(error.to_string().matches("it broke").count(), 1);
    }

    #[test]
    fn what_we_say_of_a_row_stays_what_it_is() {
        let ours = Error::new(ErrorKind::Config, "the row is wrong");
        let error = failed(sqlx::Error::Decode(ours.clone().into()));
        assert_eq!(error.to_string(), ours.to_string());
    }
}
