//! What the driver's and the server's errors mean.

use std::borrow::Cow;

use distlock_api::{Effect, Error, ErrorKind};
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};

/// SQLSTATE, or its beginning, to kind and advice; the first that fits counts.
///
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
const SQLSTATES: &[(&str, ErrorKind, &str)] = {
    use ErrorKind::*;
    &[
        (
            "08P01",
            Config,
            "a pooler or proxy may be in between: connect to the server directly",
        ),
        ("08", Unavailable, "the connection failed: try again"),
        (
            "0A000",
            Config,
            "the server cannot do this: PostgreSQL 13 or later is needed",
        ),
        (
            "22P05",
            Config,
            "the database cannot store this text: use one with the encoding UTF8",
        ),
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
            "25006",
            ReadOnly,
            "the server takes no writes: point the URL at the primary, or lift default_transaction_read_only",
        ),
        (
            "28",
            Denied,
            "the server refused the user or the password: check both, and pg_hba.conf",
        ),
        (
            "3D000",
            Config,
            "there is no such database: create it, or correct the URL",
        ),
        (
            "3F000",
            Config,
            "there is no such schema: create it, or correct lock_schema",
        ),
        (
            "40",
            Unavailable,
            "the server rolled it back for others' sake: try again",
        ),
        (
            "42501",
            Denied,
            "a right is missing: grant USAGE on the schema and SELECT, INSERT, UPDATE on the table",
        ),
        (
            "42P01",
            SchemaMissing,
            "the table is missing: run `distlock migrate`, or apply what `distlock schema --for postgres` prints",
        ),
        (
            "42",
            Config,
            "the table does not fit: compare it with the printed schema",
        ),
        (
            "53",
            Unavailable,
            "the server is out of connections, memory or disk: make room and try again",
        ),
        (
            "55P03",
            Timeout,
            "another session kept the row locked: end it, or raise the operation limit",
        ),
        (
            "57014",
            Timeout,
            "the server cancelled it because it took too long: try again, or raise the operation limit",
        ),
        (
            "57P",
            Unavailable,
            "the server is stopping, starting or ended the session: try again",
        ),
        (
            "58",
            Unavailable,
            "the server has trouble with its system: see its log",
        ),
    ]
};

/// A statement that failed, for the caller.
pub(crate) fn failed(error: &sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(_) => from_server(error, Effect::Unknown),
        sqlx::Error::Io(io) => Error::new(
            ErrorKind::Unavailable,
            format!("the connection to the server broke ({io}): try again"),
        ),
        other => Error::new(
            ErrorKind::Unexpected,
            format!("the driver reports what is not expected ({other}): please report it"),
        ),
    }
}

/// A connection that could not be opened. Nothing was asked of the server yet.
pub(crate) fn not_connected(error: &sqlx::Error, options: &PgConnectOptions) -> Error {
    use std::io::ErrorKind::{InvalidData, NotFound, PermissionDenied};
    let server = place(options);
    let (kind, text) = match error {
        sqlx::Error::Database(_) => return from_server(error, Effect::None),
        // A bad certificate comes as an I/O error about invalid data.
        sqlx::Error::Io(io) if io.kind() == InvalidData => (ErrorKind::Config, no_tls(&server, io)),
        sqlx::Error::Tls(tls) => (ErrorKind::Config, no_tls(&server, tls)),
        // Without a socket, the only files are those of TLS.
        sqlx::Error::Io(io)
            if socket(options).is_none() && matches!(io.kind(), NotFound | PermissionDenied) =>
        {
            (ErrorKind::Config, no_tls(&server, io))
        }
        sqlx::Error::Io(io) => (
            ErrorKind::Unavailable,
            format!(
                "{server} cannot be reached ({io}): check host and port, and that the server runs"
            ),
        ),
        sqlx::Error::Configuration(what) => (
            ErrorKind::Config,
            format!("the connect options are no good ({what}): correct them"),
        ),
        other => (
            ErrorKind::Config,
            format!("{server} does not answer like PostgreSQL ({other}): check host and port"),
        ),
    };
    Error::new(kind, text).with_effect(Effect::None)
}

fn no_tls(server: &str, what: &dyn std::fmt::Display) -> String {
    format!(
        "no TLS with {server} ({what}): check sslmode and sslrootcert, and the server's certificate"
    )
}

/// Where the server is, for people.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    match socket(options) {
        Some(folder) => format!("{folder}/.s.PGSQL.{}", options.get_port()),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// The folder of the Unix socket, where one is used.
fn socket(options: &PgConnectOptions) -> Option<Cow<'_, str>> {
    let host = options.get_host();
    match options.get_socket() {
        Some(folder) => Some(folder.to_string_lossy()),
        None => host.starts_with('/').then_some(Cow::Borrowed(host)),
    }
}

/// `fatal` is what an error that ended the session leaves of the statement's effect.
fn from_server(error: &sqlx::Error, fatal: Effect) -> Error {
    let Some(error) = database(error) else {
        return Error::new(ErrorKind::Unexpected, error.to_string());
    };
    let (code, text) = (error.code(), error.message());
    let known = SQLSTATES
        .iter()
        .find(|(state, ..)| code.starts_with(state))
        .map(|(_, kind, advice)| (*kind, *advice));
    let (kind, advice) = known.unwrap_or((
        ErrorKind::Unexpected,
        "this is not expected: please report it",
    ));
    // What ends with an ERROR was rolled back; only 40003 says that the server itself does not know.
    let rolled_back = error.severity() == PgSeverity::Error && code != "40003";
    Error::new(kind, format!("{advice}; the server says: {text} [{code}]"))
        .with_effect(if rolled_back { Effect::None } else { fatal })
}

/// Whether a statement may be sent again, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// The server rolled it back for others' sake: again on the same connection.
    Here,
    /// The session is gone or has outdated plans: again on a new connection, unless this one was new.
    Elsewhere,
    /// It would fail again.
    No,
}

pub(crate) fn again(error: &sqlx::Error) -> Again {
    let Some(server) = database(error) else {
        return match error {
            sqlx::Error::Io(_) => Again::Elsewhere,
            _ => Again::No,
        };
    };
    match (server.severity(), server.code()) {
        (PgSeverity::Fatal | PgSeverity::Panic, _) => Again::Elsewhere,
        // serialization_failure, deadlock_detected
        (_, "40001" | "40P01") => Again::Here,
        // read_only_sql_transaction: a setting of the session, which may have been mended since it began.
        (_, "25006") => Again::Elsewhere,
        // A cached plan must not change its result type; a prepared statement does not exist: the table was made
        // anew, or somebody deallocated what we had prepared.
        (_, "0A000" | "26000") => Again::Elsewhere,
        _ => Again::No,
    }
}

/// The same error once more, for the next of several leases.
pub(crate) fn copy(error: &Error) -> Error {
    Error::new(error.kind(), error.message())
        .with_effect(error.effect())
        .with_retryable(error.is_retryable())
}

fn database(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_reached() {
        for (place, (state, ..)) in SQLSTATES.iter().enumerate() {
            let earlier = &SQLSTATES[..place];
            assert!(
                !earlier.iter().any(|(other, ..)| state.starts_with(other)),
                "{state} is hidden by an earlier line"
            );
        }
    }

    #[test]
    fn a_copy_says_the_same() {
        let error = Error::new(ErrorKind::Timeout, "text").with_effect(Effect::None);
        assert_eq!(copy(&error).to_string(), error.to_string());
        assert_eq!(copy(&error).effect(), Effect::None);
    }
}
