//! Second processes: this very program, started again to be a client of the store on its own.
//!
//! The rule's process drives it over its standard input and output, one line each way, and sees it as one more
//! backend. It ends with its input, so that none outlives the run.

mod remote;
mod wire;
mod worker;

pub(crate) use remote::{Remote, Setting};
pub(crate) use wire::Done;
pub(crate) use worker::{asked_for, serve};

/// Names the store in the environment of a second process.
const WORKER: &str = "DISTLOCK_CONFORMANCE_WORKER";

/// Where a second process finds the server, if not where everybody does.
const LINK: &str = "DISTLOCK_CONFORMANCE_LINK";
