use std::fmt;

use crate::{Error, ErrorKind, Result};

/// One thing that [`LockAdmin::check`](crate::LockAdmin::check) found, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The kind of the error that lock calls report for it, or would.
    pub kind: ErrorKind,
    /// What was found, in a few words and without a full stop.
    pub what: String,
    /// What to do about it: a statement or a setting, where there is one.
    pub fix: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Locks work, but one of the store's settings weakens a promise.
    Warning,
    /// No lock can be had until it is mended.
    Fault,
}

impl Finding {
    /// Something that keeps the store from being used.
    pub fn fault(kind: ErrorKind, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fault,
            kind,
            what: what.into(),
            fix: fix.into(),
        }
    }

    /// Something that weakens a promise.
    pub fn warning(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            kind: ErrorKind::Config,
            what: what.into(),
            fix: fix.into(),
        }
    }
}

/// `what: fix`, on one line if both are.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.fix)
    }
}

impl From<Finding> for Error {
    fn from(finding: Finding) -> Self {
        Self::new(finding.kind, finding.to_string()).with_effect(crate::Effect::None)
    }
}

impl Severity {
    /// `warning` or `fault`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a check found: nothing, if all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a fault is a finding, not an error: `usable` makes it one"]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds one.
    pub fn push(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.0.iter()
    }

    /// Whether locks can be had: warnings do no harm to that.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn usable(self) -> Result<()> {
        let fault = self
            .into_iter()
            .find(|finding| finding.severity == Severity::Fault);
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }
}

impl From<Finding> for Findings {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}

impl FromIterator<Finding> for Findings {
    fn from_iter<I: IntoIterator<Item = Finding>>(findings: I) -> Self {
        Self(findings.into_iter().collect())
    }
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        self.0.extend(findings);
    }
}

impl IntoIterator for Findings {
    type Item = Finding;
    type IntoIter = std::vec::IntoIter<Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effect;

    #[test]
    fn only_a_fault_makes_a_store_unusable_and_the_first_is_told() {
        let warning = Finding::warning("fsync is off", "set fsync = on");
        let mut findings = Findings::from(warning);
        assert_eq!(findings.clone().usable().map_err(|e| e.kind()), Ok(()));
        for (what, kind) in [("one", ErrorKind::Denied), ("two", ErrorKind::Config)] {
            findings.push(Finding::fault(kind, what, "mend it"));
        }
        let error = findings.usable().unwrap_err();
        assert_eq!(error.message(), "one: mend it");
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Denied, Effect::None)
        );
    }
}
