//! What a run of a conformance suite leaves: one file of JSON for each store.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Report {
    /// Which server it was, where the suite asks it.
    pub(crate) server: Option<String>,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Deserialize)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) outcome: Outcome,
    pub(crate) text: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Report {
    pub(crate) fn read(folder: &Path, store: &str) -> Result<Self> {
        let path = folder.join(format!("{store}.json"));
        let json = fs::read(&path).with_context(|| format!("no report {}", path.display()))?;
        serde_json::from_slice(&json).with_context(|| format!("cannot read {}", path.display()))
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        let rules = self.rules.iter();
        rules.filter(|rule| rule.outcome == outcome).count()
    }
}
