//! Where a program is, and which version it says it is.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// On the `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    find_in(&env::var_os("PATH")?, name)
}

/// Also where Debian has servers, which is not on the `PATH` of those who are not root.
pub fn find(name: &str) -> Option<PathBuf> {
    on_path(name).or_else(|| find_in(OsStr::new("/usr/sbin"), name))
}

fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

/// Whether it is a file that can be run.
pub fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A server's version: compared by its first two numbers, shown in full.
#[derive(Debug, PartialEq)]
pub struct Version {
    /// The first two numbers.
    pub numbers: (u32, u32),
    text: String,
}

impl Version {
    /// Asks `program --version`, and refuses one that is older than `oldest`.
    pub fn of(program: &Path, oldest: (u32, u32)) -> Result<Self> {
        let output = Command::new(program)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = Self::parse(&text)
            .with_context(|| format!("{}: no version in {text:?}", program.display()))?;
        ensure!(
            version.numbers >= oldest,
            "{} is version {version}, but {}.{} or newer is needed",
            program.display(),
            oldest.0,
            oldest.1,
        );
        Ok(version)
    }

    /// The first word that is a version: `15.18`, `v=7.0.15`, `18beta1`.
    fn parse(line: &str) -> Option<Self> {
        line.split_whitespace().find_map(|word| {
            let text = word.trim_start_matches("v=");
            let mut parts = text.split('.').map(leading_number);
            let major = parts.next()??;
            let minor = parts.next().flatten().unwrap_or(0);
            Some(Self {
                numbers: (major, minor),
                text: text.to_owned(),
            })
        })
    }
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parsed(line: &str) -> ((u32, u32), String) {
        let version = Version::parse(line).unwrap();
        (version.numbers, version.to_string())
    }

    #[test]
    fn versions_as_servers_print_them() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(parsed(redis), ((7, 0), "7.0.15".to_owned()));
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)";
        assert_eq!(parsed(debian), ((15, 18), "15.18".to_owned()));
        let beta = "postgres (PostgreSQL) 18beta1";
        assert_eq!(parsed(beta), ((18, 0), "18beta1".to_owned()));
    }

    #[test]
    fn no_version_is_none() {
        assert_eq!(Version::parse("command not found"), None);
        assert_eq!(Version::parse(""), None);
    }

    #[test]
    fn only_executables_on_the_path_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server");
        fs::write(&file, "").unwrap();
        assert_eq!(find_in(folder.path().as_os_str(), "server"), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_in(folder.path().as_os_str(), "server"), Some(file));
    }
}
