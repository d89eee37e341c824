//! The engine above a client, as rules use it.

use std::time::Duration;

use distlock_api::clock::Instant;
use distlock_api::{Acquisition, Error, ErrorKind, Guard, Lock};

use crate::failure::{Checked, Failure, must_be};

/// Takes a free lock.
pub(crate) async fn acquire(lock: &Lock, at_most: Duration) -> Checked<Guard> {
    let asked = Instant::now();
    let acquired = lock.try_acquire().await;
    let acquired = acquired.map_err(|error| too_late(error, &asked, at_most))?;
    must_be!(acquired, Acquisition::Acquired(guard) => Ok(guard), "a free lock was not granted")
}

/// What an error of the engine says of the backend: nothing where the lease was over before its grant was known.
pub(crate) fn too_late(error: Error, asked: &Instant, at_most: Duration) -> Failure {
    match error.kind() == ErrorKind::Timeout && asked.elapsed() >= at_most / 2 {
        true => Failure::Stalled,
        false => error.into(),
    }
}
