//! What is shown, and what is kept.

use std::fs;

use anyhow::Result;
use serde::Serialize;

use crate::store;

/// Keeps the results as JSON, in place of those of the last run.
pub(crate) fn keep(name: &str, results: &impl Serialize) -> Result<()> {
    let path = store::results()?.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_string_pretty(results)? + "\n")?;
    println!("\nkept in target/bench/{name}.json");
    Ok(())
}

/// Shows rows below their heads, each column as wide as it must be.
pub(crate) fn show(heads: &[&str], rows: &[Vec<String>]) {
    let heads: Vec<_> = heads.iter().map(|head| (*head).to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&heads]).map(|row| &row[column]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    for row in [&heads].into_iter().chain(rows) {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
}
