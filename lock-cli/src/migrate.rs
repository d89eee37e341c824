use distlock::{ErrorKind, LockAdmin};

use crate::args::MigrateArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::store::limited;

const MADE: &str = "made what was missing, the store is ready";

/// Makes what is missing in the store, and says what it did.
pub(crate) async fn migrate(args: &MigrateArgs) -> Result<Exit, Failure> {
    let store = args.store.resolve()?;
    let is_new = store.is_new();
    let store = store.open().await?;
    let backend = store.capabilities().backend;
    let done = match limited(usable(&*store)).await {
        Ok(()) if is_new => MADE,
        Ok(()) => "nothing to do, the store is ready",
        // A file that is not there yet is a matter of configuration to SQLite.
        Err(error) if matches!(error.kind(), ErrorKind::SchemaMissing | ErrorKind::Config) => {
            limited(store.migrate()).await?;
            limited(usable(&*store)).await?;
            MADE
        }
        Err(error) => return Err(error.into()),
    };
    output::print(&format!("{backend}: {done}\n"))?;
    Ok(Exit::Done)
}

async fn usable(store: &dyn LockAdmin) -> distlock::Result<()> {
    store.check().await?.usable()
}
