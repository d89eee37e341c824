//! What was seen, for the page that is made of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::catalogue::{Assumption, Case, Cases, Seen};

/// What each test saw, by its name.
#[derive(Default)]
pub(crate) struct Report(Mutex<BTreeMap<String, Seen>>);

#[derive(Serialize)]
struct Line<'a> {
    cases: &'a str,
    fault: &'a str,
    breaks: Vec<&'static str>,
    store: &'a str,
    test: &'a str,
    seen: String,
}

impl Report {
    pub(crate) fn note(&self, case: &Case, seen: Seen) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.insert(case.name(), seen);
    }

    /// One line of JSON for each test, in their order, in the folder that the environment names. Only for a run of all of
    /// them, so that nothing of a run before is taken for a result of this one.
    pub(crate) fn write(&self, cases: &Cases) {
        let Some(folder) = std::env::var_os("DISTLOCK_FAULTS_REPORT") else {
            return;
        };
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = cases.list.iter().map(|case| {
            let breaks = case.fault.breaks.iter().copied();
            let line = Line {
                cases: case.fault.cases,
                fault: case.fault.words,
                breaks: breaks.map(Assumption::as_str).collect(),
                store: case.store.as_str(),
                test: case.test,
                seen: notes[&case.name()].to_string(),
            };
            serde_json::to_string(&line).unwrap() + "\n"
        });
        let lines: String = lines.collect();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join("faults.jsonl"), lines).unwrap();
    }
}
