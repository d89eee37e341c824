use url::Url;

/// The parameters of a URL that are no secret.
const SHOWN: [&str; 11] = [
    "dbname",
    "host",
    "hostaddr",
    "lock_prefix",
    "lock_schema",
    "lock_table",
    "port",
    "socket",
    "ssl-mode",
    "sslmode",
    "user",
];

/// The schemes whose users are no secret, also where there is no password.
const NAMED: [&str; 4] = ["mariadb", "mysql", "postgres", "postgresql"];

/// The schemes whose users are no secret where there is a password. A user alone is most often a password in the wrong
/// place.
const NAMED_BESIDE_PASSWORD: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];

/// A store's URL as it may be shown: without its password, and without what may be one. `None` where it is not certain
/// which part that is.
pub(crate) fn address(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once(':')?;
    if scheme == "sqlite" {
        return (!has_user(rest)).then(|| url.to_owned());
    }
    if url == "memory:" {
        return Some(url.to_owned());
    }
    let parsed = Url::parse(url).ok().filter(|url| !url.cannot_be_a_base())?;
    let has_user = !parsed.username().is_empty() || parsed.password().is_some();
    // A password that is not percent-encoded ends too early: its rest stands before another @.
    if url.matches('@').count() > usize::from(has_user) {
        return None;
    }
    Some(without_secrets(parsed))
}

/// Whether a SQLite URL looks like that of a server with a user: the scheme was mixed up, and the store refuses it.
fn has_user(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix("//") else {
        return false;
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.contains('@') || authority.contains(':') && rest.contains('@')
}

fn without_secrets(mut url: Url) -> String {
    let pairs = url.query_pairs();
    let shown = pairs.filter(|(key, _)| SHOWN.contains(&&**key));
    let query: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
    let is_shown = NAMED.contains(&url.scheme())
        || url.password().is_some() && NAMED_BESIDE_PASSWORD.contains(&url.scheme());
    if !is_shown {
        let _ = url.set_username("");
    }
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    match query.is_empty() {
        true => url.into(),
        false => format!("{url}?{}", query.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_all_but_the_password() {
        for (url, shown) in [
            ("postgres://me:canary@h:99/db", "postgres://me@h:99/db"),
            ("postgres://me@h/db", "postgres://me@h/db"),
            ("mysql://me:c%61nary@h/db", "mysql://me@h/db"),
            ("mariadb://:canary@h/db", "mariadb://h/db"),
            ("redis://:canary@h:6379/2", "redis://h:6379/2"),
            ("rediss://me:canary@h/", "rediss://me@h/"),
            ("redis://canary@h/", "redis://h/"),
            ("valkey://canary@h", "valkey://h"),
            ("valkeys://me:canary@h", "valkeys://me@h"),
            ("wat://canary@h/db", "wat://h/db"),
            ("wat://canary:canary@h/db", "wat://h/db"),
            (
                "postgres:///db?host=/run/pg&password=canary&lock_table=jobs",
                "postgres:///db?host=/run/pg&lock_table=jobs",
            ),
            ("redis://h/0?canary&canary=canary#canary", "redis://h/0"),
            ("sqlite:///var/lib/a@b.db", "sqlite:///var/lib/a@b.db"),
            ("sqlite://a/b@c.db", "sqlite://a/b@c.db"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(address(url).as_deref(), Some(shown), "{url}");
        }
    }

    #[test]
    fn where_a_password_may_stand_anywhere_nothing_is_shown() {
        for url in [
            "canary",
            "memory:canary",
            "postgres://me:can/ary@h/db",
            "postgres://me:12/canary@h/db",
            "postgres://me:12#canary@h/db",
            "postgres://me:12?canary@h/db",
            "mysql://me:can@ary@h/db",
            "postgres://me@h/db?password=can@ary",
            "redis://me:can ary@ h",
            "sqlite://me:canary@h/db",
            "sqlite://canary@h",
            "sqlite://me:can/ary@h/db",
            "sqlite://me:can?ary@h/db",
        ] {
            assert_eq!(address(url), None, "{url}");
        }
    }
}
