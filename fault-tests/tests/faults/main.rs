//! What becomes of locks when their server fails, or somebody's clock, each on a server of its own.
//!
//! A fault breaks an assumption of leases, or none. Where none is broken, there is one holder at most, a loss is told in time,
//! and the locks work again afterwards. Where one is broken, and not to the safe side, the test shows the two holders, for a
//! test that could not see them would show nothing elsewhere either; and that the fencing token keeps the resource right.
//!
//! Each test is run on every store that it is for, and says what was seen; [`report`] writes it down.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod catalogue;
mod client;
mod clock;
mod evidence;
mod failover;
mod freeze;
mod ground;
mod local_clock;
mod memory;
mod postgres;
mod redis;
mod replica;
mod report;
mod restart;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::catalogue::Cases;
use crate::ground::Templates;
use crate::report::Report;

/// They wait most of the time.
const AT_A_TIME: usize = 8;

fn main() -> ExitCode {
    if let Some(order) = client::order() {
        return client::run(&order);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let templates = Arc::new(Templates::default());
    let report = Arc::new(Report::default());
    let cases = cases();
    let trials = cases.list.iter().cloned().map(|case| {
        let (templates, report) = (Arc::clone(&templates), Arc::clone(&report));
        Trial::test(case.name(), move || {
            let seen = case.run(&templates)?;
            report.note(&case, seen);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if conclusion.num_passed == cases.list.len() as u64 {
        report.write(&cases);
    }
    match conclusion.has_failed() {
        true => ExitCode::from(101),
        false => ExitCode::SUCCESS,
    }
}

fn cases() -> Cases {
    let mut cases = Cases::default();
    clock::cases(&mut cases);
    local_clock::cases(&mut cases);
    memory::cases(&mut cases);
    restart::cases(&mut cases);
    freeze::cases(&mut cases);
    failover::cases(&mut cases);
    redis::cases(&mut cases);
    postgres::cases(&mut cases);
    cases
}
