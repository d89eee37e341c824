//! What the driver's and the server's errors mean.

use std::borrow::Cow;

use distlock_api::exchange::{Again, Failed};
use distlock_api::{Effect, Error, ErrorKind};
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};

use crate::schema::quoted;

/// SQLSTATE, or its beginning, to kind and advice; the first that fits counts.
///
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
const SQLSTATES: &[(&str, ErrorKind, &str)] = {
    use ErrorKind::*;
    &[
        (
            "08P01",
            Unavailable,
            "a pooler in between refused or ended it: do what its text says, or try again",
        ),
        ("08", Unavailable, "the connection failed: try again"),
        (
            "0A000",
            Config,
            "the server cannot do this: PostgreSQL 13 or later is needed",
        ),
        (
            "22003",
            Config,
            "a number in the table is as great as it can be: set fence to a smaller one",
        ),
        (
            "22008",
            InvalidOption,
            "a time would be later than the server can tell: ask for a shorter one",
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
            "a right is missing: grant USAGE on the schema and SELECT, INSERT, UPDATE on the table, and DELETE for purge",
        ),
        (
            "42P01",
            SchemaMissing,
            "the table is missing: run `distlock migrate --store URL`, call migrate(), or apply what `distlock schema --for postgres` prints",
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
pub(crate) fn failed(error: sqlx::Error) -> Error {
    // What we ourselves say of a row or a value.
    if let sqlx::Error::Decode(what) | sqlx::Error::Encode(what) = &error
        && let Some(ours) = what.downcast_ref::<Error>()
    {
        return ours.clone();
    }
    let (kind, text) = match &error {
        sqlx::Error::Database(_) => return from_server(error, Effect::Unknown),
        sqlx::Error::Io(_) => (
            ErrorKind::Unavailable,
            "the connection to the server broke: try again",
        ),
        _ => (
            ErrorKind::Unexpected,
            "the driver reports what is not expected: please report it",
        ),
    };
    Error::new(kind, text).with_source(error)
}

/// A connection that could not be opened. Nothing was asked of the server yet.
pub(crate) fn not_connected(error: sqlx::Error, options: &PgConnectOptions) -> Error {
    use std::io::ErrorKind::{InvalidData, NotFound, PermissionDenied};
    let server = place(options);
    let (kind, text) = match &error {
        // insufficient_privilege
        sqlx::Error::Database(_) if database(&error).is_some_and(|it| it.code() == "42501") => {
            (ErrorKind::Denied, may_not_connect(options))
        }
        sqlx::Error::Database(_) => return from_server(error, Effect::None),
        // A bad certificate comes as an I/O error about invalid data.
        sqlx::Error::Io(io) if io.kind() == InvalidData => (ErrorKind::Config, no_tls(&server)),
        sqlx::Error::Tls(_) => (ErrorKind::Config, no_tls(&server)),
        // Without a socket, the only files are those of TLS.
        sqlx::Error::Io(io)
            if socket(options).is_none() && matches!(io.kind(), NotFound | PermissionDenied) =>
        {
            (ErrorKind::Config, no_tls(&server))
        }
        sqlx::Error::Io(_) => (
            ErrorKind::Unavailable,
            format!("{server} cannot be reached: check host and port, and that the server runs"),
        ),
        sqlx::Error::Configuration(_) => (
            ErrorKind::Config,
            "the connect options are no good: correct them".to_owned(),
        ),
        _ => (
            ErrorKind::Config,
            format!("{server} does not answer like PostgreSQL: check host and port"),
        ),
    };
    Error::new(kind, text)
        .with_effect(Effect::None)
        .blaming(&error)
        .with_source(error)
}

/// Whether a pooler refused the settings that came with the connection. Some say so by 08P01 (protocol_violation), which
/// they use for other refusals, too, others by 0A000 (feature_not_supported).
pub(crate) fn refuses_settings(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|server| matches!(server.code(), "08P01" | "0A000"))
}

/// Why the server refused a statement that is right, if the table or what belongs to it is to blame.
pub(crate) fn refusal(error: &sqlx::Error) -> Option<(ErrorKind, &str)> {
    let server = database(error)?;
    let known = SQLSTATES
        .iter()
        .find(|(state, ..)| server.code().starts_with(state));
    match known.map_or(ErrorKind::Config, |(_, kind, _)| *kind) {
        kind @ (ErrorKind::Config | ErrorKind::Denied) => Some((kind, server.message())),
        _ => None,
    }
}

/// Whether the server cannot do such a thing: feature_not_supported.
pub(crate) fn not_supported(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|server| server.code() == "0A000")
}

fn may_not_connect(options: &PgConnectOptions) -> String {
    let user = options.get_username();
    let (database, user) = (options.get_database().unwrap_or(user), quoted(user));
    let database = quoted(database);
    format!(
        "{user} may not connect to the database: GRANT CONNECT ON DATABASE {database} TO {user} [42501]"
    )
}

fn no_tls(server: &str) -> String {
    format!("no TLS with {server}: check sslmode and sslrootcert, and the server's certificate")
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
fn from_server(error: sqlx::Error, fatal: Effect) -> Error {
    let (code, severity) = database(&error).map_or(("", PgSeverity::Fatal), |server| {
        (server.code(), server.severity())
    });
    let known = SQLSTATES
        .iter()
        .find(|(state, ..)| code.starts_with(state))
        .map(|(_, kind, advice)| (*kind, *advice));
    let (kind, advice) = known.unwrap_or((
        ErrorKind::Unexpected,
        "this is not expected: please report it",
    ));
    // What ends with an ERROR was rolled back; only 40003 says that the server itself does not know.
    let rolled_back = severity == PgSeverity::Error && code != "40003";
    let effect = if rolled_back { Effect::None } else { fatal };
    let mut ours = Error::new(kind, format!("{advice} [{code}]")).with_effect(effect);
    if code == "55P03" || code.starts_with("40") && rolled_back {
        ours = ours.with_store_up();
    }
    match kind {
        // All is said.
        ErrorKind::SchemaMissing => ours,
        _ => ours.with_source(error),
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
