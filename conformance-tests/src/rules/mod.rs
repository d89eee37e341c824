//! The rules, one file per promise, or per word of the contract that no promise is named after.

use crate::rule::Rule;

mod at_least;
mod batch;
mod cancel;
mod claims;
mod clean;
mod crash;
mod drop;
mod durations;
mod exclusion;
mod faults;
mod fence;
mod force;
mod histories;
mod loss;
mod names;
mod operators;
mod owner;
mod processes;
mod reference;
mod ticks;
mod time;

/// All rules, in order.
pub(crate) fn all() -> impl Iterator<Item = &'static Rule> {
    let chapters = [
        exclusion::RULES,
        time::RULES,
        crash::RULES,
        at_least::RULES,
        owner::RULES,
        batch::RULES,
        fence::RULES,
        loss::RULES,
        cancel::RULES,
        drop::RULES,
        names::RULES,
        durations::RULES,
        ticks::RULES,
        operators::RULES,
        force::RULES,
        claims::RULES,
        reference::RULES,
        clean::RULES,
        faults::RULES,
        processes::RULES,
        histories::RULES,
    ];
    chapters.into_iter().flatten()
}
