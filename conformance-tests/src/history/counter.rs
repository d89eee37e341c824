//! The resource that the lock protects: a number in a file, behind a check of fencing tokens.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

/// What the resource says to a holder.
pub(super) enum Answer {
    Value(u64),
    Stale,
}

pub(super) struct Counter(File);

impl Counter {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        Ok(Self(options.open(folder.join("counter"))?))
    }

    /// The value, for a holder that nobody has followed yet. From here on its predecessors are refused.
    pub(super) fn read(&mut self, fence: u64) -> io::Result<Answer> {
        self.enter(fence, |value| value)
    }

    pub(super) fn write(&mut self, fence: u64, value: u64) -> io::Result<Answer> {
        self.enter(fence, |_| value)
    }

    fn enter(&mut self, fence: u64, change: impl FnOnce(u64) -> u64) -> io::Result<Answer> {
        self.0.lock()?;
        let answer = self.step(fence, change);
        self.0.unlock()?;
        answer
    }

    fn step(&mut self, fence: u64, change: impl FnOnce(u64) -> u64) -> io::Result<Answer> {
        let (seen, value) = self.load()?;
        if fence < seen {
            return Ok(Answer::Stale);
        }
        let value = change(value);
        self.0.rewind()?;
        // One write: a holder that is killed leaves this text or the one before, and no half of either.
        self.0.write_all(text(fence, value).as_bytes())?;
        Ok(Answer::Value(value))
    }

    fn load(&mut self) -> io::Result<(u64, u64)> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        let number = |text: &str| text.parse().map_err(io::Error::other);
        match text.split_once(' ') {
            Some((seen, value)) => Ok((number(seen)?, number(value)?)),
            None => Ok((0, 0)),
        }
    }
}

/// Of one length, so that nothing of an earlier text is left behind it.
fn text(fence: u64, value: u64) -> String {
    format!("{fence:020} {value:020}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_the_same_length() {
        assert_eq!(text(u64::MAX, u64::MAX).len(), text(0, 0).len());
    }
}
