//! What contenders for one lock saw, each in a process of its own, and whether it can have been right.
//!
//! Every contender appends events to a file as they happen, so that those of a process that is killed stay. The times
//! are of the boot clock, which all processes of a machine share.

mod checker;
mod contest;
mod counter;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use distlock_api::clock;
use serde::{Deserialize, Serialize};

pub(crate) use checker::{grants, violations};
pub(crate) use contest::{Contest, contend};

/// How long a contest lasts: `DISTLOCK_TORTURE_SECONDS`, or 6 s.
pub(crate) fn length() -> Duration {
    let seconds = std::env::var("DISTLOCK_TORTURE_SECONDS");
    let seconds = seconds.ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(6))
}

/// Something that a contender did, or was told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// On the boot clock.
    pub(crate) at: Duration,
    /// Which process.
    pub(crate) by: u32,
    /// Which of its acquisitions.
    pub(crate) acquisition: u32,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// An acquisition is about to leave.
    Asked,
    Acquired {
        fence: u64,
    },
    Refused,
    /// The attempt ended in an error.
    Failed(String),
    /// The holder looked and its lock was valid. The time is from before it looked.
    Valid,
    /// The holder was told that its lock is lost.
    Lost(String),
    /// The holder wrote under its lock, and the fenced resource took it.
    Wrote {
        value: u64,
    },
    /// The fenced resource refused the holder.
    Stale,
    /// A release is about to leave, by the guard or its drop.
    Releasing,
    /// The release's answer, or its error.
    Released(String),
}

/// The file in which one process records what it sees.
pub(crate) struct Recorder {
    file: File,
    by: u32,
    acquisition: u32,
}

impl Recorder {
    pub(crate) fn new(folder: &Path, by: u32) -> io::Result<Self> {
        Ok(Self {
            file: File::create(folder.join(format!("{by}.jsonl")))?,
            by,
            acquisition: 0,
        })
    }

    fn begin(&mut self) -> io::Result<()> {
        self.acquisition += 1;
        self.record(What::Asked)
    }

    fn record(&mut self, what: What) -> io::Result<()> {
        self.record_at(clock::boot_time(), what)
    }

    fn record_at(&mut self, at: Duration, what: What) -> io::Result<()> {
        let event = Event {
            at,
            by: self.by,
            acquisition: self.acquisition,
            what,
        };
        let mut line = serde_json::to_string(&event)?;
        line.push('\n');
        // One write: a process that is killed leaves whole lines, or no line.
        self.file.write_all(line.as_bytes())
    }
}

/// Everything that was recorded in a folder, in the order in which it happened.
pub(crate) fn read(folder: &Path) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            for line in std::fs::read_to_string(path)?.lines() {
                events.push(serde_json::from_str::<Event>(line)?);
            }
        }
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}
