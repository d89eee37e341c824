//! What the server and the driver say, and what it means here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use distlock_api::{Effect, Error, ErrorKind, Finding, Result};
use redis::{RedisError, ServerError, Value};

/// What an error of the server means: its code or a part of its text, its kind, what is wrong, and what to do about it.
type Line = (&'static str, ErrorKind, &'static str, &'static str);

/// The server's error codes.
///
/// The server refuses all of these before it changes anything, or the script undoes what it did: effect none.
#[rustfmt::skip]
const CODES: &[Line] = {
    use ErrorKind::{Config, Denied, ReadOnly, Unavailable};
    const CLUSTER: &str = "the server is a part of a cluster, which this backend does not follow";
    const PROXY: &str = "connect through a cluster proxy, or give the locks a server of their own";
    &[
        ("NOAUTH", Denied, "the server wants a password", "give it one"),
        ("WRONGPASS", Denied, "the user or the password is wrong", "correct them"),
        ("NOPERM", Denied, "the user lacks a right", "grant it"),
        ("DENIED", Denied, "the server takes no clients from here", "set its protected-mode, bind and password"),
        ("READONLY", ReadOnly, "the server is a replica", "use the primary"),
        ("LOADING", Unavailable, "the server is loading its data", "try again later"),
        ("BUSY", Unavailable, "the server is running somebody's slow script", "try again later"),
        ("MASTERDOWN", Unavailable, "the server has lost its primary", "use the primary"),
        ("CLUSTERDOWN", Unavailable, "the cluster is down", "see CLUSTER INFO"),
        ("TRYAGAIN", Unavailable, "the cluster is moving keys", "try again later"),
        ("OOM", Unavailable, "the server is out of memory", "raise maxmemory"),
        ("MISCONF", Unavailable, "the server cannot save its data, and takes no writes", "see its log"),
        ("NOREPLICAS", Unavailable, "the server misses replicas, and takes no writes", "start them, or lower min-replicas-to-write"),
        ("NOSCRIPT", Unavailable, "the server forgot a script at once", "try again"),
        ("MOVED", Config, CLUSTER, PROXY),
        ("ASK", Config, CLUSTER, PROXY),
        ("CROSSSLOT", Config, CLUSTER, PROXY),
        ("WRONGTYPE", Config, "the key holds something that is no lock", "delete it, or set another lock_prefix"),
    ]
};

/// Errors without a code of their own, by a part of their text.
#[rustfmt::skip]
const TEXTS: &[Line] = {
    use ErrorKind::{Config, Denied, Unavailable};
    const LACKS: (&str, &str) = ("the server lacks a command that locks need", "enable it, or use another server");
    &[
        ("max number of clients", Unavailable, "the server has too many clients", "raise maxclients"),
        ("user executing the script can't", Denied, "the user lacks a right", "grant it"),
        ("ACL failure in script", Denied, "the user lacks a right", "grant it"),
        ("AUTH <password> called without any password", Denied, "the server has no password set", "leave it out"),
        ("unknown command", Config, LACKS.0, LACKS.1),
        ("command called from script", Config, LACKS.0, LACKS.1),
        ("DB index is out of range", Config, "the server has no such database number", "choose a smaller one"),
        ("SELECT is not allowed", Config, "the server has no database numbers", "leave it out"),
        ("value is not an integer", Config, "the key beside the lock is no counter", "delete it, or set another lock_prefix"),
        ("protocol version", Config, "the server lacks this protocol version", "use another"),
    ]
};

/// The server's answer to a command about this key, if it is no error.
pub(crate) fn answer(value: Value, key: Option<&str>) -> Result<Value> {
    match value {
        Value::ServerError(error) => Err(answered(&error, key)),
        value => Ok(value),
    }
}

/// An error that the server answered a command about this key with.
fn answered(error: &ServerError, key: Option<&str>) -> Error {
    let text = match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    };
    said(&text, key)
}

/// The same, from the error's text.
fn said(text: &str, key: Option<&str>) -> Error {
    let text = without_place(text);
    let key = key.map_or_else(String::new, |key| {
        format!(" (key \"{}\")", key.escape_debug())
    });
    let error = match known(text) {
        Some((_, kind, what, fix)) => {
            Error::new(*kind, format!("{what}: {fix}{key}")).with_effect(Effect::None)
        }
        None => Error::new(
            ErrorKind::Unexpected,
            format!("the server answered with an error{key}"),
        ),
    };
    error.with_source(text.to_owned())
}

/// What a check makes of an error of the server.
pub(crate) fn fault(text: &str) -> Finding {
    let text = without_place(text);
    match known(text) {
        Some((_, kind, what, fix)) => Finding::fault(*kind, format!("{what} ({text})"), *fix),
        None => Finding::fault(
            ErrorKind::Unexpected,
            format!("the server answers with an error ({text})"),
            "see its log",
        ),
    }
}

/// What kind of error it is, if anybody knows.
pub(crate) fn kind(text: &str) -> Option<ErrorKind> {
    known(text).map(|(_, kind, ..)| *kind)
}

/// Redis 7 appends the digest and the line of the script: ` script: 0a1b…, on @user_script:7.`
fn without_place(text: &str) -> &str {
    let place = text.rsplit_once(" script: ");
    match place.filter(|(_, place)| place.contains(", on @user_script")) {
        Some((text, _)) => text.trim(),
        None => text.trim(),
    }
}

fn known(text: &str) -> Option<&'static Line> {
    let mut words = text.split(|c: char| !c.is_ascii_alphabetic());
    let code = |word: &str| CODES.iter().find(|(code, ..)| *code == word);
    // Before Redis 7 an error inside a script had its code in the middle of the text.
    let of_code = match text.contains("user_script") {
        true => words.find_map(code),
        false => words.next().and_then(code),
    };
    of_code.or_else(|| TEXTS.iter().find(|(part, ..)| text.contains(part)))
}

/// A connection to this server could not be opened: nothing was sent on it.
pub(crate) fn not_connected(error: &RedisError, server: &str) -> Error {
    let error = match ServerError::try_from(error.clone()) {
        Ok(error) => answered(&error, None),
        Err(error) => match error.kind() {
            redis::ErrorKind::AuthenticationFailed => Error::new(
                ErrorKind::Denied,
                "the user or the password is wrong, or the server takes no clients",
            ),
            redis::ErrorKind::Io if tls(&error).is_none() => {
                let text = format!("{server} cannot be reached: {error}");
                let ours = Error::new(ErrorKind::Unavailable, text);
                match cause(&error) {
                    Some(cause) => ours.blaming(cause),
                    None => ours,
                }
            }
            _ => Error::new(
                ErrorKind::Config,
                match tls(&error) {
                    Some(tls) => format!("no TLS connection with {server}: {tls}"),
                    None => format!("the connection is set up wrongly: {error}"),
                },
            ),
        },
    };
    error.with_effect(Effect::None)
}

/// No connection within the limit.
pub(crate) fn not_connected_within(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the server cannot be reached: no connection within {limit:?}"),
    )
    .with_effect(Effect::None)
}

/// The connection failed while an answer was waited for.
pub(crate) fn no_answer(error: &RedisError) -> Error {
    if error.is_timeout() {
        Error::new(ErrorKind::Timeout, "no answer from the server in time")
    } else if error.is_io_error() {
        Error::new(
            ErrorKind::Unavailable,
            format!("the connection to the server broke: {error}"),
        )
    } else {
        Error::new(
            ErrorKind::Unexpected,
            format!("the server's answer makes no sense: {error}"),
        )
    }
}

/// The script gave something that it never gives.
pub(crate) fn unexpected(reply: &Value) -> Error {
    let text = format!("{reply:?}");
    let text: String = text.chars().take(100).collect();
    Error::new(
        ErrorKind::Unexpected,
        format!("the server's answer makes no sense: {text}"),
    )
}

/// What the driver's error wraps.
fn cause(error: &RedisError) -> Option<&(dyn std::error::Error + 'static)> {
    let source = std::error::Error::source(error)?;
    let source = source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    Some(source.as_ref())
}

/// What TLS complained about, deep inside the driver's error.
fn tls(error: &RedisError) -> Option<String> {
    let source = cause(error)?;
    let source: &(dyn std::error::Error + 'static) = match source.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref()?,
        None => source,
    };
    let tls = source.is::<rustls::Error>() || source.is::<rustls::pki_types::InvalidDnsNameError>();
    tls.then(|| source.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind_and_changed_nothing() {
        for (text, kind) in [
            ("NOAUTH Authentication required.", ErrorKind::Denied),
            (
                "READONLY You can't write against a read only replica.",
                ErrorKind::ReadOnly,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                ErrorKind::Unavailable,
            ),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                ErrorKind::Config,
            ),
            ("ERR max number of clients reached", ErrorKind::Unavailable),
        ] {
            let error = said(text, None);
            assert_eq!(
                (error.kind(), error.effect()),
                (kind, Effect::None),
                "{text}"
            );
        }
    }

    #[test]
    fn waiting_helps_only_where_the_server_is_unavailable() {
        for (code, kind, ..) in CODES {
            let retryable = said(code, None).is_retryable();
            assert_eq!(retryable, *kind == ErrorKind::Unavailable, "{code}");
        }
    }

    #[test]
    fn a_code_is_found_in_the_middle_of_the_text_of_old_servers() {
        let text = "ERR Error running script (call to f_e0): @user_script:12: @user_script: 12: -OOM command not allowed";
        assert_eq!(said(text, None).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn where_in_the_script_it_failed_is_left_out() {
        let text =
            "ERR ACL failure in script: User u may not run 'set' script: 0ab1, on @user_script:7.";
        let error = said(text, None);
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(
            error.to_string(),
            "the user lacks a right: grant it: ERR ACL failure in script: User u may not run 'set' (denied)"
        );
    }

    #[test]
    fn an_error_that_nobody_knows_may_have_been_done() {
        let error = said("ERR something new", Some("lock:{a}"));
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert_eq!(error.effect(), Effect::Unknown);
        assert!(error.to_string().contains("lock:{a}"), "{error}");
    }
}
