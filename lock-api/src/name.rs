use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// What is locked: 1 to 255 bytes of UTF-8 without control characters and without white space at either end.
///
/// Names are compared byte for byte on every backend: `Job`, `job` and `jöb` are three locks, and so are the
/// composed and the decomposed spelling of `é`. A name that is too long is an error, never cut.
///
/// Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Takes a name as it is, or says what is wrong with it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for an empty name, one of more than [`MAX_BYTES`](Self::MAX_BYTES) bytes, a
    /// control character anywhere or white space at either end.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        let complaint = if name.is_empty() {
            "a lock name is empty: give it 1 to 255 bytes".to_owned()
        } else if name.len() > Self::MAX_BYTES {
            format!(
                "a lock name of {} bytes is too long: at most {} bytes",
                name.len(),
                Self::MAX_BYTES
            )
        } else if let Some(control) = name.chars().find(|c| c.is_control()) {
            format!(
                "the lock name \"{}\" has the control character U+{:04X}: leave it out",
                name.escape_debug(),
                control as u32
            )
        } else if name.trim() != name {
            format!(
                "the lock name \"{}\" has white space at an end: trim it",
                name.escape_debug()
            )
        } else {
            return Ok(Self(name.into()));
        };
        Err(Error::new(ErrorKind::InvalidName, complaint))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// The name as it is; parsing it again gives the same name.
impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_the_limits_are_taken_whole() {
        for name in [
            "a",
            "Job",
            "jöb",
            "a b",
            "{}",
            "a:b%c'\"",
            "😀",
            &"x".repeat(255),
        ] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for (name, reason) in [
            (String::new(), "is empty"),
            ("x".repeat(256), "256 bytes is too long"),
            ("ö".repeat(128), "256 bytes is too long"),
            ("a\nb".to_owned(), "control character U+000A"),
            ("a\0".to_owned(), "control character U+0000"),
            (" a".to_owned(), "white space at an end"),
            ("a\u{3000}".to_owned(), "white space at an end"),
        ] {
            let error = LockName::new(&name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            let text = error.to_string();
            assert!(text.contains(reason), "{text}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
