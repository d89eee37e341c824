//! URLs, read strictly: what the driver would silently ignore is an error.

use distlock_api::{Error, ErrorKind, Result};
use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::schema::Table;

/// The parameters that the driver understands.
const PARAMETERS: [&str; 17] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// What a URL says.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Where to connect.
    pub(crate) options: PgConnectOptions,
    /// The table of the locks.
    pub(crate) table: Option<Table>,
    /// Whether there is a pooler.
    pub(crate) pooler: Option<bool>,
}

/// Reads a URL.
pub(crate) fn parse(text: &str) -> Result<Parsed> {
    // The text itself may hold a password and is never part of a message.
    let mut url: Url = text.parse().map_err(|error| {
        config(format!(
            "the URL cannot be read ({error}): write postgres://USER:PASSWORD@HOST:PORT/DATABASE, \
             with special characters in the password percent-encoded"
        ))
    })?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(config(format!(
            "the URL starts with {}: where it should be postgres:",
            url.scheme()
        )));
    }
    // It is the end of a password with a / or ? in it, which was read as the end of the host.
    let rest = [Some(url.path()), url.query(), url.fragment()];
    if rest.into_iter().flatten().any(|part| part.contains('@')) {
        return Err(config(
            "the URL has an @ behind the host: percent-encode the password, and write an @ elsewhere as %40",
        ));
    }
    if url.fragment().is_some() {
        return Err(config("the URL has a #: write it as %23"));
    }
    if url.host_str().is_some_and(|host| host.contains(',')) {
        return Err(config("the URL names several hosts: name the primary only"));
    }
    let (mut table, mut schema, mut pooler, mut rest) = (None, None, None, Vec::new());
    for (key, value) in url.query_pairs() {
        match &*key {
            "lock_table" => set_once(&mut table, "lock_table", value.into_owned())?,
            "lock_schema" => set_once(&mut schema, "lock_schema", value.into_owned())?,
            "lock_pooler" => set_once(&mut pooler, "lock_pooler", value.into_owned())?,
            known if PARAMETERS.contains(&known) || is_option(known) => {
                rest.push((key.into_owned(), value.into_owned()));
            }
            unknown if is_plain(unknown) => {
                return Err(config(format!(
                    "the URL has the parameter \"{unknown}\", which is not understood: leave it out"
                )));
            }
            _ => {
                return Err(config(
                    "the URL has a parameter that is not understood: leave it out",
                ));
            }
        }
    }
    match rest.is_empty() {
        true => url.set_query(None),
        false => drop(url.query_pairs_mut().clear().extend_pairs(rest)),
    }
    let options = url
        .as_str()
        .parse()
        .map_err(|error| config(format!("the URL has a bad part: {error}")))?;
    let table = match (table, schema) {
        (None, None) => None,
        (name, schema) => {
            let table = name.map_or_else(|| Ok(Table::default()), Table::new)?;
            Some(match schema {
                Some(schema) => table.in_schema(schema)?,
                None => table,
            })
        }
    };
    let pooler = pooler.as_deref().map(yes_or_no).transpose()?;
    Ok(Parsed {
        options,
        table,
        pooler,
    })
}

fn yes_or_no(text: &str) -> Result<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(config(
            "the URL's lock_pooler is neither true nor false: write one of them",
        )),
    }
}

/// `options[search_path]=…`: one session setting.
fn is_option(key: &str) -> bool {
    key.strip_prefix("options[")
        .is_some_and(|rest| rest.ends_with(']'))
}

/// What a parameter's name looks like. Anything else may be a piece of a password.
fn is_plain(key: &str) -> bool {
    let plain = |byte| matches!(byte, b'a'..=b'z' | b'_' | b'-');
    (1..=32).contains(&key.len()) && key.bytes().all(plain)
}

fn set_once(slot: &mut Option<String>, key: &str, value: String) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(config(format!(
            "the URL has {key} more than once: leave one"
        ))),
    }
}

fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_parameters_do_not_reach_the_driver() {
        let Parsed { options, table, pooler } = parse(
            "postgres://u:p@h:99/db?lock_table=Jobs&sslmode=require&lock_schema=ops&options=-c%20geqo%3Doff&lock_pooler=true",
        )
        .unwrap();
        assert_eq!(table.unwrap().to_string(), r#""ops"."Jobs""#);
        assert_eq!(pooler, Some(true));
        assert_eq!((options.get_host(), options.get_port()), ("h", 99));
        assert_eq!(options.get_options(), Some("-c geqo=off"));
        let plain = parse("postgresql://h/db").unwrap();
        assert!(plain.table.is_none() && plain.pooler.is_none());
    }

    #[test]
    fn bad_urls_are_refused_without_their_password() {
        for (url, reason) in [
            ("", "cannot be read"),
            ("db", "cannot be read"),
            ("postgres://u:canary/x@h/db", "cannot be read"),
            ("postgres://u:cana#ry@h/db", "cannot be read"),
            ("postgres://u:canary@h/db#x", "has a #"),
            ("postgres://u:12?canary@host/db", "percent-encode"),
            ("postgres://u:12?canary=x@host/db", "percent-encode"),
            ("postgres://u:12?host=canary@host/db", "percent-encode"),
            ("postgres://u:12/canary@h/db", "percent-encode"),
            ("postgres://u:12#canary@h/db", "percent-encode"),
            ("postgres://u:p@12/canary@h/db", "percent-encode"),
            ("postgres://u:p@h/db?Canary", "a parameter that is not"),
            ("postgres://u:p@h/db?canary%0A=1", "a parameter that is not"),
            ("mysql://u:canary@h/db", "starts with mysql:"),
            ("postgres://u:canary@one,two/db", "several hosts"),
            ("postgres://u:canary@h/db?locktable=x", "\"locktable\""),
            (
                "postgres://u:canary@h/db?connect_timeout=3",
                "\"connect_timeout\"",
            ),
            ("postgres://u:canary@h/db?sslmode=yes", "bad part"),
            ("postgres://u:canary@h/db?port=x", "bad part"),
            ("postgres://u:canary@h/db?lock_table=", "is empty"),
            (
                "postgres://u:canary@h/db?lock_pooler=cana",
                "neither true nor",
            ),
            (
                "postgres://u:canary@h/db?lock_table=a&lock_table=b",
                "more than once",
            ),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = format!("{error} {error:?}").to_lowercase();
            assert!(text.contains(reason), "{url}: {text}");
            assert!(!text.contains("cana"), "{text}");
        }
    }
}
