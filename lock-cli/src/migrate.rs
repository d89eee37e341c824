use distlock::{ErrorKind, LockAdmin, Operation};
use serde::Serialize;

use crate::args::AdminArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::store::limited;

/// Makes what is missing in the store, and says what it did.
pub(crate) async fn migrate(args: &AdminArgs) -> Result<Exit, Failure> {
    let store = args.store.resolve()?;
    args.announce(&store);
    let is_new = store.is_new();
    let store = store.open_or_make().await?;
    let made = make_missing(&*store).await?;
    let outcome = match made || is_new {
        true => Outcome::Made,
        false => Outcome::NothingToDo,
    };
    let backend = store.capabilities().backend;
    let text = format!("{backend}: {}\n", outcome.as_str());
    let printed = match args.json {
        true => output::print_json(&Migrated { backend, outcome }),
        false => output::print(&text),
    };
    let is_change = matches!(outcome, Outcome::Made);
    printed.map_err(|failure| failure.with_answer(&text, is_change))?;
    Ok(Exit::Done)
}

/// Whether anything was missing.
async fn make_missing(store: &dyn LockAdmin) -> distlock::Result<bool> {
    match limited(usable(store)).await {
        Ok(()) => Ok(false),
        // A file that is not there yet is a matter of configuration to SQLite.
        Err(error) if matches!(error.kind(), ErrorKind::SchemaMissing | ErrorKind::Config) => {
            limited(store.migrate()).await?;
            limited(usable(store)).await?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

async fn usable(store: &dyn LockAdmin) -> distlock::Result<()> {
    let usable = store.check().await?.usable();
    usable.map_err(|error| error.during(store.capabilities().backend, Operation::Check))
}

/// The answer, as `--json` shows it.
#[derive(Serialize)]
struct Migrated {
    backend: &'static str,
    outcome: Outcome,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Made,
    NothingToDo,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made what was missing, the store is ready",
            Self::NothingToDo => "nothing to do, the store is ready",
        }
    }
}
