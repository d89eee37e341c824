//! URLs, read strictly: what the driver would silently ignore is an error.

use distlock_api::{Error, ErrorKind, Result};
use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;
use url::Url;

use crate::schema::Table;

/// The parameters that the driver understands.
const PARAMETERS: [&str; 14] = [
    "charset",
    "collation",
    "socket",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "sslca",
    "sslcert",
    "sslkey",
    "sslmode",
    "statement-cache-capacity",
    "time-zone",
    "timezone",
];

/// Where to connect, and the table where the URL names one.
pub(crate) fn parse(text: &str) -> Result<(MySqlConnectOptions, Option<Table>)> {
    // The text itself may hold a password and is never part of a message.
    let mut url: Url = text.parse().map_err(|error| {
        config(format!(
            "the URL cannot be read ({error}): write mysql://USER:PASSWORD@HOST:PORT/DATABASE, \
             with special characters in the password percent-encoded"
        ))
    })?;
    if !matches!(url.scheme(), "mysql" | "mariadb") {
        return Err(config(format!(
            "the URL starts with {}: where it should be mysql: or mariadb:",
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
    let (mut table, mut schema, mut rest) = (None, None, Vec::new());
    for (key, value) in url.query_pairs() {
        match &*key {
            "lock_table" => set_once(&mut table, "lock_table", value.into_owned())?,
            "lock_schema" => set_once(&mut schema, "lock_schema", value.into_owned())?,
            known if PARAMETERS.contains(&known) => {
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
    let options = MySqlConnectOptions::from_url(&url)
        .map_err(|error| config(format!("the URL has a bad part: {error}")))?;
    if options.get_database().is_none() && schema.is_none() {
        return Err(config(
            "the URL names no database: write it behind the host, as in mysql://HOST/DATABASE, or give lock_schema",
        ));
    }
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
    Ok((options, table))
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
    use sqlx::mysql::MySqlSslMode;

    use super::*;

    #[test]
    fn our_own_parameters_do_not_reach_the_driver() {
        let (options, table) =
            parse("mysql://u:p@h:99/db?lock_table=Jobs&ssl-mode=REQUIRED&lock_schema=ops").unwrap();
        assert_eq!(table.unwrap().to_string(), "`ops`.`Jobs`");
        assert_eq!((options.get_host(), options.get_port()), ("h", 99));
        assert_eq!(options.get_database(), Some("db"));
        assert!(matches!(options.get_ssl_mode(), MySqlSslMode::Required));
        assert!(parse("mariadb://h/db").unwrap().1.is_none());
        assert!(parse("mysql://h?lock_schema=ops").is_ok());
    }

    #[test]
    fn bad_urls_are_refused_without_their_password() {
        for (url, reason) in [
            ("", "cannot be read"),
            ("db", "cannot be read"),
            ("mysql://u:canary/x@h/db", "cannot be read"),
            ("mysql://u:cana#ry@h/db", "cannot be read"),
            ("mysql://u:canary@h/db#x", "has a #"),
            ("mysql://u:12?canary@host/db", "percent-encode"),
            ("mysql://u:12?canary=x@host/db", "percent-encode"),
            ("mysql://u:12/canary@h/db", "percent-encode"),
            ("mysql://u:12#canary@h/db", "percent-encode"),
            ("mysql://u:p@12/canary@h/db", "percent-encode"),
            ("mysql://u:p@h/db?Canary", "a parameter that is not"),
            ("mysql://u:p@h/db?canary%0A=1", "a parameter that is not"),
            ("postgres://u:canary@h/db", "starts with postgres:"),
            ("mysql://u:canary@one,two/db", "several hosts"),
            ("mysql://u:canary@h/db?locktable=x", "\"locktable\""),
            ("mysql://u:canary@h/db?useSSL=true", "not understood"),
            ("mysql://u:canary@h/db?ssl-mode=yes", "bad part"),
            ("mysql://u:canary@h", "names no database"),
            ("mysql://u:canary@h/", "names no database"),
            ("mysql://u:canary@h?lock_table=x", "names no database"),
            ("mysql://u:canary@h/db?lock_table=", "is empty"),
            (
                "mysql://u:canary@h/db?lock_table=a&lock_table=b",
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
