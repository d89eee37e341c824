use distlock::LockRecord;

use crate::args::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, JsonRecord, visible};
use crate::store::limited;

/// Prints all that the store knows of one lock.
///
/// A lock without a record is free, as it is after a purge, or on a store that keeps no records: the exit code is 0
/// on every store alike.
pub(crate) async fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let store = args.admin.open().await?;
    let found = limited(store.inspect(&args.name)).await?;
    let known = found.is_some();
    let record = found.unwrap_or_else(|| LockRecord::new(args.name.clone()));
    if args.admin.json {
        output::print_json(&JsonRecord::from(&record))?;
    } else {
        output::print(&output::table(&lines(&record, known)))?;
    }
    Ok(Exit::Done)
}

fn lines(record: &LockRecord, known: bool) -> Vec<Vec<String>> {
    let state = match known {
        true => record.state.to_string(),
        false => "free (the store has no record of it)".to_owned(),
    };
    let left = (!record.remaining.is_zero()).then(|| output::left(record.remaining));
    let fields = [
        ("name:", Some(visible(record.name.as_str()))),
        ("state:", Some(state)),
        ("owner:", record.owner.as_deref().map(visible)),
        ("since:", record.locked_at.map(output::instant)),
        ("until:", record.lock_until.map(output::instant)),
        ("left:", left),
        (
            "fence:",
            record.fencing_token.map(|token| token.to_string()),
        ),
        ("last tick:", record.last_tick.map(|tick| tick.to_string())),
    ];
    let lines = fields.into_iter();
    lines
        .filter_map(|(field, value)| Some(vec![field.to_owned(), value?]))
        .collect()
}
