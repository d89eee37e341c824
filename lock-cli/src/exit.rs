use std::process::ExitCode;

use crate::output;

/// How distlock ends.
///
/// | code | meaning |
/// |---|---|
/// | the child's | the child ended by itself |
/// | 128 + n | the child was ended by signal n, or distlock was before it had started one |
/// | 0, or CODE of `-E CODE` | the lock is held or resting: no child was started |
/// | 124 | the lock was lost or its time was up, and the child was stopped |
/// | 125 | distlock itself failed; usage errors too |
/// | 126 | the command cannot be executed |
/// | 127 | the command was not found |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
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
}

impl Failure {
    /// distlock itself failed: 125.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            text: text.into(),
        }
    }

    /// Prints the line.
    pub(crate) fn tell(self) -> Exit {
        output::complain(&self.text);
        self.exit
    }
}

impl From<distlock::Error> for Failure {
    fn from(error: distlock::Error) -> Self {
        Self::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_table() {
        for (exit, code) in [
            (Exit::Done, 0),
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
