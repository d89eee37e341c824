//! What a URL says, checked to the last part: the driver would ignore what it does not know.

use distlock_api::{Error, ErrorKind, Result};
use redis::{Client, ConnectionInfo, IntoConnectionInfo};
use url::Url;

use crate::error;
use crate::keys::Prefix;

/// A server, and the prefix of the keys, if the URL has one.
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) prefix: Option<Prefix>,
}

const SCHEMES: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];

impl Target {
    /// Reads a URL. Errors never show it: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let mut url = Url::parse(url).map_err(|e| bad(format!("it does not parse: {e}")))?;
        if !SCHEMES.contains(&url.scheme()) {
            return Err(bad(format!(
                "its scheme is \"{}\" instead of redis or rediss",
                url.scheme()
            )));
        }
        if !url.username().is_empty() && url.password().is_none() {
            return Err(bad("it has a user without a password".to_owned()));
        }
        if url.fragment().is_some() {
            return Err(bad(
                "it has a part after #: certificates are always checked".to_owned(),
            ));
        }
        if [url.path(), url.query().unwrap_or_default()]
            .iter()
            .any(|part| part.contains('@'))
        {
            // What stands before it may be a part of the password, and is not to be shown.
            return Err(bad(
                "an @ stands behind the host: in a password write %3F for ?, %2F for /, %40 for @"
                    .to_owned(),
            ));
        }
        let mut prefix = None;
        let mut rest = Vec::new();
        for (key, value) in url.query_pairs() {
            match &*key {
                "lock_prefix" if prefix.is_none() => prefix = Some(Prefix::new(&value)?),
                "protocol" if rest.is_empty() => rest.push((key.into_owned(), value.into_owned())),
                "lock_prefix" | "protocol" => return Err(bad(format!("it has {key} twice"))),
                key if key.len() <= 32
                    && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') =>
                {
                    return Err(bad(format!(
                        "its parameter \"{key}\" is unknown: there are lock_prefix and protocol"
                    )));
                }
                _ => {
                    return Err(bad(
                        "it has unknown parameters: there are lock_prefix and protocol".to_owned(),
                    ));
                }
            }
        }
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        let info: ConnectionInfo = url.into_connection_info().map_err(|e| bad(e.to_string()))?;
        let client = Client::open(info).map_err(|e| error::not_connected(&e, "the server"))?;
        Ok(Self { client, prefix })
    }
}

fn bad(complaint: String) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("the Redis URL is no good, {complaint}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_with_all_its_parts() {
        let url = "rediss://me:p%40ss@example.com:7000/3?protocol=resp3&lock_prefix=app%3A";
        let target = Target::parse(url).unwrap();
        let info = target.client.get_connection_info();
        assert_eq!(info.addr().to_string(), "example.com:7000");
        let redis = info.redis_settings();
        assert_eq!(
            (redis.username(), redis.password()),
            (Some("me"), Some("p@ss"))
        );
        assert_eq!(redis.db(), 3);
        assert!(redis.protocol().supports_resp3());
        let name = distlock_api::LockName::new("a").unwrap();
        assert_eq!(target.prefix.unwrap().lock_key(&name), "app:{a}");
    }

    #[test]
    fn what_would_be_ignored_is_refused_without_showing_the_password() {
        for url in [
            "redis://:s3cret@",
            "http://:s3cret@localhost",
            "s3cret",
            "redis://:s3cret@localhost/x",
            "redis://:s3cret@localhost:70000",
            "redis://:s3cret@localhost?db=3",
            "redis://:s3cret@localhost?protocol=4",
            "redis://:s3cret@localhost?protocol=2&protocol=3",
            "redis://:s3cret@localhost?lock_prefix={",
            "redis://:s3cret@localhost?lock_prefix=a&lock_prefix=b",
            "rediss://:s3cret@localhost#insecure",
            "redis://me@localhost",
            "redis://me:12?s3cret@localhost",
            "redis://me:12/s3cret@localhost",
            "redis://me:12?lock_prefix={s3cret@localhost",
            "redis://localhost?S3cret=s3cret",
        ] {
            let Err(error) = Target::parse(url) else {
                panic!("{url} was taken");
            };
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error}{error:?}").contains("s3cret"), "{error}");
        }
    }
}
