//! `cargo xtask docs`: the page of the rules and their results, from the reports of the last `cargo xtask test`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::besides;
use crate::report::{Outcome, Report, Rule};

/// Where a run of the conformance suites leaves its reports.
pub(crate) const REPORTS: &str = "target/conformance";
const PAGE: &str = "docs/conformance.md";

/// What is shown by other tests, and what is left out: written by hand, and put at the end of the page.
const BESIDES: &str = "conformance-tests/besides.md";

/// The stores with a column, in this order. A report that is missing is an error, not an empty column.
const STORES: [&str; 7] = [
    "memory",
    "sqlite",
    "postgres",
    "pgbouncer",
    "redis",
    "mysql",
    "mariadb",
];

const INTRODUCTION: &str = "\
# The rules and their results

This page is made by `cargo xtask docs` from the reports of `cargo xtask test`, and CI fails when it is out of date. Every
store is held to the same rules. ✓ is a pass, a letter a skip, with its reason below; there is no other mark, for a run with
a failure makes no page. Rules are numbered after the promise that they belong to: 1 exclusion, 2 server time, 3 crash,
4 at least, 5 owner, 6 fence, 7 loss, 8 cancellation, 9 drop and shutdown; or N names, D durations, T ticks, A tools for
operators, C claims and the memory backend as the reference, L what is left behind, F bad networks, P holders that are frozen
or killed, each in a process of its own, H histories of contests between processes.

The suite is held to account itself: deliberately wrong backends, each of which the rule it names must catch, run with it
(`conformance-tests/tests/self_test.rs`).
";

/// Writes the page anew.
pub(crate) fn write() -> Result<()> {
    crate::page::write(PAGE, &made()?)
}

/// Fails if the page is not what the reports make of it.
pub(crate) fn check() -> Result<()> {
    let advice = "`cargo xtask test`, then `cargo xtask docs`";
    crate::page::check(PAGE, &made()?, is_result, advice)
}

fn made() -> Result<String> {
    Ok(page(&reports()?)? + "\n" + &besides::read(BESIDES)?)
}

/// A newer server with the same results makes no page out of date.
fn is_result(line: &str) -> bool {
    !line.starts_with(SERVERS)
}

const SERVERS: &str = "| | server |";

fn reports() -> Result<Vec<Report>> {
    let read = |store: &&str| {
        Report::read(Path::new(REPORTS), store).context("run `cargo xtask test` first")
    };
    STORES.iter().map(read).collect()
}

fn page(reports: &[Report]) -> Result<String> {
    let mut reasons = BTreeMap::new();
    let mut page = format!("{INTRODUCTION}\n| rule | | {} |\n", STORES.join(" | "));
    writeln!(page, "|---|---|{}", ":-:|".repeat(STORES.len()))?;
    for (row, rule) in reports[0].rules.iter().enumerate() {
        write!(page, "| {} | {} |", rule.id, rule.title)?;
        for (store, report) in STORES.iter().zip(reports) {
            let result = report.rules.get(row).filter(|result| result.id == rule.id);
            let Some(result) = result else {
                bail!("the report of {store} has other rules: run `cargo xtask test` again");
            };
            write!(page, " {} |", mark(store, result, &mut reasons)?)?;
        }
        page.push('\n');
    }
    let count = |report: &Report| report.count(Outcome::Passed).to_string();
    let counts: Vec<_> = reports.iter().map(count).collect();
    writeln!(page, "| | rules run | {} |", counts.join(" | "))?;
    let server = |report: &Report| report.server.clone().unwrap_or_default();
    let servers: Vec<_> = reports.iter().map(server).collect();
    writeln!(page, "{SERVERS} {} |\n\n## Skips\n", servers.join(" | "))?;
    let mut reasons: Vec<_> = reasons
        .iter()
        .map(|(reason, letter)| (letter, reason))
        .collect();
    reasons.sort();
    for (letter, reason) in reasons {
        writeln!(page, "- {letter}: {reason}")?;
    }
    Ok(page)
}

/// A tick, or the letter of the reason for a skip.
fn mark(store: &str, rule: &Rule, reasons: &mut BTreeMap<String, char>) -> Result<char> {
    match rule.outcome {
        Outcome::Passed => Ok('✓'),
        Outcome::Failed => bail!(
            "{store} breaks the rule {}: no page is made of that",
            rule.id
        ),
        Outcome::Skipped => {
            let reason = rule.text.clone().unwrap_or_default();
            let next = (b'a' + u8::try_from(reasons.len())?).into();
            Ok(*reasons.entry(reason).or_insert(next))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::is_same;

    fn report(outcome: Outcome) -> Report {
        let rule = Rule {
            id: "1.1".to_owned(),
            title: "One holder.".to_owned(),
            outcome,
            text: Some("why not".to_owned()),
        };
        Report {
            server: Some("Store 1.2".to_owned()),
            rules: vec![rule],
        }
    }

    /// Every store has the same result, but the first, which skips.
    fn reports() -> [Report; STORES.len()] {
        let mut reports = [Outcome::Passed; STORES.len()].map(report);
        reports[0] = report(Outcome::Skipped);
        reports
    }

    #[test]
    fn passes_and_skips_have_their_marks() {
        let page = page(&reports()).unwrap();
        assert!(page.contains("| 1.1 | One holder. | a | ✓ | ✓ |"), "{page}");
        assert!(page.contains("| | rules run | 0 | 1 | 1 |"), "{page}");
        assert!(page.ends_with("- a: why not\n"), "{page}");
    }

    #[test]
    fn another_version_of_a_server_makes_no_page_out_of_date() {
        let mut reports = reports();
        let before = page(&reports).unwrap();
        reports[1].server = Some("Store 1.3".to_owned());
        let newer = page(&reports).unwrap();
        assert!(newer.contains("| | server | Store 1.2 | Store 1.3 | Store 1.2 |"));
        assert!(is_same(&before, &newer, is_result));
        reports[1] = report(Outcome::Skipped);
        let worse = page(&reports).unwrap();
        assert!(!is_same(&before, &worse, is_result));
    }

    #[test]
    fn no_page_is_made_of_a_failure_or_of_other_rules() {
        let mut reports = reports();
        reports[3].rules[0].id = "1.2".to_owned();
        assert!(page(&reports).is_err());
        reports[3] = report(Outcome::Failed);
        assert!(page(&reports).is_err());
    }
}
