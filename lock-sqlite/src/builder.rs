use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use distlock_api::{Error, ErrorKind, Operation, Result, options};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqlitePool};

use crate::backend::{NAME, SqliteBackend};
use crate::clock::Clock;
use crate::schema::{DEFAULT_TABLE, Statements};
use crate::server::{Server, Settings};
use crate::{error, file};

/// How a [`SqliteBackend`] is to be made.
#[must_use = "nothing is made before build()"]
pub struct SqliteBuilder {
    options: Result<SqliteConnectOptions>,
    table: String,
    operation_limit: Duration,
    create: bool,
    shared_file_system: bool,
}

impl SqliteBuilder {
    pub(crate) fn new() -> Self {
        let nothing = "no file is named: call file(), url(), options() or pool()";
        Self {
            options: Err(Error::new(ErrorKind::Config, nothing)),
            table: DEFAULT_TABLE.to_owned(),
            operation_limit: options::OPERATION_LIMIT,
            create: false,
            shared_file_system: false,
        }
    }

    /// The file at this path; a relative path is taken from the present working directory, now and for good.
    pub fn file(self, path: impl AsRef<Path>) -> Self {
        self.options(SqliteConnectOptions::new().filename(path))
    }

    /// The file of a URL: `sqlite:///absolute/path`, `sqlite://relative/path` or `sqlite:path`, with `%` escapes.
    ///
    /// `?mode=rwc` makes the file and its table where they are missing, as [`create`](Self::create) does; `?mode=ro`
    /// can be used for looking only. `lock_table=NAME` is [`table`](Self::table).
    pub fn url(mut self, url: &str) -> Self {
        match split(url) {
            Ok((options, table, create)) => {
                self.table = table.unwrap_or(self.table);
                self.create |= create;
                self.options(options)
            }
            Err(error) => Self {
                options: Err(error),
                ..self
            },
        }
    }

    /// The file of the driver's options, with their pragmas. Whether the file is made is said by
    /// [`create`](Self::create) alone.
    pub fn options(self, options: SqliteConnectOptions) -> Self {
        Self {
            options: Ok(options),
            ..self
        }
    }

    /// The file that a pool of yours is connected to. Only its options are taken: the locks have a connection of
    /// their own, and never wait for the pool.
    pub fn pool(self, pool: &SqlitePool) -> Self {
        self.options(SqliteConnectOptions::clone(&pool.connect_options()))
    }

    /// The table that holds the locks: [`DEFAULT_TABLE`] where none is named.
    pub fn table(self, table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            ..self
        }
    }

    /// How long one call may take, 5 s by default; 10 ms to 1 hour. Four fifths of it are given to wait for others
    /// who write to the file.
    pub fn operation_limit(self, limit: Duration) -> Self {
        Self {
            operation_limit: limit,
            ..self
        }
    }

    /// Whether the first call makes the file and its table where they are missing (not the file's folder).
    ///
    /// Off by default: a path with a typo in it must be an error, and not a second world of locks.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Whether a file system may be used that other machines can mount too: NFS, SMB, 9P, FUSE and their like.
    ///
    /// Off by default. Turn it on only where you know that no other machine uses the file, and that the file system
    /// locks files between the processes of this one.
    pub fn shared_file_system(self, allow: bool) -> Self {
        Self {
            shared_file_system: allow,
            ..self
        }
    }

    /// The backend. The file is opened by the first call that needs it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] where no file, or no plain file, or no good table name was given,
    /// [`ErrorKind::InvalidOption`] for a limit out of range, [`ErrorKind::Unsupported`] where the system does not
    /// tell one boot from another.
    pub fn build(self) -> Result<SqliteBackend> {
        self.try_build()
            .map_err(|e| e.during(NAME, Operation::Connect))
    }

    fn try_build(self) -> Result<SqliteBackend> {
        let options = self.options?;
        let range = Duration::from_millis(10)..=Duration::from_secs(3600);
        if !range.contains(&self.operation_limit) {
            let message = format!(
                "an operation limit of {:?} is out of range: 10 ms to 1 h",
                self.operation_limit
            );
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let settings = Settings {
            path: check_options(&options)?,
            options,
            operation_limit: self.operation_limit,
            create: self.create,
            not_local: match self.shared_file_system {
                true => |_| None,
                false => file::shared_by_machines,
            },
        };
        Ok(SqliteBackend {
            server: Server::new(settings, Statements::new(&self.table)?),
            clock: Clock::new()?,
        })
    }
}

/// Without the driver's options: they may hold the key of an encrypted file.
impl fmt::Debug for SqliteBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBuilder")
            .field(
                "path",
                &self
                    .options
                    .as_ref()
                    .map(SqliteConnectOptions::get_filename),
            )
            .field("table", &self.table)
            .field("operation_limit", &self.operation_limit)
            .field("create", &self.create)
            .field("shared_file_system", &self.shared_file_system)
            .finish()
    }
}

/// Options of a URL or of the user's own, with what would break locks refused.
fn check_options(options: &SqliteConnectOptions) -> Result<PathBuf> {
    // The path is none of the question, and not every path fits into a URL.
    let url = options.clone().filename("/").to_url_lossy();
    let has = |key: &str, value: &str| {
        url.query_pairs()
            .any(|(k, v)| k == key && (value.is_empty() || v == value))
    };
    if has("mode", "memory") {
        return Err(file::in_memory());
    }
    for (key, why) in [
        ("immutable", "an immutable file takes no locks"),
        (
            "vfs",
            "another VFS may not lock the file as other processes do",
        ),
    ] {
        if has(key, "") {
            return Err(Error::new(
                ErrorKind::Config,
                format!("{why}: leave {key} out"),
            ));
        }
    }
    file::absolute(options.get_filename())
}

/// Whether it looks like the URL of a server with a user, whose password may be anywhere before the last @.
fn has_user(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix("//") else {
        return false;
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.contains('@') || authority.contains(':') && rest.contains('@')
}

/// Our own parameters of a URL, and what is left for the driver, which refuses what it does not know.
fn split(url: &str) -> Result<(SqliteConnectOptions, Option<String>, bool)> {
    let Some(rest) = url.strip_prefix("sqlite:") else {
        return Err(Error::new(
            ErrorKind::Config,
            "the URL does not begin with sqlite:, as in sqlite:///path/to/locks.db",
        ));
    };
    if has_user(rest) {
        return Err(Error::new(
            ErrorKind::Config,
            "the SQLite URL has a user before an @, as those of servers have: check the scheme, or write %40 for an @ in \
             the path",
        ));
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (ours, theirs): (Vec<_>, Vec<_>) = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .partition(|pair| pair.starts_with("lock_table="));
    let table = ours
        .last()
        .and_then(|pair| pair.split_once('='))
        .map(|(_, table)| table.to_owned());
    let create = theirs.contains(&"mode=rwc");
    let options = SqliteConnectOptions::from_str(&format!("sqlite:{path}?{}", theirs.join("&")));
    Ok((options.map_err(error::of)?, table, create))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_file_the_table_and_whether_to_make_it() {
        for (url, path, table, create) in [
            ("sqlite:///var/a.db", "/var/a.db", None, false),
            ("sqlite://a/b.db", "a/b.db", None, false),
            ("sqlite:a%20b%3F.db?mode=rwc", "a b?.db", None, true),
            ("sqlite:///u:v/a@b.db", "/u:v/a@b.db", None, false),
            ("sqlite://a/b@c.db", "a/b@c.db", None, false),
            ("sqlite://a%40b.db", "a@b.db", None, false),
            ("sqlite:a.db?lock_table=t&mode=rw", "a.db", Some("t"), false),
        ] {
            let (options, found, made) = split(url).unwrap();
            assert_eq!(options.get_filename(), Path::new(path), "{url}");
            assert_eq!((found.as_deref(), made), (table, create), "{url}");
        }
    }

    #[test]
    fn what_a_url_may_not_say_is_refused_with_the_reason() {
        for (url, reason) in [
            ("postgres://x", "does not begin with sqlite:"),
            ("sqlite:", "the path of the file is missing"),
            ("sqlite://", "the path of the file is missing"),
            ("sqlite::memory:", "use memory:"),
            ("sqlite://:memory:", "use memory:"),
            ("sqlite:a.db?mode=memory", "use memory:"),
            ("sqlite:a.db?mode=x", "unknown value"),
            ("sqlite:a.db?lock_tabel=t", "unknown query parameter"),
            ("sqlite:a.db?lock_schema=s", "unknown query parameter"),
            ("sqlite:a.db?lock_table=a%20b", "table name"),
            ("sqlite:a.db?lock_table=", "table name"),
            ("sqlite:a.db?immutable=1", "immutable"),
            ("sqlite:a.db?vfs=unix-none", "vfs"),
        ] {
            let error = SqliteBackend::builder().url(url).build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn what_may_be_the_password_of_a_server_is_refused_and_not_shown() {
        for url in [
            "sqlite://u:canary@h/db",
            "sqlite://canary@h",
            "sqlite://u:can/canary@h/db",
            "sqlite://u:can?canary@h/db",
            "sqlite://u:can#canary@h/db",
        ] {
            let error = SqliteBackend::builder().url(url).build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            let text = format!("{error}{error:?}");
            assert!(text.contains("check the scheme"), "{text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }

    #[test]
    fn the_key_of_an_encrypted_file_is_not_shown() {
        let options = SqliteConnectOptions::new()
            .filename("a.db")
            .pragma("key", "SECRET");
        let builder = SqliteBackend::builder().options(options);
        assert!(!format!("{builder:?}").contains("SECRET"));
        let backend = builder.build().unwrap();
        assert!(!format!("{backend:?}").contains("SECRET"));
    }

    #[test]
    fn a_limit_out_of_range_is_refused() {
        for limit in [Duration::ZERO, Duration::from_millis(9), Duration::MAX] {
            let builder = SqliteBackend::builder().file("a.db").operation_limit(limit);
            assert_eq!(
                builder.build().unwrap_err().kind(),
                ErrorKind::InvalidOption
            );
        }
    }
}
