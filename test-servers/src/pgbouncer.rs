//! A private PgBouncer in transaction mode, in front of the PostgreSQL of the tests: few connections to the server, shared
//! by all clients, so that a test of two clients has them on one session.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use url::Url;

use crate::access;
use crate::account::Account;
use crate::process::tied_to_us;
use crate::programs::{self, Version};
use crate::server::{Plan, free_port};
use crate::{Protocol, Server, Setup, own_folder};

/// SIGINT would wait for the clients.
const STOP: Signal = Signal::SIGTERM;

/// Whether its program is on this machine.
pub fn is_installed() -> bool {
    find().is_some()
}

fn find() -> Option<PathBuf> {
    programs::find("pgbouncer")
}

/// Starts one. `postgres`: the URL of the server behind it. Users and passwords are the same in front and behind.
pub async fn start(postgres: &str, setup: &Setup) -> Result<Server> {
    let program = find().context("pgbouncer is missing")?;
    let version = Version::of(&program, (1, 18))?;
    let upstream = Upstream::parse(postgres)?;
    // Debian's package runs it as this user, too.
    let account = Account::unprivileged("postgres")?;
    let folder = own_folder("pgbouncer")?;
    account.own(folder.path())?;
    let port = free_port()?;

    let users = folder.path().join("users.txt");
    access::write(&users, &upstream.user_list())?;
    account.own(&users)?;
    let settings = folder.path().join("pgbouncer.ini");
    access::write(&settings, &upstream.settings(port, &users))?;
    account.own(&settings)?;

    let mut command = tied_to_us(&program, STOP);
    account.runs(&mut command);
    command.arg(&settings).current_dir(folder.path());
    let plan = Plan {
        name: format!("pgbouncer {version}"),
        command,
        protocol: Protocol::Postgres,
        port,
        url: upstream.url_through("127.0.0.1", port),
        folder,
    };
    plan.start(setup).await
}

/// The server behind, and the one user whose password is known: it looks up the others'.
struct Upstream {
    url: Url,
    host: String,
}

impl Upstream {
    fn parse(postgres: &str) -> Result<Self> {
        let wanted = "PgBouncer is put before a PostgreSQL with a URL like postgres://user:password@host:port/database; \
                      for another name one by DISTLOCK_TEST_PGBOUNCER_URL";
        let url = Url::parse(postgres).context(wanted)?;
        let host = url.host_str().context(wanted)?.to_owned();
        ensure!(url.password().is_some(), wanted);
        Ok(Self { url, host })
    }

    fn settings(&self, port: u16, users: &Path) -> String {
        let folder = users.parent().unwrap_or(users).display();
        let user = decoded(self.url.username());
        format!(
            "[databases]\n\
             * = host={} port={} auth_user={user}\n\
             [pgbouncer]\n\
             {SETTINGS}\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir = {folder}\n\
             auth_file = {}\n\
             admin_users = {user}\n",
            self.host,
            self.url.port().unwrap_or(5432),
            users.display(),
        )
    }

    fn user_list(&self) -> String {
        let password = self.url.password().unwrap_or_default();
        let quoted = |text: &str| format!("\"{}\"", decoded(text).replace('"', "\"\""));
        format!("{} {}\n", quoted(self.url.username()), quoted(password))
    }

    fn url_through(&self, host: &str, port: u16) -> String {
        let mut url = self.url.clone();
        // Both fail for URLs without a host only.
        let _ = url.set_host(Some(host));
        let _ = url.set_port(Some(port));
        url.to_string()
    }
}

/// What does not depend on where it runs. The parameter that is ignored is one that drivers send unasked, and that
/// PgBouncer refuses otherwise.
pub const SETTINGS: &str = "\
pool_mode = transaction
default_pool_size = 3
max_client_conn = 1000
auth_type = scram-sha-256
ignore_startup_parameters = extra_float_digits
";

/// Undoes the URL's `%` escapes. Here a plus sign stands for itself, unlike in a form.
fn decoded(text: &str) -> String {
    let form = format!("x={}", text.replace('+', "%2B"));
    let pairs = url::form_urlencoded::parse(form.as_bytes());
    pairs.map(|(_, value)| value.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "postgres://me:p%40ss+%22word@db.example.org:5433/locks?sslmode=disable";

    #[test]
    fn it_stands_before_the_server_of_the_url() {
        let upstream = Upstream::parse(URL).unwrap();
        let settings = upstream.settings(6432, Path::new("/folder/users.txt"));
        assert!(
            settings.contains("* = host=db.example.org port=5433 auth_user=me\n"),
            "{settings}"
        );
        assert_eq!(upstream.user_list(), "\"me\" \"p@ss+\"\"word\"\n");
        assert_eq!(
            upstream.url_through("127.0.0.1", 6432),
            "postgres://me:p%40ss+%22word@127.0.0.1:6432/locks?sslmode=disable"
        );
    }

    #[test]
    fn a_url_without_host_or_password_is_refused() {
        assert!(Upstream::parse("postgres:///locks").is_err());
        assert!(Upstream::parse("postgres://me@localhost/locks").is_err());
    }
}
