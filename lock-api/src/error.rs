use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The result of this family's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed. Contention is never an error: it is an outcome.
///
/// Made to be told apart by [`kind`](Error::kind) and to be read by people as one line. It never carries a
/// password.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    effect: Effect,
    retryable: bool,
    store_is_up: bool,
    message: String,
    backend: Option<&'static str>,
    operation: Option<Operation>,
    lock: Option<String>,
    elapsed: Option<Duration>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// ENOMEM, ENFILE, EMFILE and EADDRNOTAVAIL.
#[cfg(unix)]
const USED_UP_HERE: [i32; 4] = {
    use rustix::io::Errno;
    [
        Errno::NOMEM.raw_os_error(),
        Errno::NFILE.raw_os_error(),
        Errno::MFILE.raw_os_error(),
        Errno::ADDRNOTAVAIL.raw_os_error(),
    ]
};
#[cfg(not(unix))]
const USED_UP_HERE: [i32; 0] = [];

/// What kind of failure it was, and so what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Locks::shutdown`](crate::Locks::shutdown) was called: no new locks.
    Closed,
    /// The store, its URL or its schema is set up wrongly.
    Config,
    /// The store refused the user, the password or the right to run a statement.
    Denied,
    /// The lock name breaks the rules of [`LockName`](crate::LockName).
    InvalidName,
    /// A duration or another option is out of range.
    InvalidOption,
    /// The store takes no writes: a replica, or switched to read-only.
    ReadOnly,
    /// The table is missing: migrate first.
    SchemaMissing,
    /// The operation did not end within its limit.
    Timeout,
    /// The store cannot be reached, or is starting, stopping, full or overloaded.
    Unavailable,
    /// The store or the driver said something that this library does not expect.
    Unexpected,
    /// The backend cannot do what was asked.
    Unsupported,
}

/// Whether the failed operation may have taken effect at the store all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing was changed.
    None,
    /// It may have been done: the request left, and no answer came.
    Unknown,
}

/// The operation that failed, for the error's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Operation {
    Connect,
    Acquire,
    Renew,
    Release,
    Check,
    Migrate,
    Inspect,
    List,
    ForceRelease,
    Purge,
}

impl Error {
    /// An error of this kind. `message` is one line that says what is wrong and what to do about it.
    ///
    /// Effect and retryability start as the kind suggests: `Timeout` and `Unavailable` are worth another try, and
    /// only `Timeout`, `Unavailable` and `Unexpected` leave the effect unknown.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (effect, retryable) = match kind {
            ErrorKind::Timeout | ErrorKind::Unavailable => (Effect::Unknown, true),
            ErrorKind::Unexpected => (Effect::Unknown, false),
            _ => (Effect::None, false),
        };
        Self(Box::new(Inner {
            kind,
            effect,
            retryable,
            store_is_up: false,
            message: message.into(),
            backend: None,
            operation: None,
            lock: None,
            elapsed: None,
            source: None,
        }))
    }

    /// Sets whether the operation may have taken effect.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Sets whether the same call may succeed later without anybody's intervention.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    /// Says that the store is well: it answered, or was not asked, and others are in the way.
    #[must_use]
    pub fn with_store_up(mut self) -> Self {
        self.0.store_is_up = true;
        self
    }

    /// Says that the store is well where this machine is to blame for what the driver complains of: it is out of file
    /// descriptors, memory or ports.
    #[must_use]
    pub fn blaming(self, driver: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(driver), |error| error.source());
        let io = causes.find_map(|error| error.downcast_ref::<std::io::Error>());
        match io.and_then(std::io::Error::raw_os_error) {
            Some(code) if USED_UP_HERE.contains(&code) => self.with_store_up(),
            _ => self,
        }
    }

    /// Adds the driver's error. Its text must carry no secret.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// Says which operation of which backend failed, where the error does not say so already.
    #[must_use]
    pub fn during(mut self, backend: &'static str, operation: Operation) -> Self {
        self.0.backend.get_or_insert(backend);
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Says which lock it was about, where the error does not say so already.
    #[must_use]
    pub fn on(mut self, lock: &crate::LockName) -> Self {
        self.0.lock.get_or_insert_with(|| lock.as_str().to_owned());
        self
    }

    /// Says how long the operation took until it failed.
    #[must_use]
    pub fn after(mut self, elapsed: Duration) -> Self {
        self.0.elapsed = Some(elapsed);
        self
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether it may have taken effect all the same.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether the same call may succeed later without anybody's intervention.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether the store cannot be reached or does not answer: what [`Lock::fail_open`](crate::Lock::fail_open) is about. False
    /// where it is well and others are in the way, a session that keeps the row locked for one.
    pub fn is_store_down(&self) -> bool {
        let kinds = [ErrorKind::Timeout, ErrorKind::Unavailable];
        !self.0.store_is_up && kinds.contains(&self.0.kind)
    }

    /// What is wrong and what to do about it, without the context that `Display` adds.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The backend that reported it.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// The operation that failed.
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// The lock it was about.
    pub fn lock_name(&self) -> Option<&str> {
        self.0.lock.as_deref()
    }

    /// The driver's own error, to be downcast. Its text is part of this error's.
    pub fn driver_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }

    /// How long the operation took until it failed.
    pub fn elapsed(&self) -> Option<Duration> {
        self.0.elapsed
    }
}

impl ErrorKind {
    /// The kind as it is written in texts and JSON, such as `schema_missing`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Config => "config",
            Self::Denied => "denied",
            Self::InvalidName => "invalid_name",
            Self::InvalidOption => "invalid_option",
            Self::ReadOnly => "read_only",
            Self::SchemaMissing => "schema_missing",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Unexpected => "unexpected",
            Self::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Operation {
    /// The operation as it is written in texts, such as `force release`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Check => "check",
            Self::Migrate => "migrate",
            Self::Inspect => "inspect",
            Self::List => "list",
            Self::ForceRelease => "force release",
            Self::Purge => "purge",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One line: `postgres acquire "nightly": the table … (denied, nothing was changed)`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let what = [
            inner.backend.map(str::to_owned),
            inner.operation.map(|operation| operation.to_string()),
            inner
                .lock
                .as_deref()
                .map(|lock| format!("\"{}\"", lock.escape_debug())),
        ];
        let what: Vec<String> = what.into_iter().flatten().collect();
        if !what.is_empty() {
            write!(f, "{}: ", what.join(" "))?;
        }
        write_line(f, &inner.message)?;
        if let Some(source) = &inner.source {
            f.write_str(": ")?;
            write_line(f, &source.to_string())?;
        }
        write!(f, " ({}", inner.kind)?;
        if let Some(elapsed) = inner.elapsed {
            write!(f, " after {elapsed:.1?}")?;
        }
        if inner.effect == Effect::Unknown {
            f.write_str(", it may have been done all the same")?;
        }
        f.write_str(")")
    }
}

/// Writes foreign text so that it stays on one line and carries no control characters.
fn write_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.trim_end().chars() {
        match c {
            '\n' => f.write_str("; ")?,
            c if c.is_control() => write!(f, "{}", c.escape_debug())?,
            c => write!(f, "{c}")?,
        }
    }
    Ok(())
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.debug_struct("Error")
            .field("kind", &inner.kind)
            .field("effect", &inner.effect)
            .field("retryable", &inner.retryable)
            .field("text", &self.to_string())
            .finish()
    }
}

/// The driver's error is part of this error's own text, so [`source`](std::error::Error::source) leads to what
/// lies below the driver's error only: reports that print the whole chain say nothing twice.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().and_then(|source| source.source())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockName;

    #[test]
    fn display_is_one_line_with_escaped_names() {
        let error = Error::new(ErrorKind::Denied, "no\nright")
            .with_source("driver\tsays\r\nno")
            .during("postgres", Operation::Acquire)
            .on(&LockName::new("a\"b").unwrap())
            .after(Duration::from_millis(1500));
        assert_eq!(
            error.to_string(),
            r#"postgres acquire "a\"b": no; right: driver\tsays\r; no (denied after 1.5s)"#
        );
    }

    #[test]
    fn the_drivers_error_can_be_had_and_its_text_is_not_said_twice() {
        let error = Error::new(ErrorKind::Unexpected, "failed").with_source(std::fmt::Error);
        assert!(error.driver_error().unwrap().is::<std::fmt::Error>());
        assert!(std::error::Error::source(&error).is_none());
        assert_eq!(error.clone().to_string(), error.to_string());
    }

    #[test]
    fn display_tells_what_is_known() {
        let error = Error::new(ErrorKind::Closed, "closed");
        assert_eq!(error.to_string(), "closed (closed)");
        let error = error.on(&LockName::new("job").unwrap());
        assert_eq!(error.to_string(), "\"job\": closed (closed)");
    }

    #[test]
    fn only_what_left_without_an_answer_is_unknown() {
        for kind in [
            ErrorKind::Denied,
            ErrorKind::ReadOnly,
            ErrorKind::SchemaMissing,
        ] {
            assert_eq!(Error::new(kind, "").effect(), Effect::None);
            assert!(!Error::new(kind, "").is_retryable());
        }
        let timeout = Error::new(ErrorKind::Timeout, "");
        assert_eq!(timeout.effect(), Effect::Unknown);
        assert!(timeout.is_retryable());
        assert!(timeout.to_string().contains("may have been done"));
    }

    #[cfg(unix)]
    #[test]
    fn a_machine_that_is_out_of_descriptors_is_not_a_store_that_is_down() {
        use rustix::io::Errno;
        let blaming = |errno: Errno| {
            let io = std::io::Error::from_raw_os_error(errno.raw_os_error());
            Error::new(ErrorKind::Unavailable, "cannot be reached").blaming(&io)
        };
        assert!(!blaming(Errno::MFILE).is_store_down());
        assert!(blaming(Errno::CONNREFUSED).is_store_down());
    }
}
