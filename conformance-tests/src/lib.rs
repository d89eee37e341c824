//! Numbered rules that any store of locks is held to, a stranger's too.
//!
//! A backend that passes keeps the promises of `distlock`, as far as they can be seen without breaking its server
//! or a clock. To run the rules on yours, write a test of about ten lines:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! ```no_run
//! use std::process::ExitCode;
//! use distlock_conformance::Suite;
//! # use distlock_api::{MemoryBackend as MyBackend, Result};
//! # async fn connect() -> Result<MyBackend> { Ok(MyBackend::new()) }
//! # async fn connect_elsewhere() -> Result<MyBackend> { Ok(MyBackend::new()) }
//! # async fn delete_key(_: String) -> Result<()> { Ok(()) }
//! # async fn delete_all_keys() -> Result<()> { Ok(()) }
//!
//! fn main() -> ExitCode {
//!     Suite::with_admin("mystore", connect)                       // a new client of the same store at each call
//!         .forget(|name| delete_key(format!("lock:{name}")))      // optional: as an operator's DEL would
//!         .flush(connect_elsewhere, delete_all_keys)              // optional: another store, which may be emptied
//!         .rules_run(102)
//!         .run()
//! }
//! ```
//!
//! [`Suite::new`] is for a backend that has no more than [`LockBackend`](distlock_api::LockBackend).
//! `tests/stranger.rs` of this crate is a whole such backend with its test, in one file.
//!
//! # What a run shows
//!
//! - Each rule is one test, `mystore::1.6_between_processes`. Its number is that of the promise it belongs to:
//!   1 exclusion, 2 server time, 3 crash, 4 at least, 5 owner, 6 fence, 7 loss, 8 cancellation, 9 drop and shutdown; or a
//!   letter: N names, D durations, T ticks, A the operators' tools, C claims and the memory backend as the reference,
//!   L what is left behind, F bad networks, P holders that are frozen or killed, each in a process of its own,
//!   H histories of contests between processes.
//! - A rule that cannot apply to a store is listed as ignored, with its reason, before anything runs. A skip never
//!   counts as a pass: [`Suite::rules_run`] says how many rules must run, and a run with fewer or more fails.
//! - A store that cannot be opened fails every rule.
//! - With `DISTLOCK_CONFORMANCE_REPORT=FOLDER` in the environment, a full run writes `FOLDER/mystore.json`.
//!
//! # Slow machines
//!
//! Lower bounds, on which safety hangs, are exact. Upper bounds are generous ([`Suite::patience`]). Where a rule needs a
//! lease to be running still, and the machine was so slow that it may not be, the rule proved nothing and is tried
//! again with longer leases. A broken rule is never tried again.
//!
//! Rules use lock names that nobody used before, so that many can run at a time, and on a store that is in use.
//! Some of them purge what has been free for two seconds.

mod bench;
mod client;
mod context;
mod crowd;
mod dice;
mod drops;
mod engine;
mod failure;
mod history;
mod leftovers;
mod link;
pub mod locked_rows;
mod polls;
mod process;
mod report;
mod request;
mod rule;
mod rules;
mod run;
mod store;
mod suite;
mod trial;
mod witness;

pub use drops::{Dropped, acquisitions_to_drop, drop_at_random};
pub use leftovers::{InProcess, leave_nothing_pending};
pub use report::{Outcome, Report, RuleResult};
pub use store::StoreError;
pub use suite::Suite;
