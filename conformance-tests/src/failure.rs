use std::fmt;

use distlock_api::ErrorKind;

use crate::store::StoreError;

/// What a rule says: nothing, or why it failed.
pub(crate) type Checked<T = ()> = Result<T, Failure>;

/// Why a rule did not pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The backend broke the rule.
    Broken(String),
    /// The machine was so slow that the rule proved nothing, and by what: it is tried again with longer leases.
    Stalled(String),
}

impl Failure {
    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::Broken(message.into())
    }

    pub(crate) fn stalled(message: impl Into<String>) -> Self {
        Self::Stalled(message.into())
    }

    /// Says what the rule was doing.
    pub(crate) fn context(self, doing: impl fmt::Display) -> Self {
        match self {
            Self::Broken(message) => Self::Broken(format!("{doing}: {message}")),
            Self::Stalled(message) => Self::Stalled(format!("{doing}: {message}")),
        }
    }
}

/// No rule of this suite has a backend fail. A call that ran into its limit says that machine or store were too slow.
impl From<distlock_api::Error> for Failure {
    fn from(error: distlock_api::Error) -> Self {
        match error.kind() {
            ErrorKind::Timeout => Self::Stalled(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error.downcast::<distlock_api::Error>() {
            Ok(error) => (*error).into(),
            Err(error) => Self::Broken(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<tokio::task::JoinError> for Failure {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Broken(format!("a task of the rule died: {error}"))
    }
}

/// Ends the rule as broken unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::failure::Failure::broken(format!($($message)+)));
        }
    };
}

/// Ends the rule unless the condition holds: as broken while the lease was certainly running, else as stalled.
macro_rules! ensure_while {
    ($grant:expr, $condition:expr, $($message:tt)+) => {
        if !$condition {
            $grant.ensure_running()?;
            return Err($crate::failure::Failure::broken(format!($($message)+)));
        }
    };
}

/// Ends the rule as broken unless the value has the form of the pattern; gives what the pattern binds.
macro_rules! must_be {
    ($value:expr, $pattern:pat => $bound:expr, $($message:tt)+) => {
        match $value {
            $pattern => $bound,
            other => {
                let message = format!($($message)+);
                return Err($crate::failure::Failure::broken(format!("{message}: {other:?}")));
            }
        }
    };
}

pub(crate) use {ensure, ensure_while, must_be};
