//! The rules of the family, on MySQL, as a user with the least rights.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;
mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::run("mysql", common::Server::MySql)
}
