//! One of many (A): exclusion, as far as it concerns the program.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::{Mutex, PoisonError};

use common::{Store, lines_of};

on_each_store!(one_of_twenty_runs_the_command);

/// One store after the other: a small machine cannot log in a hundred processes at a time within their limit.
static ONE_RACE: Mutex<()> = Mutex::new(());

fn one_of_twenty_runs_the_command(store: &Store) {
    let _alone = ONE_RACE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = store.path("out");
    let script = format!("echo x >> '{out}'");
    let options = ["--at-most", "60s", "--at-least", "30s", "-E", "75"];
    let start = || store.run(&options, &["sh", "-c", &script]).spawn().unwrap();
    let running: Vec<_> = (0..20).map(|_| start()).collect();
    let codes = running
        .into_iter()
        .map(|mut run| run.wait().unwrap().code());
    let mut codes: Vec<_> = codes.map(Option::unwrap).collect();
    codes.sort_unstable();
    assert_eq!(codes[0], 0, "{codes:?}");
    assert_eq!(codes[1..], [75; 19]);
    assert_eq!(lines_of(out), 1);
}
