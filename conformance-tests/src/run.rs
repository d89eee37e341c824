use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock_api::clock::Instant;
use libtest_mimic::{Arguments, Completion, Trial};

use crate::report::{Outcome, Report, RuleResult};
use crate::rule::{Known, Rule};
use crate::suite::Suite;
use crate::{rules, trial};

/// Rules mostly wait, so that more of them run at a time than there are processors.
const AT_A_TIME: usize = 8;

/// Names the folder that reports are written to.
const REPORT: &str = "DISTLOCK_CONFORMANCE_REPORT";

/// Runs the rules under the arguments that test programs take.
pub(crate) fn as_tests(suite: Suite) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let plan = Arc::new(Plan::new(suite));
    let trials = (0..plan.rules.len()).map(|index| as_test(&plan, index));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let partial = arguments.list
        || arguments.ignored
        || arguments.filter.is_some()
        || !arguments.skip.is_empty();
    if partial || plan.conclude() {
        conclusion.exit_code()
    } else {
        ExitCode::from(101)
    }
}

/// Runs all rules without a test harness.
pub(crate) fn all(suite: &Suite) -> Report {
    let plan = Plan::new(suite.clone());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(planned) = plan.rules.get(next.fetch_add(1, Ordering::Relaxed)) {
                    plan.run(planned);
                }
            });
        }
    });
    plan.report()
}

/// What is to be run, and how that went so far.
struct Plan {
    suite: Suite,
    rules: Vec<Planned>,
}

/// One rule, why it is skipped, or how it ended.
struct Planned {
    rule: &'static Rule,
    skip: Option<&'static str>,
    ended: Mutex<Option<(Outcome, Duration)>>,
}

impl Plan {
    /// Decides on skips before anything is run, so that a list of tests shows them.
    fn new(suite: Suite) -> Self {
        let known = Known {
            store: &suite.store,
            client: trial::look_at(&suite.store),
        };
        let rules = rules::all().map(|rule| Planned {
            rule,
            skip: rule.skip(&known),
            ended: Mutex::default(),
        });
        let rules = rules.collect();
        Self { suite, rules }
    }

    fn run(&self, planned: &Planned) -> Outcome {
        let since = Instant::now();
        let outcome = match planned.skip {
            Some(reason) => Outcome::Skipped(reason),
            None => match trial::try_rule(planned.rule, &self.suite) {
                Ok(()) => Outcome::Passed,
                Err(how) => Outcome::Failed(how),
            },
        };
        let mut ended = planned.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended = Some((outcome.clone(), since.elapsed()));
        outcome
    }

    fn report(&self) -> Report {
        let results = self.rules.iter().map(Planned::result);
        Report {
            store: self.suite.store.name.clone(),
            server: None,
            results: results.collect(),
        }
    }

    /// Prints the skips, writes the report where one is asked for, and says whether as many rules ran as must.
    fn conclude(&self) -> bool {
        let mut report = self.report();
        let answer = trial::ask_server(&self.suite.store);
        let mut good = answer.is_ok();
        match answer {
            Ok(server) => report.server = server,
            Err(error) => println!("error: the server did not say which it is: {error}"),
        }
        for (reason, rules) in report.skips() {
            println!("skipped, for {reason}: {}", rules.join(" "));
        }
        if let Some(folder) = std::env::var_os(REPORT)
            && let Err(error) = report.write(&PathBuf::from(folder))
        {
            println!("error: the report was not written: {error}");
            good = false;
        }
        let (ran, must) = (report.rules_run(), self.suite.rules_run);
        if must != Some(ran) {
            let must = must.map_or("no number of rules".to_owned(), |must| {
                format!("{must} rules")
            });
            println!(
                "error: {ran} rules ran on {}, and {must} were announced by `rules_run`",
                report.store
            );
            good = false;
        }
        good
    }
}

impl Planned {
    fn result(&self) -> RuleResult {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, elapsed) = match (ended.clone(), self.skip) {
            (Some(ended), _) => ended,
            (None, Some(reason)) => (Outcome::Skipped(reason), Duration::ZERO),
            (None, None) => (
                Outcome::Failed("it was never run".to_owned()),
                Duration::ZERO,
            ),
        };
        RuleResult {
            id: self.rule.id,
            name: self.rule.name,
            title: self.rule.title,
            outcome,
            elapsed,
        }
    }
}

/// A rule as a test. A skipped one is listed as ignored, and its name says why.
fn as_test(plan: &Arc<Plan>, index: usize) -> Trial {
    let planned = &plan.rules[index];
    let mut name = format!("{}::{}", plan.suite.store.name, planned.rule.test_name());
    if let Some(reason) = planned.skip {
        name += &format!(" ({reason})");
    }
    let of = plan.clone();
    let run = move || match of.run(&of.rules[index]) {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Skipped(reason) => Ok(Completion::ignored_with(reason)),
        Outcome::Failed(how) => Err(how.into()),
    };
    Trial::ignorable_test(name, run).with_ignored_flag(planned.skip.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;
    use distlock_api::MemoryBackend;

    /// A store that cannot be opened, so that its rules end at once.
    fn closed() -> Suite {
        Suite::new("closed", || async {
            Err::<MemoryBackend, _>("it is closed")
        })
    }

    fn memory() -> Suite {
        Suite::new("memory", || async {
            Ok::<_, StoreError>(MemoryBackend::new())
        })
    }

    #[test]
    fn a_store_that_cannot_be_opened_fails_every_rule() {
        let report = closed().check();
        assert_eq!(report.failed().len(), rules::all().count());
        let Outcome::Failed(how) = &report.results[0].outcome else {
            panic!("{report:?}");
        };
        assert!(how.contains("it is closed"), "{how}");
    }

    #[test]
    fn skips_are_decided_before_anything_runs() {
        let report = Plan::new(memory()).report();
        let skips = report.skips();
        assert!(
            skips["the scope is one process"].contains(&"3.1"),
            "{skips:?}"
        );
        assert!(
            skips["the backend has no LockAdmin"].contains(&"A.1"),
            "{skips:?}"
        );
    }

    #[test]
    fn the_number_of_rules_that_ran_must_be_the_announced_one() {
        let announced = |count| {
            let suite = Suite {
                rules_run: count,
                ..closed()
            };
            let plan = Plan::new(suite);
            plan.rules
                .iter()
                .for_each(|planned| drop(plan.run(planned)));
            plan.conclude()
        };
        let all = rules::all().count();
        assert!(announced(Some(all)));
        assert!(!announced(Some(all - 1)));
        assert!(!announced(None));
    }

    #[test]
    fn a_server_that_does_not_say_which_it_is_fails_the_run() {
        let with_answer = |answer: Result<&'static str, &'static str>| {
            let suite = closed()
                .rules_run(rules::all().count())
                .server(move || async move { answer.map(str::to_owned) });
            let plan = Plan::new(suite);
            plan.rules
                .iter()
                .for_each(|planned| drop(plan.run(planned)));
            plan.conclude()
        };
        assert!(with_answer(Ok("Store 1.2")));
        assert!(!with_answer(Err("it is closed")));
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<_> = rules::all().map(|rule| rule.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rules::all().count());
    }
}
