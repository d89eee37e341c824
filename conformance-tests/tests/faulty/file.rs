//! Records in files, one per lock, each under a file lock while somebody looks at it or changes it.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Result, Seek, Write};
use std::path::{Path, PathBuf};

use distlock_api::{LockName, LockState, Token};

/// What is known of one lock. Times are microseconds of the clock since the machine started.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: LockName,
    pub(crate) until: u64,
    pub(crate) locked_at: u64,
    pub(crate) owner: String,
    pub(crate) token: Token,
    pub(crate) fence: u64,
    pub(crate) last_tick: Option<i64>,
    pub(crate) resting: bool,
    /// The client that it was granted to.
    pub(crate) client: u64,
}

/// The file of one lock, locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Entry {
    file: File,
    pub(crate) record: Option<Record>,
}

impl Entry {
    pub(crate) fn open(folder: &Path, key: &str) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self::at(&folder.join(format!("{:016x}", hasher.finish())), true)
    }

    fn at(path: &Path, create: bool) -> Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(create).open(path)?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let record = Record::read(&text);
        Ok(Self { file, record })
    }

    /// Lets others at it meanwhile, as a store without transactions does.
    pub(crate) fn lend(&self) -> Result<()> {
        self.file.unlock()?;
        std::thread::yield_now();
        self.file.lock()
    }

    /// Writes the record, or that there is none.
    pub(crate) fn save(mut self) -> Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        let text = self.record.as_ref().map_or(String::new(), Record::write);
        self.file.write_all(text.as_bytes())
    }
}

/// All locks of which something is known.
pub(crate) fn entries(folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder)? {
        let path: PathBuf = file?.path();
        let entry = Entry::at(&path, false)?;
        if entry.record.is_some() {
            entries.push(entry);
        }
    }
    Ok(entries)
}

impl Record {
    pub(crate) fn state(&self, now: u64) -> LockState {
        match (self.until > now, self.resting) {
            (false, _) => LockState::Free,
            (true, true) => LockState::Resting,
            (true, false) => LockState::Held,
        }
    }

    fn write(&self) -> String {
        let token = u128::from_be_bytes(*self.token.as_bytes());
        let tick = self
            .last_tick
            .map_or("-".to_owned(), |tick| tick.to_string());
        format!(
            "{}\t{}\t{}\t{}\t{token:032x}\t{}\t{tick}\t{}\t{}",
            self.name,
            self.until,
            self.locked_at,
            self.owner,
            self.fence,
            self.resting,
            self.client
        )
    }

    fn read(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('\t').collect();
        let [
            name,
            until,
            locked_at,
            owner,
            token,
            fence,
            tick,
            resting,
            client,
        ] = *fields
        else {
            return None;
        };
        Some(Self {
            name: LockName::new(name).unwrap(),
            until: until.parse().unwrap(),
            locked_at: locked_at.parse().unwrap(),
            owner: owner.to_owned(),
            token: Token::from_bytes(u128::from_str_radix(token, 16).unwrap().to_be_bytes()),
            fence: fence.parse().unwrap(),
            last_tick: (tick != "-").then(|| tick.parse().unwrap()),
            resting: resting.parse().unwrap(),
            client: client.parse().unwrap(),
        })
    }
}
