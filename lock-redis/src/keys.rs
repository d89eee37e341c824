//! The names of keys.

use distlock_api::{Error, ErrorKind, LockName, Result};

/// What all keys begin with: `lock:` unless it was set.
///
/// The lock is at `lock:{NAME}`, its fencing counter at `lock:{NAME}:f` and its last tick at `lock:{NAME}:t`. What
/// stands in the first pair of braces decides about the slot in a cluster, so that a lock's keys stay together; braces
/// in a name are written `%7B` and `%7D`, and `%` as `%25`.
#[derive(Clone, Debug)]
pub(crate) struct Prefix(String);

impl Default for Prefix {
    fn default() -> Self {
        Self("lock:".to_owned())
    }
}

impl Prefix {
    const MAX_BYTES: usize = 64;

    pub(crate) fn new(prefix: &str) -> Result<Self> {
        let bad = |c: char| c.is_control() || c == '{' || c == '}';
        if prefix.len() > Self::MAX_BYTES || prefix.contains(bad) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "the key prefix \"{}\" is no good: at most {} bytes, without braces and control characters",
                    prefix.escape_debug(),
                    Self::MAX_BYTES
                ),
            ));
        }
        Ok(Self(prefix.to_owned()))
    }

    pub(crate) fn lock_key(&self, name: &LockName) -> String {
        let mut key = String::with_capacity(self.0.len() + name.as_str().len() + 2);
        key.push_str(&self.0);
        key.push('{');
        for c in name.as_str().chars() {
            match c {
                '%' => key.push_str("%25"),
                '{' => key.push_str("%7B"),
                '}' => key.push_str("%7D"),
                c => key.push(c),
            }
        }
        key.push('}');
        key
    }

    /// A key under the prefix that is no lock's: lock names are not empty.
    pub(crate) fn spare_key(&self) -> String {
        format!("{}{{}}", self.0)
    }

    /// The glob pattern of all keys that [`name`](Self::name) may know.
    pub(crate) fn pattern(&self) -> String {
        self.escaped() + "{*"
    }

    /// The glob pattern of all keys with this prefix.
    pub(crate) fn pattern_of_all(&self) -> String {
        self.escaped() + "*"
    }

    /// The key pattern of the rights that locks need, as one word of redis-cli. The server takes none with a blank.
    pub(crate) fn rights(&self) -> Option<String> {
        let pattern = format!("~{}", self.pattern_of_all());
        if pattern.contains(' ') {
            return None;
        }
        if pattern.contains(['"', '\'']) {
            let escaped = pattern.replace('\\', r"\\").replace('"', r#"\""#);
            return Some(format!("\"{escaped}\""));
        }
        Some(pattern)
    }

    /// For a glob pattern.
    fn escaped(&self) -> String {
        let mut pattern = String::new();
        for c in self.0.chars() {
            if matches!(c, '\\' | '*' | '?' | '[' | ']') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern
    }

    /// The lock that a key belongs to; `None` for keys of others.
    pub(crate) fn name(&self, key: &[u8]) -> Option<LockName> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.0)?;
        let (encoded, suffix) = rest.strip_prefix('{')?.split_once('}')?;
        if !matches!(suffix, "" | ":f" | ":t") || encoded.contains('{') {
            return None;
        }
        let name = LockName::new(decode(encoded)?).ok()?;
        Some(name)
    }
}

/// Undoes exactly what [`Prefix::lock_key`] does, so that two keys are never of one lock.
fn decode(encoded: &str) -> Option<String> {
    let mut parts = encoded.split('%');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (c, rest) = match part.get(..2)? {
            "25" => ('%', &part[2..]),
            "7B" => ('{', &part[2..]),
            "7D" => ('}', &part[2..]),
            _ => return None,
        };
        name.push(c);
        name.push_str(rest);
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and keys that must never change: programs of different versions share locks by them (U25).
    const GOLDEN: [(&str, &str); 8] = [
        ("nightly", "lock:{nightly}"),
        ("a:b", "lock:{a:b}"),
        ("{}", "lock:{%7B%7D}"),
        ("a{b}c", "lock:{a%7Bb%7Dc}"),
        ("}", "lock:{%7D}"),
        ("100%", "lock:{100%25}"),
        ("%7B", "lock:{%257B}"),
        ("jöb", "lock:{jöb}"),
    ];

    #[test]
    fn keys_are_as_they_always_were() {
        for (name, key) in GOLDEN {
            let name = LockName::new(name).unwrap();
            assert_eq!(Prefix::default().lock_key(&name), key);
        }
    }

    #[test]
    fn the_keys_of_a_lock_lead_back_to_its_name() {
        let prefix = Prefix::default();
        for (name, key) in GOLDEN {
            for suffix in ["", ":f", ":t"] {
                let found = prefix.name(format!("{key}{suffix}").as_bytes());
                assert_eq!(found.unwrap().as_str(), name);
            }
        }
    }

    #[test]
    fn keys_of_others_are_nobodys() {
        let prefix = Prefix::default();
        for key in [
            "lock:nightly",
            "lock:{}",
            "lock:{a}:x",
            "lock:{a{b}",
            "lock:{a%}",
            "lock:{a%41}",
            "lock:{a%7b}",
            "lock:{%ö}",
            "lock:{ a}",
            "other:{a}",
        ] {
            assert_eq!(prefix.name(key.as_bytes()), None, "{key}");
        }
        assert_eq!(prefix.name(b"lock:{\xff}"), None);
        assert_eq!(prefix.name(prefix.spare_key().as_bytes()), None);
    }

    #[test]
    fn a_prefix_that_would_break_the_hash_tag_is_refused() {
        for prefix in ["a{", "a}", "a\n", &"x".repeat(65)] {
            assert_eq!(Prefix::new(prefix).unwrap_err().kind(), ErrorKind::Config);
        }
        assert!(Prefix::new(&"x".repeat(64)).is_ok());
        let prefix = Prefix::new(r"a*[b]?\").unwrap();
        assert_eq!(prefix.pattern(), r"a\*\[b\]\?\\{*");
        assert_eq!(prefix.rights().unwrap(), r"~a\*\[b\]\?\\*");
    }
}
