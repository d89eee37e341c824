//! The suite tests itself: a right store passes every rule, and each of many wrong ones is caught by the rules that
//! are named for its fault. A rule that no fault breaks could not fail, and fails this test.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_api::LockName;
use distlock_conformance::{Outcome, Report, Suite};
use libtest_mimic::{Arguments, Failed, Trial};

use faulty::{ENGINE_ONLY, FAULTS, Fault, Faulty, LINKED_ONLY};

mod faulty;

/// Suites that run at a time.
const AT_A_TIME: usize = 8;

fn main() -> ExitCode {
    for fault in faults() {
        if let Some(exit) = suite(fault).worker() {
            return exit;
        }
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut trials = vec![trial("a_right_store_passes_every_rule", &seen, right)];
    for (fault, by) in FAULTS {
        let name = format!("{}_is_caught_by_{}", snake(*fault), by.join("_and_"));
        trials.push(trial(&name, &seen, |seen| wrong(*fault, by, seen)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let partial = arguments.list || arguments.filter.is_some() || !arguments.skip.is_empty();
    match partial || seen.lock().unwrap().tell() {
        true => conclusion.exit_code(),
        false => ExitCode::FAILURE,
    }
}

fn trial(
    name: &str,
    seen: &Arc<Mutex<Seen>>,
    run: impl FnOnce(&Mutex<Seen>) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let seen = Arc::clone(seen);
    Trial::test(name, move || run(&seen))
}

/// What the suite found in all.
#[derive(Debug, Default)]
struct Seen {
    rules: Vec<&'static str>,
    caught: Vec<(Fault, Vec<&'static str>)>,
}

impl Seen {
    /// Prints the wrong stores with the rules that caught them, and says whether each rule caught one.
    fn tell(&self) -> bool {
        for (fault, rules) in &self.caught {
            println!("{:<32} {}", snake(*fault), rules.join(" "));
        }
        let mut idle = self.rules.clone();
        idle.retain(|id| !ENGINE_ONLY.contains(id) && !LINKED_ONLY.contains(id));
        idle.retain(|id| !self.caught.iter().any(|(_, by)| by.contains(id)));
        if !idle.is_empty() {
            println!("error: rules that no fault breaks: {}", idle.join(" "));
        }
        idle.is_empty()
    }
}

fn faults() -> impl Iterator<Item = Fault> {
    std::iter::once(Fault::None).chain(FAULTS.iter().map(|(fault, _)| *fault))
}

fn folder(fault: Fault) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    root.join("self-test").join(snake(fault))
}

/// A wrong store needs little patience: what it does late or never is found all the sooner.
fn suite(fault: Fault) -> Suite {
    let open = move || async move { Faulty::open(&folder(fault).join("locks"), fault) };
    let other = move || async move { Faulty::open(&folder(fault).join("disposable"), fault) };
    let suite = Suite::with_admin(&snake(fault), open)
        .forget(move |name: LockName| async move { open().await?.forget(&name) })
        .flush(other, move || async move { other().await?.empty() });
    match fault {
        Fault::None => suite,
        _ => suite.patience(Duration::from_secs(3)),
    }
}

fn check(fault: Fault) -> Report {
    let report = suite(fault).check();
    let _ = std::fs::remove_dir_all(folder(fault));
    report
}

fn right(seen: &Mutex<Seen>) -> Result<(), Failed> {
    let report = check(Fault::None);
    seen.lock().unwrap().rules = report.results.iter().map(|result| result.id).collect();
    for result in &report.results {
        let skipped = matches!(result.outcome, Outcome::Skipped(_));
        let right = match LINKED_ONLY.contains(&result.id) {
            true => skipped,
            false => result.outcome == Outcome::Passed,
        };
        if !right {
            return Err(format!("{}: {:?}", result.id, result.outcome).into());
        }
    }
    Ok(())
}

fn wrong(fault: Fault, by: &[&str], seen: &Mutex<Seen>) -> Result<(), Failed> {
    let report = check(fault);
    let caught = report.failed();
    seen.lock().unwrap().caught.push((fault, caught.clone()));
    match by.iter().find(|rule| !caught.contains(rule)) {
        Some(rule) => Err(format!("{rule} passes on a store with this fault").into()),
        None => Ok(()),
    }
}

/// `NeverExpires` as `never_expires`.
fn snake(fault: Fault) -> String {
    let mut snake = String::new();
    for c in format!("{fault:?}").chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
