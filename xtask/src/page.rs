//! A page that is made of results, and kept with the code: written by `cargo xtask docs`, compared by `cargo xtask ci`.

use std::fs;

use anyhow::{Context, Result, ensure};

/// Writes the page anew.
pub(crate) fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {path}"))
}

/// Fails if the page is not this text, whatever stands in the lines that do not count; `advice`: what brings it up to date.
pub(crate) fn check(path: &str, text: &str, counts: fn(&str) -> bool, advice: &str) -> Result<()> {
    let present = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    ensure!(
        is_same(&present, text, counts),
        "{path} is out of date: run {advice}"
    );
    Ok(())
}

pub(crate) fn is_same(one: &str, other: &str, counts: fn(&str) -> bool) -> bool {
    let lines = |text| str::lines(text).filter(|line| counts(line));
    lines(one).eq(lines(other))
}
