use distlock::{FencingToken, ForceRelease, Held, LockName, LockRecord, LockState};
use serde::Serialize;

use crate::args::ReleaseArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, visible};
use crate::store::limited;

/// Frees a lock, whoever holds it; without `--force` it only says who that is.
pub(crate) async fn release(args: &ReleaseArgs) -> Result<Exit, Failure> {
    let store = args.admin.open().await?;
    let answer = match args.force {
        true => limited(store.force_release(&args.name, args.only_if))
            .await?
            .into(),
        false => without_force(limited(store.inspect(&args.name)).await?, args.only_if),
    };
    let text = answer.text(&args.name);
    let printed = match (args.admin.json, answer.exit()) {
        (true, _) => output::print_json(&Json::new(&args.name, &answer)),
        (false, Exit::Done) => output::print(&format!("{text}\n")),
        (false, exit) => return Err(Failure::ending(exit, text)),
    };
    let is_change = matches!(answer, Answer::Freed { .. });
    printed.map_err(|failure| failure.with_answer(&text, is_change))?;
    Ok(answer.exit())
}

/// What came of it.
enum Answer {
    Freed { owner: String },
    NotHeld,
    OtherFence { current: Option<FencingToken> },
    NeedsForce(LockRecord),
}

impl From<ForceRelease> for Answer {
    fn from(forced: ForceRelease) -> Self {
        match forced {
            ForceRelease::Freed { was } => Self::Freed { owner: was },
            ForceRelease::NotHeld => Self::NotHeld,
            ForceRelease::OtherFence { current } => Self::OtherFence { current },
        }
    }
}

fn without_force(found: Option<LockRecord>, only_if: Option<FencingToken>) -> Answer {
    match found {
        Some(record) if record.state != LockState::Free => {
            let current = record.fencing_token;
            match only_if.is_some() && only_if != current {
                true => Answer::OtherFence { current },
                false => Answer::NeedsForce(record),
            }
        }
        _ => Answer::NotHeld,
    }
}

impl Answer {
    /// That nobody has the lock is what was asked for. That somebody keeps it is not.
    fn exit(&self) -> Exit {
        match self {
            Self::Freed { .. } | Self::NotHeld => Exit::Done,
            Self::OtherFence { .. } | Self::NeedsForce(_) => Exit::No,
        }
    }

    fn text(&self, name: &LockName) -> String {
        let quoted = format!("\"{}\"", visible(name.as_str()));
        match self {
            Self::Freed { owner } => format!(
                "freed {quoted}, which {} had\n\
                 What ran under it was not stopped: only what checks the fencing token keeps it out from now on.",
                visible(owner)
            ),
            Self::NotHeld => format!(
                "{quoted} is not held, and nothing was changed (if you expected a holder, see distlock list)"
            ),
            Self::OtherFence { current } => format!(
                "{quoted} is held under {}, another fencing token than --only-if, and was left alone: somebody else \
                 has it by now, see distlock show",
                current.map_or_else(|| "none".to_owned(), |fence| fence.to_string())
            ),
            Self::NeedsForce(record) => needs_force(record),
        }
    }
}

/// Who would lose the lock, and what to type if they should.
fn needs_force(record: &LockRecord) -> String {
    let held = Held {
        by: record.owner.clone(),
        remaining: record.lock_until.map(|_| record.remaining),
        resting: record.state == LockState::Resting,
    };
    let (under, only_if) = match record.fencing_token {
        Some(fence) => (
            format!(", fencing token {fence}"),
            format!(" --only-if {fence}"),
        ),
        None => Default::default(),
    };
    let name = record.name.as_str();
    format!(
        "{}{under}: left alone. What runs under it would not be stopped. To free it all the same, name the same store \
         and: distlock release --force{only_if} -- {}",
        output::holding(name, &held),
        output::word(name)
    )
}

/// The answer as `--json` shows it. `owner` and `fencing_token` are those of who had the lock or has it, as far as
/// the store said.
#[derive(Serialize)]
struct Json<'a> {
    name: &'a str,
    outcome: &'static str,
    owner: Option<&'a str>,
    fencing_token: Option<u64>,
}

impl<'a> Json<'a> {
    fn new(name: &'a LockName, answer: &'a Answer) -> Self {
        let (outcome, owner, fence) = match answer {
            Answer::Freed { owner } => ("freed", Some(&**owner), None),
            Answer::NotHeld => ("not_held", None, None),
            Answer::OtherFence { current } => ("other_fence", None, *current),
            Answer::NeedsForce(record) => {
                ("needs_force", record.owner.as_deref(), record.fencing_token)
            }
        };
        Self {
            name: name.as_str(),
            outcome,
            owner,
            fencing_token: fence.map(|fence| fence.value()),
        }
    }
}
