//! The file that holds the locks: where it is, whether it is still there, and on what kind of file system.

use std::io;
use std::path::{Path, PathBuf};

use distlock_api::{Error, ErrorKind, Finding, Result};

use crate::error;

/// The file as one absolute path, whatever the working directory becomes later.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Error::new(
            ErrorKind::Config,
            "the path of the file is missing: sqlite:///path/to/locks.db",
        ));
    }
    if path.as_os_str().as_encoded_bytes().starts_with(b":memory:") {
        return Err(in_memory());
    }
    if path.to_str().is_none() {
        return Err(Error::new(
            ErrorKind::Config,
            "the path of the file is not UTF-8: choose another",
        ));
    }
    std::path::absolute(path).map_err(|error| error::of_io(&error, path).into())
}

pub(crate) fn in_memory() -> Error {
    Error::new(
        ErrorKind::Config,
        "SQLite's databases in memory belong to one connection: use memory: for locks within a process",
    )
}

/// Which file it is. Two paths may name one file, and one path may name another file later.
#[cfg(unix)]
pub(crate) type FileId = (u64, u64);
#[cfg(not(unix))]
pub(crate) type FileId = ();

#[cfg(unix)]
pub(crate) fn id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
pub(crate) fn id(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|_| ())
}

/// What keeps the file from being opened, if the file system can tell.
///
/// The file is asked about and never opened: a file that is closed anywhere in a process loses the locks that SQLite
/// has on it in this process, for the connections of others, too (`fcntl(2)`).
pub(crate) fn obstacle(path: &Path, create: bool) -> Option<Finding> {
    let look = || match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(_) => system::readable(path).and(system::writable_folder(path)),
        Err(missing) if create => system::writable_folder(path).and(Err(missing)),
        Err(missing) => Err(missing),
    };
    look().err().map(|error| error::of_io(&error, path))
}

/// What is there and can hold no locks, but would be opened by SQLite all the same: a pipe, a device.
pub(crate) fn irregular(path: &Path) -> Option<Finding> {
    let found = std::fs::metadata(path).ok()?;
    (!found.is_file() && !found.is_dir()).then(|| {
        let what = format!("{} is no regular file", shown(path));
        Finding::fault(ErrorKind::Config, what, "name another one")
    })
}

/// File systems that other machines can have mounted too, by the magic numbers of statfs(2). Their locks are not to
/// be trusted, and another machine counts its leases in another boot.
const SHARED: [(u32, &str); 14] = [
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x786f_4256, "VirtualBox shared folder"),
    (0x7375_7245, "Coda"),
];

fn shared(magic: u32) -> Option<&'static str> {
    SHARED
        .iter()
        .find(|(known, _)| *known == magic)
        .map(|(_, name)| *name)
}

/// What is wrong with a file that other machines may have, too (`path` itself need not exist, its folder must).
pub(crate) fn shared_by_machines(path: &Path) -> Option<Finding> {
    let magic = system::magic(path).or_else(|| system::magic(path.parent()?))?;
    Some(not_local(path, shared(magic)?))
}

pub(crate) fn not_local(path: &Path, file_system: &str) -> Finding {
    Finding::fault(
        ErrorKind::Config,
        format!(
            "{} is on a file system that other machines may share ({file_system}), where SQLite cannot keep them apart",
            shown(path)
        ),
        "choose a local disk",
    )
}

/// The path in a sentence, on one line.
pub(crate) fn shown(path: &Path) -> String {
    let mut shown = String::new();
    for c in path.to_string_lossy().chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// The path as one word of a shell, on one line.
#[cfg(unix)]
fn word(path: &Path) -> String {
    use std::fmt::Write;
    let path = path.to_string_lossy();
    if path.chars().any(char::is_control) {
        let escaped = path.bytes().fold(String::new(), |mut escaped, byte| {
            match byte {
                b'\'' | b'\\' | 0..0x20 | 0x7f.. => write!(escaped, "\\{byte:03o}"),
                _ => write!(escaped, "{}", char::from(byte)),
            }
            .expect("a string takes it");
            escaped
        });
        return format!("$'{escaped}'");
    }
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    match path.chars().all(is_plain) {
        true => path.into_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// What lets others do to the file what they should not.
#[cfg(unix)]
pub(crate) fn weaknesses(path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(written_by_anybody(path));
    findings.extend(
        path.parent()
            .and_then(|folder| in_a_folder_of_all(path, folder)),
    );
    findings.extend(of_two_names(path));
    findings
}

#[cfg(unix)]
const STICKY: u32 = 0o1000;
#[cfg(unix)]
const OTHERS_WRITE: u32 = 0o002;

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or(0, |found| found.mode())
}

#[cfg(unix)]
fn written_by_anybody(path: &Path) -> Option<Finding> {
    let shown = shown(path);
    (mode(path) & OTHERS_WRITE != 0).then(|| {
        Finding::warning(
            format!("anybody on this machine may write {shown}, and so take or free any lock"),
            format!("chmod o-w {}", word(path)),
        )
    })
}

/// In a folder like /tmp nobody replaces a file of another's, but SQLite takes a `-wal` or `-journal` for its own, whoever
/// made it.
#[cfg(unix)]
fn in_a_folder_of_all(path: &Path, folder: &Path) -> Option<Finding> {
    let shown = shown(path);
    match mode(folder) & (OTHERS_WRITE | STICKY) {
        OTHERS_WRITE => Some(Finding::warning(
            format!("anybody on this machine may put another file in the place of {shown}"),
            format!("chmod o-w {}", word(folder)),
        )),
        mode if mode & OTHERS_WRITE != 0 => Some(Finding::warning(
            format!(
                "anybody on this machine may put a -wal or -journal of theirs beside {shown}, and so change or break it"
            ),
            "choose a file in a folder that only its users may write",
        )),
        _ => None,
    }
}

#[cfg(unix)]
fn of_two_names(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    if !found.is_file() || found.nlink() < 2 {
        return None;
    }
    // Other names are on the same file system, wherever that is mounted.
    let real = std::fs::canonicalize(path).ok()?;
    let is_same = |folder: &&Path| std::fs::metadata(folder).is_ok_and(|f| f.dev() == found.dev());
    let top = real.ancestors().take_while(is_same).last()?;
    Some(Finding::warning(
        format!(
            "{} has another name, by a hard link, and whoever opens it by that one breaks it",
            shown(path)
        ),
        format!(
            "find {} -xdev -samefile {}\n\
             then stop whoever uses the other name, and delete it with the -wal, -shm and -journal beside it",
            word(top),
            word(&real)
        ),
    ))
}

#[cfg(not(unix))]
pub(crate) fn weaknesses(_path: &Path) -> Vec<Finding> {
    Vec::new()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::io;
    use std::path::Path;

    use rustix::fs::{Access, access, statfs};

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a magic number is 32 bits of a long"
    )]
    pub(super) fn magic(path: &Path) -> Option<u32> {
        statfs(path).ok().map(|found| found.f_type as u32)
    }

    pub(super) fn readable(path: &Path) -> io::Result<()> {
        Ok(access(path, Access::READ_OK)?)
    }

    /// SQLite makes files beside the file.
    pub(super) fn writable_folder(path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(folder) => Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?),
            None => Ok(()),
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::io;
    use std::path::Path;

    pub(super) fn magic(_path: &Path) -> Option<u32> {
        None
    }

    pub(super) fn readable(_path: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn writable_folder(_path: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_and_local_ones_are_not() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0x0102_1997, "9P"),
            (0x6573_5546, "FUSE or virtiofs"),
        ] {
            assert_eq!(shared(magic), Some(name));
        }
        // ext4, XFS, btrfs, tmpfs, overlayfs
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(shared(local), None, "{local:x}");
        }
    }

    #[test]
    fn a_file_that_other_machines_may_share_is_a_fault_with_the_way_out() {
        let fault = not_local(Path::new("/mnt/a.db"), "NFS");
        assert_eq!(
            fault.to_string(),
            "/mnt/a.db is on a file system that other machines may share (NFS), where SQLite cannot keep them apart: \
             choose a local disk"
        );
        assert_eq!(fault.severity, distlock_api::Severity::Fault);
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn a_file_that_is_not_there_yet_is_told_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let of_folder = system::magic(folder.path());
        assert!(of_folder.is_some());
        assert!(system::magic(&folder.path().join("new.db")).is_none());
        assert_eq!(shared_by_machines(&folder.path().join("new.db")), None);
    }

    /// The shell of the machine says what a word is.
    #[cfg(unix)]
    #[test]
    fn any_path_is_one_word_of_a_shell_and_one_line() {
        for path in [
            "/srv/locks-1.db",
            "/a b/it's; rm -rf $HOME `x` \"q\" \\ *.db",
            "/new\nline\tü'\\ 1.db",
            "/söme/ö.db",
        ] {
            let word = word(Path::new(path));
            assert!(!word.contains('\n') && !shown(Path::new(path)).contains('\n'));
            let mut shell = std::process::Command::new("bash");
            let echoed = shell.arg("-c").arg(format!("printf %s {word}")).output();
            assert_eq!(String::from_utf8(echoed.unwrap().stdout).unwrap(), path);
        }
    }

    #[test]
    fn paths_become_absolute_and_memory_is_refused() {
        assert!(
            absolute(Path::new("file:x?mode=memory"))
                .unwrap()
                .is_absolute()
        );
        for bad in ["", ":memory:"] {
            assert_eq!(
                absolute(Path::new(bad)).unwrap_err().kind(),
                ErrorKind::Config
            );
        }
    }
}
