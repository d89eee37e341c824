//! The engine on the paused clock, above a backend that can be told to fail.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod cancel;
mod fail_open;
mod hold;
mod model;
mod scripted;
mod watchdog;
