//! What a table of fences says when it cannot be used, for backends that have one. Nothing was changed then: the caller's
//! transaction is to be rolled back.

use std::fmt::Display;

use crate::{Effect, Error, ErrorKind, FencingToken};

/// It was asked outside of a transaction, where its row lock would end at once.
pub fn no_transaction() -> Error {
    refusal(
        ErrorKind::Config,
        "a fence outside of a transaction keeps nobody out: begin one, and admit the token first in it",
    )
}

/// There is no such table.
pub fn missing(table: &impl Display) -> Error {
    refusal(
        ErrorKind::SchemaMissing,
        format!("the table {table} is missing: apply what Fences::schema_sql gives"),
    )
}

/// The table cannot have been made by its schema.
pub fn unfit(table: &impl Display) -> Error {
    refusal(
        ErrorKind::Config,
        format!("the table {table} does not fit: compare it with what Fences::schema_sql gives"),
    )
}

/// The token is greater than any that a lock gives.
pub fn too_great(token: FencingToken) -> Error {
    refusal(
        ErrorKind::InvalidOption,
        format!("{token} is no lock's fencing token: hand over the guard's"),
    )
}

fn refusal(kind: ErrorKind, text: impl Into<String>) -> Error {
    Error::new(kind, text).with_effect(Effect::None)
}
