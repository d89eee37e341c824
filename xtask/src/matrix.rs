//! `cargo xtask matrix`: the tests of the backends against many versions of their servers, one after the other.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command::cargo;
use crate::docker::Docker;
use crate::docker::image::{IMAGES, Image, by_name};
use crate::progress::{Stopwatch, say};
use crate::report::{Outcome, Report};
use crate::servers::Servers;
use crate::servers::plan::Plan;
use crate::servers_page::{self, Entry};
use crate::test::cargo_test;

/// Logs and reports, one folder for each image.
const RESULTS: &str = "target/matrix";

pub(crate) async fn run(only: &[String]) -> Result<ExitCode> {
    let images = match only {
        [] => IMAGES.iter().collect(),
        names => names
            .iter()
            .map(|name| by_name(name))
            .collect::<Result<Vec<_>>>()?,
    };
    let order: Vec<_> = IMAGES.iter().map(Image::name).collect();
    // One daemon for all of them.
    let _docker = Docker::open().await?;
    let mut failed = Vec::new();
    for image in images {
        let name = image.name();
        let since = Stopwatch::start();
        let entry = try_image(image).await?;
        match &entry {
            Some(entry) => say(format_args!("{name} passed in {since}: {entry:?}")),
            None => failed.push(name.clone()),
        }
        servers_page::record(&name, &order, entry)?;
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(format_args!("FAILED: {}", failed.join(", ")));
    Ok(ExitCode::FAILURE)
}

/// `None` if a test failed.
async fn try_image(image: &'static Image) -> Result<Option<Entry>> {
    let folder = Path::new(RESULTS).join(image.name());
    // Reports of a run before must not pass for this one's.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let servers = Servers::start(&Plan::around(image)).await?;
    let mut command = cargo(["test", "--all-features", "--no-fail-fast", "--tests"]);
    command.args(["--package", image.kind.tested_by()]);
    let log = folder.join("log");
    let mut output = File::create(&log)?;
    let (status, tally) = cargo_test(command, &servers, &folder, &mut output).await?;
    if !status.success() {
        say(format_args!(
            "{}: {tally}, see {}",
            image.name(),
            log.display()
        ));
        return Ok(None);
    }
    entry(image, &folder, tally.passed).map(Some)
}

fn entry(image: &Image, folder: &Path, passed: u64) -> Result<Entry> {
    let store = image.kind.name();
    let report = Report::read(folder, store)?;
    let mut rules = 0;
    for path in reports(folder)? {
        let store = path.file_stem().unwrap_or_default().to_string_lossy();
        rules += Report::read(folder, &store)?.count(Outcome::Passed) as u64;
    }
    Ok(Entry {
        image: image.name(),
        rules_passed: report.count(Outcome::Passed),
        rules_skipped: report.count(Outcome::Skipped),
        server: report
            .server
            .with_context(|| format!("the suite of {store} does not ask which server it is"))?,
        other_tests_passed: passed - rules,
    })
}

/// Tests of one package may run the suite on several servers.
fn reports(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths: Vec<_> = paths.collect::<Result<_>>()?;
    let is_report = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    };
    Ok(paths.into_iter().filter(is_report).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_report(folder: &Path, store: &str, server: Option<&str>) {
        let rule = |outcome| serde_json::json!({"id": "1.1", "title": "One.", "outcome": outcome});
        let rules = ["passed", "passed", "skipped"].map(rule);
        let report = serde_json::json!({"server": server, "rules": rules});
        fs::write(folder.join(format!("{store}.json")), report.to_string()).unwrap();
    }

    #[test]
    fn the_rules_of_every_report_are_no_other_tests() {
        let folder = tempfile::tempdir().unwrap();
        write_report(folder.path(), "mysql", Some("MySQL 9.7"));
        write_report(folder.path(), "mariadb", Some("MariaDB 11.8"));
        let image = by_name("mariadb-11.8").unwrap();
        let entry = entry(image, folder.path(), 50).unwrap();
        assert_eq!(entry.server, "MariaDB 11.8");
        assert_eq!((entry.rules_passed, entry.rules_skipped), (2, 1));
        assert_eq!(entry.other_tests_passed, 46);
    }

    #[test]
    fn a_server_that_was_not_asked_makes_no_row() {
        let folder = tempfile::tempdir().unwrap();
        write_report(folder.path(), "redis", None);
        let image = by_name("redis-7.0").unwrap();
        assert!(entry(image, folder.path(), 50).is_err());
    }
}
