//! `cargo xtask docs`: the page of faults and what became of locks, from the report of the last `cargo xtask test`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::besides;

/// Where a run of the fault tests leaves its report.
pub(crate) const REPORTS: &str = "target/faults";
const PAGE: &str = "docs/faults.md";

/// What is shown by other tests, and what is left out: written by hand, and put at the end of the page.
const BESIDES: &str = "fault-tests/besides.md";

/// The stores with a column, in this order.
const STORES: [&str; 3] = ["postgres", "mariadb", "redis"];

const INTRODUCTION: &str = "\
# Faults, and what becomes of locks

This page is made by `cargo xtask docs` from the report of `cargo xtask test`, and CI fails when it is out of date. Each cell
is a test of `distlock-fault-tests`, on a server of its own that is really killed, frozen, or given a wrong clock. The
assumptions are those of [what is promised](guarantees.md); where none is broken, a lock has one holder, who is told of a
loss in time, and the locks work again afterwards. Where one is broken, and not to the safe side, the test shows that there
can be two holders.

- **held**: its holder kept the lock, nobody else got it, and the next one has a greater fencing token
- **told**: the holder was told of the loss when its deadline came, or before; then another got the lock, with a greater fencing token
- **error**: a call failed with this kind of error, never as \"held by another\"; nobody got the lock by it
- **two holders, fence refuses**: two counted on the lock at once; the resource that checks fencing tokens refused the first
- **two holders, fence does not tell**: the later one had no greater fencing token, so that the resource cannot know

MySQL shares its backend with MariaDB. It runs in a container, whose server cannot be frozen or started again like this, and
has no column.
";

/// What one test saw.
#[derive(Clone, Deserialize)]
struct Line {
    /// The ids in the catalogue of cases.
    cases: String,
    fault: String,
    breaks: Vec<String>,
    store: String,
    seen: String,
}

/// Writes the page anew.
pub(crate) fn write() -> Result<()> {
    crate::page::write(PAGE, &made()?)
}

/// Fails if the page is not what the report makes of it.
pub(crate) fn check() -> Result<()> {
    let advice = "`cargo xtask test`, then `cargo xtask docs`";
    crate::page::check(PAGE, &made()?, |_| true, advice)
}

fn made() -> Result<String> {
    let report = Path::new(REPORTS).join("faults.jsonl");
    let json = fs::read_to_string(&report).with_context(|| {
        format!(
            "no report {}: run `cargo xtask test` first",
            report.display()
        )
    })?;
    let lines = json.lines().map(serde_json::from_str);
    let lines = lines.collect::<Result<Vec<_>, _>>();
    page(
        &lines.with_context(|| format!("cannot read {}", report.display()))?,
        &besides::read(BESIDES)?,
    )
}

fn page(lines: &[Line], besides: &str) -> Result<String> {
    let mut page = format!(
        "{INTRODUCTION}\n| fault | case | breaks | {} |\n",
        STORES.join(" | ")
    );
    writeln!(page, "|---|---|---|{}", "---|".repeat(STORES.len()))?;
    let same_fault = |one: &Line, next: &Line| one.fault == next.fault;
    for row in lines.chunk_by(same_fault) {
        let first = &row[0];
        let breaks = match first.breaks.is_empty() {
            true => "none".to_owned(),
            false => first.breaks.join(", "),
        };
        write!(page, "| {} | {} | {breaks} |", first.fault, first.cases)?;
        for store in STORES {
            let mut here = row.iter().filter(|line| line.store == store);
            let seen = here.next().map_or("", |line| &line.seen);
            if here.next().is_some() {
                bail!("two tests of one fault on {store}: {}", first.fault);
            }
            write!(page, " {seen} |")?;
        }
        page.push('\n');
    }
    write!(page, "\n{besides}")?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fault: &str, store: &str, breaks: &[&str]) -> Line {
        Line {
            cases: "E1".to_owned(),
            fault: fault.to_owned(),
            breaks: breaks.iter().map(|&name| name.to_owned()).collect(),
            store: store.to_owned(),
            seen: "held".to_owned(),
        }
    }

    #[test]
    fn a_fault_is_a_row_and_a_store_a_column() {
        let lines = [
            line("fire", "postgres", &[]),
            line("fire", "redis", &[]),
            line("flood", "mariadb", &["step", "memory"]),
        ];
        let page = page(&lines, "## Besides\n").unwrap();
        assert!(
            page.contains("| fire | E1 | none | held |  | held |\n"),
            "{page}"
        );
        let flood = "| flood | E1 | step, memory |  | held |  |\n\n## Besides\n";
        assert!(page.ends_with(flood), "{page}");
    }

    #[test]
    fn two_results_for_one_cell_make_no_page() {
        let lines = [line("fire", "redis", &[]), line("fire", "redis", &[])];
        assert!(page(&lines, "").is_err());
    }
}
