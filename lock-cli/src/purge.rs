use distlock::Capabilities;
use serde::Serialize;

use crate::args::PurgeArgs;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output;

/// Deletes the records of locks that have been free for long, and says how many.
///
/// There is no way to only look: what is deleted is decided by the store's clock, which a list of records does not
/// tell.
pub(crate) async fn purge(args: &PurgeArgs) -> Result<Exit, Failure> {
    let store = args.admin.open().await?;
    // Not limited as a whole, because a large table takes its time: the backend limits each of its steps.
    let deleted = store.purge(args.older_than).await?;
    let capabilities = store.capabilities();
    let text = text(args, &capabilities, deleted);
    let printed = match args.admin.json {
        true => output::print_json(&Purged {
            backend: capabilities.backend,
            deleted,
        }),
        false => output::print(&text),
    };
    printed.map_err(|failure| failure.with_answer(&text, deleted > 0))?;
    Ok(Exit::Done)
}

fn text(args: &PurgeArgs, capabilities: &Capabilities, deleted: u64) -> String {
    let (backend, time) = (capabilities.backend, duration::show(args.older_than));
    if !capabilities.keeps_records {
        return format!(
            "{backend}: nothing to delete, the records of free locks go by themselves\n"
        );
    }
    let kept =
        "Kept are younger ones, and those whose fencing counter is ahead of the store's clock.";
    let (records, forgotten) = match deleted {
        0 => ("no record".to_owned(), ""),
        1 => ("1 record".to_owned(), "; its last tick is forgotten"),
        _ => (
            format!("{deleted} records"),
            "; their last ticks are forgotten",
        ),
    };
    format!(
        "{backend}: deleted {records} of locks that had been free for {time}{forgotten}\n{kept}\n"
    )
}

/// The answer as `--json` shows it.
#[derive(Serialize)]
struct Purged {
    backend: &'static str,
    deleted: u64,
}
