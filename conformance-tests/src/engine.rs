//! The engine above a client, as rules use it.

use distlock_api::{Acquisition, Guard, Lock};

use crate::failure::{Checked, must_be};

/// Takes a free lock.
pub(crate) async fn acquire(lock: &Lock) -> Checked<Guard> {
    let acquired = lock.try_acquire().await?;
    must_be!(acquired, Acquisition::Acquired(guard) => Ok(guard), "a free lock was not granted")
}
