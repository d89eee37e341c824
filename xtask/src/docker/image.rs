//! The images of the servers: the official one where a registry answers, else one made from Debian's packages.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;
use tokio::process::Command;
use tokio::time::timeout;

use super::docker;
use crate::command::run;
use crate::progress::{Stopwatch, say};
use crate::servers::kind::Kind;
use distlock_test_servers::programs;

/// One version of a server.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) kind: Kind,
    pub(crate) software: &'static str,
    pub(crate) version: &'static str,
    /// `None`: there is no image that its makers keep.
    official: Option<&'static str>,
    /// The release of Debian that has this version, and the packages to take.
    suite: &'static str,
    packages: &'static str,
}

/// The first of each kind is the one that is used where nobody asks for another.
pub(crate) const IMAGES: [Image; 13] = [
    postgres("18", "postgres:18", "sid", "postgresql-18"),
    postgres("17", "postgres:17", "trixie", "postgresql-17"),
    postgres("15", "postgres:15", "bookworm", "postgresql-15"),
    postgres("13", "postgres:13", "bullseye", "postgresql-13"),
    redis("redis", "8.0", "redis:8.0", "sid", "redis-server"),
    redis("redis", "7.0", "redis:7.0", "bookworm", "redis-server"),
    redis("valkey", "9.1", "valkey/valkey:9.1", "sid", "valkey-server"),
    redis(
        "valkey",
        "8.1",
        "valkey/valkey:8.1",
        "trixie",
        "valkey-server",
    ),
    mariadb("11.8", "mariadb:11.8", "trixie"),
    mariadb("10.11", "mariadb:10.11", "bookworm"),
    image(
        Kind::Mysql,
        "mysql",
        "9.7",
        Some("mysql:9.7"),
        "sid",
        "mysql-server,tzdata",
    ),
    pgbouncer("1.24", "trixie"),
    pgbouncer("1.18", "bookworm"),
];

const fn postgres(
    version: &'static str,
    official: &'static str,
    suite: &'static str,
    packages: &'static str,
) -> Image {
    image(
        Kind::Postgres,
        "postgres",
        version,
        Some(official),
        suite,
        packages,
    )
}

const fn redis(
    software: &'static str,
    version: &'static str,
    official: &'static str,
    suite: &'static str,
    packages: &'static str,
) -> Image {
    image(
        Kind::Redis,
        software,
        version,
        Some(official),
        suite,
        packages,
    )
}

const fn mariadb(version: &'static str, official: &'static str, suite: &'static str) -> Image {
    image(
        Kind::Mariadb,
        "mariadb",
        version,
        Some(official),
        suite,
        "mariadb-server,tzdata",
    )
}

const fn pgbouncer(version: &'static str, suite: &'static str) -> Image {
    image(
        Kind::Pgbouncer,
        "pgbouncer",
        version,
        None,
        suite,
        "pgbouncer",
    )
}

const fn image(
    kind: Kind,
    software: &'static str,
    version: &'static str,
    official: Option<&'static str>,
    suite: &'static str,
    packages: &'static str,
) -> Image {
    Image {
        kind,
        software,
        version,
        official,
        suite,
        packages,
    }
}

/// A pull takes as long as the network is slow; a registry that does not answer says so sooner.
const PULL_LIMIT: Duration = Duration::from_secs(600);

impl Image {
    /// The one that is used where nobody asks for another.
    pub(crate) fn usual(kind: Kind) -> &'static Self {
        let mut images = IMAGES.iter();
        images
            .find(|image| image.kind == kind)
            .expect("every kind has an image")
    }

    /// `mysql-9.7`
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.software, self.version)
    }

    /// The image's `NAME:TAG`, once it is there: kept from before, pulled or made.
    pub(crate) async fn obtain(&self) -> Result<String> {
        let own = format!("distlock-test/{}:{}", self.software, self.version);
        for name in [Some(own.as_str()), self.official].into_iter().flatten() {
            if is_there(name) {
                return Ok(name.to_owned());
            }
        }
        if let Some(official) = self.official
            && pulled(official).await
        {
            return Ok(official.to_owned());
        }
        let base = format!("debian:{}-slim", self.suite);
        if is_there(&base) || pulled(&base).await {
            self.build(&base, &own).await?;
        } else {
            self.bootstrap(&own).await?;
        }
        Ok(own)
    }

    /// On Debian's own image.
    async fn build(&self, base: &str, own: &str) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let packages = self.packages.replace(',', " ");
        let steps = format!(
            "FROM {base}\n\
             RUN apt-get update \\\n\
             && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {packages} \\\n\
             && rm -rf /var/lib/apt/lists/*\n"
        );
        std::fs::write(folder.path().join("Dockerfile"), steps)?;
        let mut build = Command::new("docker");
        build
            .args(["build", "--quiet", "--tag", own])
            .arg(folder.path());
        // stdout is for the tests' output.
        run(build.stdout(std::io::stderr())).await
    }

    /// From nothing but a mirror of Debian's packages.
    async fn bootstrap(&self, own: &str) -> Result<()> {
        let program = programs::find("debootstrap");
        let name = self.name();
        ensure!(
            Uid::effective().is_root(),
            "no registry has the image of {name}, and only root can make it from Debian's packages"
        );
        let program = program.with_context(|| {
            format!(
                "no registry has the image of {name}, and to make it from Debian's packages \
                 debootstrap is missing: apt-get install debootstrap"
            )
        })?;
        let since = Stopwatch::start();
        let folder = tempfile::Builder::new()
            .prefix("distlock-image-")
            .tempdir()?;
        let tree = folder.path().join("tree");
        let mut debootstrap = Command::new(program);
        debootstrap
            .args(["--variant=minbase", &format!("--include={}", self.packages)])
            .arg(self.suite)
            .arg(&tree);
        logged(&mut debootstrap, &folder.path().join("log")).await?;
        import(&tree, own).await?;
        say(format_args!("made the image {own} in {since}"));
        Ok(())
    }
}

fn is_there(name: &str) -> bool {
    docker(&["image", "inspect", "--format", "{{.Id}}", name]).is_ok()
}

async fn pulled(name: &str) -> bool {
    say(format_args!("docker pull {name}"));
    let mut pull = Command::new("docker");
    pull.args(["pull", "--quiet", name])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    match timeout(PULL_LIMIT, pull.output()).await {
        Ok(Ok(output)) if output.status.success() => true,
        Ok(Ok(output)) => {
            let error = String::from_utf8_lossy(&output.stderr);
            say(format_args!("not pulled: {}", error.trim()));
            false
        }
        Ok(Err(error)) => {
            say(format_args!("not pulled: {error}"));
            false
        }
        Err(_) => {
            say("not pulled: it takes too long");
            false
        }
    }
}

/// What it prints is shown only when it fails: it tells of every package.
async fn logged(command: &mut Command, log: &Path) -> Result<()> {
    let output = std::fs::File::create(log)?;
    command.stdout(output.try_clone()?).stderr(output);
    if let Err(error) = run(command).await {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        bail!(
            "{error:#}\n{}",
            distlock_test_servers::ready::last_lines(&log)
        );
    }
    Ok(())
}

/// Without the packages' files and lists, which nobody needs again.
async fn import(tree: &Path, name: &str) -> Result<()> {
    let mut import = Command::new("sh");
    import
        .args([
            "-c",
            "tar --create --one-file-system --exclude=./var/cache/apt --exclude=./var/lib/apt/lists \
             --directory=\"$1\" . | docker import - \"$2\" >&2",
            "import",
        ])
        .arg(tree)
        .arg(name);
    run(&mut import).await
}

/// The images of these names; without names the usual ones.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Image>> {
    if names.is_empty() {
        return Ok(Kind::ALL.map(Image::usual).into());
    }
    names.iter().map(|name| by_name(name)).collect()
}

pub(crate) fn by_name(name: &str) -> Result<&'static Image> {
    let mut images = IMAGES.iter();
    images.find(|image| image.name() == name).with_context(|| {
        let names: Vec<_> = IMAGES.iter().map(Image::name).collect();
        format!("no image {name}; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_usual_image() {
        for kind in Kind::ALL {
            assert_eq!(Image::usual(kind).kind, kind);
        }
        assert_eq!(Image::usual(Kind::Mysql).name(), "mysql-9.7");
    }

    #[test]
    fn a_name_means_one_image() {
        let names: std::collections::BTreeSet<_> = IMAGES.iter().map(Image::name).collect();
        assert_eq!(names.len(), IMAGES.len());
        assert_eq!(by_name("valkey-9.1").unwrap().kind, Kind::Redis);
        let error = by_name("valkey-1").unwrap_err().to_string();
        assert!(error.contains("valkey-9.1"), "{error}");
    }
}
