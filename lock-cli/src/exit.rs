use std::process::ExitCode;

use distlock::Effect;
use serde::Serialize;

use crate::output;

/// How distlock ends.
///
/// | code | meaning |
/// |---|---|
/// | the child's | the child ended by itself |
/// | 128 + n | the child was ended by signal n, or distlock was before it had started one |
/// | 0, or CODE of `-E CODE` | the lock is held or resting, or with `--if-unavailable skip` the store is down: no child was started |
/// | 1 | the answer is no: `check` found a fault, or `release` left the lock to its holder |
/// | 124 | the lock was lost or its time was up, and the child was stopped |
/// | 125 | distlock itself failed; usage errors too |
/// | 126 | the command cannot be executed |
/// | 127 | the command was not found |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    No,
    Child(u8),
    Signal(i32),
    Conflict(u8),
    Stopped,
    Failed,
    NotExecutable,
    NotFound,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Child(code) | Self::Conflict(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::Stopped => 124,
            Self::Failed => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// An end with one line on stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) text: String,
    /// What the store's side said, where it was asked.
    pub(crate) error: Option<distlock::Error>,
    /// What came of it, where that is known and only the answer failed.
    effect: Option<&'static str>,
}

impl Failure {
    /// distlock itself failed: 125.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::ending(Exit::Failed, text)
    }

    /// An end that is told and is no failure of the store or of distlock.
    pub(crate) fn ending(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            exit,
            text: text.into(),
            error: None,
            effect: None,
        }
    }

    /// The same of an answer that could not be printed: it is told here, and whether what it says was a change.
    pub(crate) fn with_answer(mut self, answer: &str, is_change: bool) -> Self {
        self.text += &format!("; the answer is: {}", output::one_line(answer));
        self.effect = Some(if is_change { "done" } else { "none" });
        self
    }

    /// Prints the line.
    pub(crate) fn tell(self) -> Exit {
        output::complain(&self.text);
        self.exit
    }

    /// Prints the line as JSON, for scripts.
    pub(crate) fn tell_as_json(self) -> Exit {
        output::complain_in_json(&JsonFailure::from(&self));
        self.exit
    }
}

impl From<distlock::Error> for Failure {
    fn from(error: distlock::Error) -> Self {
        Self {
            exit: Exit::Failed,
            text: error.to_string(),
            error: Some(error),
            effect: None,
        }
    }
}

/// A failure as `--json` shows it. Where the store had no part in it, all but the text is null, except for the effect of
/// what was done before its answer failed.
#[derive(Serialize)]
struct JsonFailure<'a> {
    error: JsonError<'a>,
}

#[derive(Serialize)]
struct JsonError<'a> {
    kind: Option<&'static str>,
    effect: Option<&'static str>,
    retryable: Option<bool>,
    text: &'a str,
}

impl<'a> From<&'a Failure> for JsonFailure<'a> {
    fn from(failure: &'a Failure) -> Self {
        let error = failure.error.as_ref();
        let effect = error.map(|error| match error.effect() {
            Effect::None => "none",
            Effect::Unknown => "unknown",
        });
        Self {
            error: JsonError {
                kind: error.map(|error| error.kind().as_str()),
                effect: effect.or(failure.effect),
                retryable: error.map(distlock::Error::is_retryable),
                text: &failure.text,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_table() {
        for (exit, code) in [
            (Exit::Done, 0),
            (Exit::No, 1),
            (Exit::Child(3), 3),
            (Exit::Signal(15), 143),
            (Exit::Conflict(75), 75),
            (Exit::Stopped, 124),
            (Exit::Failed, 125),
            (Exit::NotExecutable, 126),
            (Exit::NotFound, 127),
        ] {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }
}
