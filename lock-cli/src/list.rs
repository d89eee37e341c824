use distlock::LockRecord;

use crate::args::AdminArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, JsonRecord, visible};
use crate::store::limited;

const COLUMNS: [&str; 7] = ["NAME", "STATE", "OWNER", "SINCE", "UNTIL", "LEFT", "FENCE"];

/// Prints the locks that the store knows, ordered by name.
pub(crate) async fn list(args: &AdminArgs) -> Result<Exit, Failure> {
    let store = args.open().await?;
    let records = limited(store.list()).await?;
    if args.json {
        let records: Vec<JsonRecord<'_>> = records.iter().map(JsonRecord::from).collect();
        output::print_json(&records)?;
    } else {
        let head = COLUMNS.map(str::to_owned).to_vec();
        let rows = [head].into_iter().chain(records.iter().map(row));
        output::print(&output::table(&rows.collect::<Vec<_>>()))?;
    }
    Ok(Exit::Done)
}

fn row(record: &LockRecord) -> Vec<String> {
    let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    vec![
        visible(record.name.as_str()),
        record.state.to_string(),
        or_dash(record.owner.as_deref().map(visible)),
        or_dash(record.locked_at.map(output::instant)),
        or_dash(record.lock_until.map(output::instant)),
        or_dash((!record.remaining.is_zero()).then(|| output::left(record.remaining))),
        or_dash(record.fencing_token.map(|token| token.to_string())),
    ]
}
