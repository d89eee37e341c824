//! What SQLite and the driver say, as this family's errors.

use std::io;
use std::path::Path;

use distlock_api::{Effect, Error, ErrorKind, Finding};

use crate::{file, schema};

/// One line of the table: the primary result code, what it means, whether it may have been done, what is wrong, what to
/// do about it.
type Line = (i32, ErrorKind, Effect, &'static str, &'static str);

/// <https://www.sqlite.org/rescode.html>. An error of a statement undoes its whole transaction, because the connection
/// is closed; only a write that failed at the disk may come back in a later recovery.
#[rustfmt::skip]
const TABLE: [Line; 22] = {
    use Effect::{None, Unknown};
    use ErrorKind::{Config, Denied, ReadOnly, Timeout, Unavailable, Unexpected};
    [
        (1, Config, None, "a statement does not fit the file", "see whether the table is another program's"),
        (2, Unexpected, None, "SQLite failed in itself", "report it"),
        (3, Denied, None, "the file may not be used", "give this user the right to"),
        (4, Unavailable, None, "the statement was aborted", "try again"),
        (5, Timeout, None, "another process kept the file locked for writing", "keep write transactions short"),
        (6, Timeout, None, "another connection kept the table locked", "keep transactions short"),
        (7, Unavailable, None, "no memory is left", "free some"),
        (8, ReadOnly, None, "the file cannot be written", "give this user the right to write it, the -wal and -shm beside it and their folder, and leave mode=ro out"),
        (9, Unavailable, None, "the statement was interrupted", "try again"),
        (10, Unavailable, Unknown, "the disk failed, or is full", "see the system's log"),
        (11, Config, None, "the file is damaged", "restore it, or move it away and migrate again"),
        (13, Unavailable, None, "the disk is full", "free some of it"),
        (14, Config, None, "the file, or its -wal and -shm beside it, cannot be opened", "their folder must be writable too, and the process must have file descriptors left"),
        (15, Timeout, None, "other processes kept the write-ahead log busy", "keep transactions short"),
        (17, Unavailable, None, "the table was changed just now", "try again"),
        (19, Config, None, "the table has a constraint that is not ours", "rename it, and make it anew with `distlock migrate`"),
        (20, Config, None, "the table has a column of another type", "compare it with `distlock schema --for sqlite`"),
        (21, Unexpected, None, "the driver misused SQLite", "report it"),
        (22, Config, None, "the system cannot handle a file of this size", "choose another file"),
        (23, Denied, None, "the statement is not allowed", "allow it"),
        (24, Config, None, "the file has an unknown format", "choose another file"),
        (26, Config, None, "the file is no SQLite database, or an encrypted one", "choose another file"),
    ]
};

/// Others are at work in the file, which is well itself.
const IN_THE_WAY: [i32; 4] = [5, 6, 15, 17];

/// The table refuses a lock, or what it is made of.
const CONSTRAINT: i32 = 19;
const MISMATCH: i32 = 20;

/// The file was moved away under an open connection: the next call opens the path anew.
const READONLY_DBMOVED: i32 = 8 | (4 << 8);

/// The driver's error as ours.
pub(crate) fn of(error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().and_then(|code| code.parse().ok());
            of_code(code.unwrap_or(0), database.message())
        }
        sqlx::Error::ColumnDecode { .. } => {
            let message = "a record was changed by hand to another type: delete it";
            Error::new(ErrorKind::Config, message).with_source(error)
        }
        sqlx::Error::Configuration(_) => {
            Error::new(ErrorKind::Config, "these options are no good").with_source(error)
        }
        sqlx::Error::Io(_) => Error::new(ErrorKind::Unavailable, "the file could not be opened")
            .with_effect(Effect::None)
            .with_source(error),
        _ => Error::new(ErrorKind::Unexpected, "the driver failed").with_source(error),
    }
}

fn of_code(code: i32, text: &str) -> Error {
    if code == READONLY_DBMOVED {
        return Error::new(
            ErrorKind::Unavailable,
            "the file was moved away in the middle of a statement: try again",
        )
        .with_effect(Effect::None);
    }
    if code == 1 && text.starts_with("no such table") {
        return Error::new(
            ErrorKind::SchemaMissing,
            "the table is gone: run `distlock migrate --store URL`, or call migrate()",
        )
        .with_source(text.to_owned());
    }
    let (primary, kind, effect, what, fix) = line(code);
    let error = Error::new(kind, format!("{what}: {fix}"))
        .with_effect(effect)
        .with_source(format!("{text} (code {code})"));
    match IN_THE_WAY.contains(&primary) {
        true => error.with_store_up(),
        false => error,
    }
}

fn line(code: i32) -> Line {
    let line = |(primary, ..): &Line| *primary == code & 0xff;
    TABLE.into_iter().find(line).unwrap_or((
        code,
        ErrorKind::Unexpected,
        Effect::Unknown,
        "SQLite said something unknown",
        "look the code up",
    ))
}

/// What a check makes of the driver's error about this table, if somebody has to mend what is behind it.
pub(crate) fn fault(error: &sqlx::Error, table: &str) -> Option<Finding> {
    let sqlx::Error::Database(database) = error else {
        return None;
    };
    let code = database.code()?.parse().ok()?;
    let (_, kind, _, what, fix) = line(code);
    let is_lasting = matches!(
        kind,
        ErrorKind::Config | ErrorKind::Denied | ErrorKind::ReadOnly
    );
    let text = database.message();
    let fix = match code & 0xff {
        CONSTRAINT | MISMATCH => schema::anew(table),
        _ => fix.to_owned(),
    };
    is_lasting.then(|| Finding::fault(kind, format!("{what} ({text}, code {code})"), fix))
}

/// Why the file could not be opened, where the file system says more than SQLite's "unable to open database file".
pub(crate) fn opening(error: sqlx::Error, path: &Path, create: bool) -> Error {
    let error = of(error);
    if error.kind() != ErrorKind::Config && error.kind() != ErrorKind::Unavailable {
        return error;
    }
    file::obstacle(path, create).map_or(error, Error::from)
}

/// The file system's complaint about the file or its folder.
pub(crate) fn of_io(error: &io::Error, path: &Path) -> Finding {
    let shown = file::shown(path);
    let (kind, what, fix) = match error.kind() {
        io::ErrorKind::NotFound if path.is_symlink() => (
            ErrorKind::Config,
            format!("{shown} is a symbolic link that leads to nothing"),
            "correct it; or see that it leads into a folder, and run `distlock migrate --store URL`",
        ),
        io::ErrorKind::NotFound if path.parent().is_some_and(Path::is_dir) => (
            ErrorKind::Config,
            format!("there is no file {shown}"),
            "make it with `distlock migrate --store URL`, or add ?mode=rwc to the URL",
        ),
        io::ErrorKind::NotFound => (
            ErrorKind::Config,
            format!("the folder of {shown} does not exist"),
            "make it",
        ),
        io::ErrorKind::PermissionDenied => (
            ErrorKind::Denied,
            format!("{shown} may not be opened"),
            "give this user the right to read and write it and its folder",
        ),
        io::ErrorKind::IsADirectory => (
            ErrorKind::Config,
            format!("{shown} is a directory"),
            "name a file in it",
        ),
        io::ErrorKind::ReadOnlyFilesystem => (
            ErrorKind::ReadOnly,
            format!("{shown} is on a file system that is mounted read-only"),
            "choose another file",
        ),
        _ => (
            ErrorKind::Config,
            format!("{shown} cannot be opened ({error})"),
            "choose another file",
        ),
    };
    Finding::fault(kind, what, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_a_timeout_that_changed_nothing_and_may_be_tried_again() {
        for code in [5, 6, 15, 5 | (1 << 8), 5 | (2 << 8)] {
            let error = of_code(code, "database is locked");
            assert_eq!(
                (error.kind(), error.effect()),
                (ErrorKind::Timeout, Effect::None),
                "{code}"
            );
            assert!(error.is_retryable());
        }
    }

    #[test]
    fn extended_codes_are_told_by_their_primary_code() {
        for (code, kind) in [
            (8 | (1 << 8), ErrorKind::ReadOnly),
            (READONLY_DBMOVED, ErrorKind::Unavailable),
            (10 | (6 << 8), ErrorKind::Unavailable),
            (11 | (1 << 8), ErrorKind::Config),
            (13, ErrorKind::Unavailable),
            (23, ErrorKind::Denied),
            (26, ErrorKind::Config),
            (99, ErrorKind::Unexpected),
        ] {
            assert_eq!(of_code(code, "").kind(), kind, "{code}");
        }
    }

    #[test]
    fn only_a_failing_disk_and_the_unknown_leave_the_effect_open() {
        for (code, ..) in TABLE {
            let unknown = of_code(code, "").effect() == Effect::Unknown;
            assert_eq!(unknown, code == 10, "{code}");
        }
        assert_eq!(of_code(99, "").effect(), Effect::Unknown);
    }

    #[test]
    fn a_missing_table_is_no_bad_statement() {
        assert_eq!(
            of_code(1, "no such table: x").kind(),
            ErrorKind::SchemaMissing
        );
        assert_eq!(of_code(1, "no such column: x").kind(), ErrorKind::Config);
    }
}
