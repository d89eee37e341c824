use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::Args;
use distlock::sqlite::SqliteBackend;
use distlock::{Error, ErrorKind, LockAdmin, clock};

use crate::address::address;
use crate::exit::Failure;
use crate::output::may_be_secret;

/// How long an administrator's command waits for the store.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the first line of a `--store-file` may be, in bytes.
const MAX_LINE: usize = 64 << 10;

/// Which store was asked for. No `Debug`: a URL may carry a password.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The store's URL [default: $DISTLOCK_STORE].
    #[arg(long, value_name = "URL", conflicts_with = "store_file")]
    store: Option<String>,

    /// A file whose first line is the store's URL: for one with a password.
    #[arg(long, value_name = "PATH")]
    store_file: Option<PathBuf>,
}

/// The store that a command works on.
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(crate) enum Store {
    Url(String),
    /// The SQLite file that `run` and `migrate` make.
    Default(PathBuf),
}

impl StoreArgs {
    /// The store by the arguments, the environment, or the default; nothing is touched yet.
    pub(crate) fn resolve(&self) -> Result<Store, Failure> {
        self.resolve_in(|variable| std::env::var_os(variable))
    }

    fn resolve_in(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Store, Failure> {
        if let Some(url) = &self.store {
            return stated(url, "--store");
        }
        if let Some(path) = &self.store_file {
            return stated(&first_line(path, LIMIT)?, "the first line of --store-file");
        }
        if let Some(url) = variable("DISTLOCK_STORE") {
            let url = url.into_string().map_err(|_| {
                Failure::new("DISTLOCK_STORE is not UTF-8: set it to the store's URL")
            })?;
            return stated(&url, "DISTLOCK_STORE");
        }
        if variable("DISTLOCK_NESTED").is_some_and(|nested| nested == "1") {
            return Err(Failure::new(
                "this runs under another distlock, which keeps its store's URL to itself: give --store or --store-file",
            ));
        }
        let folder = absolute(variable("XDG_STATE_HOME"))
            .or_else(|| Some(absolute(variable("HOME"))?.join(".local/state")))
            .ok_or_else(|| Failure::new("no store: give --store, or set DISTLOCK_STORE or HOME"))?;
        Ok(Store::Default(folder.join("distlock/locks.db")))
    }
}

impl Store {
    /// Its URL as it may be shown, without the password; `None` where that may be anywhere.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Self::Url(url) => address(url),
            Self::Default(path) => address(&format!("sqlite://{}", path.display())),
        }
    }

    /// What is to be said before it is used: in a crontab or a pipeline the variable that names a store is easily
    /// missing.
    pub(crate) fn notice(&self) -> Option<String> {
        self.default_file().map(|file| {
            format!(
                "no store was named: using {}, for this user on this machine only",
                file.display()
            )
        })
    }

    /// The file that is used because no store was named.
    fn default_file(&self) -> Option<&Path> {
        match self {
            Self::Url(_) => None,
            Self::Default(path) => Some(path),
        }
    }

    /// Whether it is the default file and has yet to be made.
    pub(crate) fn is_new(&self) -> bool {
        let file = self.default_file();
        file.is_some_and(|file| matches!(file.try_exists(), Ok(false)))
    }

    /// Refuses a default file that does not exist: whoever asks for what is in it has most likely lost the variable that
    /// names the store, and an empty file would be no answer.
    pub(crate) fn must_exist(self) -> Result<Self, Failure> {
        match &self {
            Self::Default(path) if self.is_new() => Err(Failure::new(format!(
                "no store was named, and there is no {} yet, which run and migrate make: give --store, or set DISTLOCK_STORE",
                path.display()
            ))),
            _ => Ok(self),
        }
    }

    /// The store, connected to but not checked; the default file is made.
    pub(crate) async fn open_or_make(&self) -> Result<Arc<dyn LockAdmin>, Failure> {
        if let Self::Default(path) = self {
            make_folder(path)?;
        }
        self.connect(true).await
    }

    /// The store, connected to but not checked.
    pub(crate) async fn open(&self) -> Result<Arc<dyn LockAdmin>, Failure> {
        self.connect(false).await
    }

    async fn connect(&self, create: bool) -> Result<Arc<dyn LockAdmin>, Failure> {
        match self {
            Self::Url(url) => Ok(limited(distlock::open(url)).await?),
            Self::Default(path) => {
                let builder = SqliteBackend::builder().file(path);
                Ok(Arc::new(builder.create(create).build()?))
            }
        }
    }
}

/// The result of an operation on the store, waited for as long as a person at a terminal would.
pub(crate) async fn limited<T>(
    operation: impl Future<Output = distlock::Result<T>>,
) -> distlock::Result<T> {
    let result = clock::timeout(LIMIT, operation).await;
    result.unwrap_or_else(|| {
        let seconds = LIMIT.as_secs();
        let text = format!(
            "no answer from the store within {seconds} s: check that it runs and can be reached"
        );
        Err(Error::new(ErrorKind::Timeout, text))
    })
}

/// Makes the file's folder, for this user alone.
fn make_folder(file: &Path) -> Result<(), Failure> {
    let Some(folder) = file.parent() else {
        return Ok(());
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| {
        let folder = folder.display();
        Failure::new(format!(
            "cannot make the folder {folder}: {error}; give --store"
        ))
    })
}

fn stated(url: &str, source: &str) -> Result<Store, Failure> {
    match url.trim() {
        "" => Err(Failure::new(format!(
            "{source} is empty: give the store's URL there, or leave it out"
        ))),
        url => Ok(Store::Url(url.to_owned())),
    }
}

fn first_line(path: &Path, limit: Duration) -> Result<String, Failure> {
    let (sender, receiver) = channel();
    let file = path.to_owned();
    // Beside us, because a pipe that nobody writes to would hold us for ever.
    std::thread::spawn(move || sender.send(read_first_line(&file)));
    let read = receiver.recv_timeout(limit).unwrap_or_else(|_| {
        let seconds = limit.as_secs();
        Err(io::Error::other(format!("nothing within {seconds} s")))
    });
    read.map_err(|error| {
        let path = path.display().to_string();
        Failure::new(match may_be_secret(&path) {
            true => format!("cannot read --store-file: {error}; give a path; URLs go to --store"),
            false => format!("cannot read --store-file {path}: {error}"),
        })
    })
}

/// Nothing is read behind the line: it may be of any kind and length, or still be written.
fn read_first_line(path: &Path) -> io::Result<String> {
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    BufReader::new(File::open(path)?.take(most)).read_until(b'\n', &mut line)?;
    if line.len() == MAX_LINE && !line.ends_with(b"\n") {
        return Err(io::Error::other("its first line has no end within 64 KiB"));
    }
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
    let line = std::str::from_utf8(line);
    let line = line.map_err(|_| io::Error::other("its first line is not UTF-8"))?;
    Ok(line.to_owned())
}

/// A folder from the environment; what is not absolute does not count, as the XDG specification says.
fn absolute(variable: Option<OsString>) -> Option<PathBuf> {
    variable
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(store: Option<&str>, environment: &[(&str, &str)]) -> Result<Store, String> {
        let args = StoreArgs {
            store: store.map(str::to_owned),
            store_file: None,
        };
        let find = |variable: &str| {
            let found = environment.iter().find(|(name, _)| *name == variable);
            found.map(|(_, value)| OsString::from(value))
        };
        args.resolve_in(find).map_err(|failure| failure.text)
    }

    fn is_url(store: Result<Store, String>, url: &str) -> bool {
        store == Ok(Store::Url(url.to_owned()))
    }

    fn is_default(store: Result<Store, String>, path: &str) -> bool {
        store == Ok(Store::Default(path.into()))
    }

    #[test]
    fn the_argument_wins_over_the_environment() {
        let environment = [("DISTLOCK_STORE", "redis://b")];
        assert!(is_url(
            resolve(Some("redis://a"), &environment),
            "redis://a"
        ));
        assert!(is_url(resolve(None, &environment), "redis://b"));
    }

    #[test]
    fn the_default_is_a_file_in_the_state_folder() {
        let state = [("XDG_STATE_HOME", "/s"), ("HOME", "/h")];
        assert!(is_default(resolve(None, &state), "/s/distlock/locks.db"));
        let relative = [("XDG_STATE_HOME", "s"), ("HOME", "/h")];
        let home = "/h/.local/state/distlock/locks.db";
        assert!(is_default(resolve(None, &relative), home));
        assert!(resolve(None, &[]).err().unwrap().contains("give --store"));
    }

    #[test]
    fn an_empty_store_is_not_taken_for_the_default() {
        for store in [Some(""), Some("  ")] {
            assert!(resolve(store, &[]).err().unwrap().contains("is empty"));
        }
        let environment = [("DISTLOCK_STORE", ""), ("HOME", "/h")];
        assert!(
            resolve(None, &environment)
                .err()
                .unwrap()
                .contains("is empty")
        );
    }

    #[test]
    fn a_nested_run_needs_a_store_of_its_own() {
        let nested = [("DISTLOCK_NESTED", "1"), ("HOME", "/h")];
        assert!(
            resolve(None, &nested)
                .err()
                .unwrap()
                .contains("another distlock")
        );
        assert!(is_url(resolve(Some("memory:"), &nested), "memory:"));
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_not_waited_for_longer_than_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mut mkfifo = std::process::Command::new("mkfifo");
        assert!(mkfifo.arg(&pipe).status().unwrap().success());
        let read = first_line(&pipe, Duration::from_millis(50));
        let text = read.err().unwrap().text;
        assert!(text.contains("cannot read --store-file"), "{text}");
        assert!(text.contains("nothing within"), "{text}");
    }
}
