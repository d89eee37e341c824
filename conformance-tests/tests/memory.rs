//! The memory backend under all rules.

use std::process::ExitCode;

use distlock_api::MemoryBackend;
use distlock_conformance::{StoreError, Suite};

fn main() -> ExitCode {
    let store = MemoryBackend::new();
    Suite::with_admin("memory", move || {
        let client = store.clone();
        async move { Ok::<_, StoreError>(client) }
    })
    .rules_run(90)
    .run()
}
