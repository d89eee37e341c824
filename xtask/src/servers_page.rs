//! Which server version passed what: the data that `cargo xtask matrix` keeps, and the page that `cargo xtask docs` makes
//! of it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

const DATA: &str = "docs/servers.json";
const PAGE: &str = "docs/servers.md";

const INTRODUCTION: &str = "\
# Servers and versions

Every server below is one that the tests of its backend passed on: the rules of [the conformance suite](conformance.md), and
the backend's other tests. `cargo xtask matrix` runs them, with each server in a container, and keeps the results in
`docs/servers.json`; `cargo xtask docs` makes this page of them, and CI fails when it is out of date. A server that
fails has no row. What is newer than a row may well work; nobody has seen it yet.

| server | as it says itself | rules passed | rules skipped | other tests passed |
|---|---|--:|--:|--:|
";

/// One server that passed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Entry {
    /// The name of its image: `postgres-18`.
    pub(crate) image: String,
    /// What it answered when it was asked.
    pub(crate) server: String,
    pub(crate) rules_passed: usize,
    pub(crate) rules_skipped: usize,
    /// Of the backend's package, without the rules.
    pub(crate) other_tests_passed: u64,
}

/// Keeps what came out for an image; `None`: it failed.
pub(crate) fn record(image: &str, order: &[String], entry: Option<Entry>) -> Result<()> {
    let entries = replaced(entries()?, image, order, entry);
    let json = format!("{}\n", serde_json::to_string_pretty(&entries)?);
    fs::write(DATA, json).with_context(|| format!("cannot write {DATA}"))
}

/// The entries in the order of the images, whatever order they were run in.
fn replaced(
    mut entries: Vec<Entry>,
    image: &str,
    order: &[String],
    entry: Option<Entry>,
) -> Vec<Entry> {
    entries.retain(|old| old.image != image && order.contains(&old.image));
    entries.extend(entry);
    entries.sort_by_key(|entry| order.iter().position(|name| *name == entry.image));
    entries
}

/// Writes the page anew.
pub(crate) fn write() -> Result<()> {
    crate::page::write(PAGE, &page(&entries()?)?)
}

/// Fails if the page is not what the data make of it.
pub(crate) fn check() -> Result<()> {
    crate::page::check(PAGE, &page(&entries()?)?, |_| true, "`cargo xtask docs`")
}

fn entries() -> Result<Vec<Entry>> {
    if !Path::new(DATA).exists() {
        return Ok(Vec::new());
    }
    let json = fs::read(DATA).with_context(|| format!("cannot read {DATA}"))?;
    serde_json::from_slice(&json).with_context(|| format!("cannot read {DATA}"))
}

fn page(entries: &[Entry]) -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for entry in entries {
        writeln!(
            page,
            "| {} | {} | {} | {} | {} |",
            entry.image,
            entry.server,
            entry.rules_passed,
            entry.rules_skipped,
            entry.other_tests_passed,
        )?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(image: &str, rules_passed: usize) -> Entry {
        Entry {
            image: image.to_owned(),
            server: "Store 1.2".to_owned(),
            rules_passed,
            rules_skipped: 4,
            other_tests_passed: 70,
        }
    }

    fn order() -> Vec<String> {
        ["a-1", "a-2", "b-1"].map(str::to_owned).into()
    }

    #[test]
    fn a_result_takes_the_place_of_the_one_before() {
        let before = vec![entry("a-1", 1), entry("b-1", 1)];
        let after = replaced(before.clone(), "a-2", &order(), Some(entry("a-2", 2)));
        assert_eq!(after, [entry("a-1", 1), entry("a-2", 2), entry("b-1", 1)]);
        let again = replaced(after, "a-2", &order(), Some(entry("a-2", 3)));
        assert_eq!(again, [entry("a-1", 1), entry("a-2", 3), entry("b-1", 1)]);
    }

    #[test]
    fn a_server_that_fails_or_is_dropped_has_no_row() {
        let before = vec![entry("a-0", 1), entry("a-1", 1), entry("b-1", 1)];
        let after = replaced(before, "a-1", &order(), None);
        assert_eq!(after, [entry("b-1", 1)]);
    }

    #[test]
    fn a_row_has_the_counts() {
        let page = page(&[entry("a-1", 91)]).unwrap();
        assert!(
            page.ends_with("| a-1 | Store 1.2 | 91 | 4 | 70 |\n"),
            "{page}"
        );
    }
}
