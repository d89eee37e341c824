//! What the tests of the program share: the program itself, stores to run it on, and what came of a run.

#![allow(dead_code, reason = "no test file uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use distlock::clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};

/// How long anything may take that should happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program, without anything of the environment that would change what it does.
pub(crate) fn distlock() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_distlock")))
}

/// The program on a machine whose wall clock is an hour ahead.
pub(crate) fn distlock_an_hour_ahead() -> Command {
    let mut command = Command::new("faketime");
    command
        .args(["--exclude-monotonic", "-f", "+1h"])
        .arg(env!("CARGO_BIN_EXE_distlock"));
    clean(command)
}

pub(crate) fn clean(mut command: Command) -> Command {
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("DISTLOCK_") {
            command.env_remove(variable);
        }
    }
    command.stdin(Stdio::null()).env_remove("XDG_STATE_HOME");
    command
}

/// A store with its table, and a folder for what a test writes.
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) folder: TempDir,
}

impl Store {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("locks.db").display());
        Self::migrated(url, folder)
    }

    pub(crate) fn postgres() -> Self {
        Self::server("DISTLOCK_TEST_POSTGRES_URL")
    }

    pub(crate) fn redis() -> Self {
        Self::server("DISTLOCK_TEST_REDIS_URL")
    }

    pub(crate) fn mysql() -> Self {
        Self::server("DISTLOCK_TEST_MYSQL_URL")
    }

    pub(crate) fn mariadb() -> Self {
        Self::server("DISTLOCK_TEST_MARIADB_URL")
    }

    fn server(variable: &str) -> Self {
        let url = server_url(variable);
        Self::migrated(url, tempfile::tempdir().unwrap())
    }

    fn migrated(url: String, folder: TempDir) -> Self {
        let migrated = finish(distlock().arg("migrate").env("DISTLOCK_STORE", &url));
        assert_eq!(migrated.code, Some(0), "{migrated:?}");
        Self { url, folder }
    }

    /// A lock name that no other test has, now or later.
    pub(crate) fn name(&self) -> String {
        let unique = self.folder.path().file_name().unwrap().to_string_lossy();
        format!("cli-test{unique}")
    }

    /// The same as an identifier, for a table or a user.
    pub(crate) fn identifier(&self) -> String {
        let name = self.name().to_lowercase();
        name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    /// `distlock run` on this store, with its own lock name.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Command {
        self.run_with(distlock(), options, command)
    }

    pub(crate) fn run_with(
        &self,
        mut program: Command,
        options: &[&str],
        command: &[&str],
    ) -> Command {
        program
            .env("DISTLOCK_STORE", &self.url)
            .args(["run", "--name", &self.name()])
            .args(options)
            .arg("--")
            .args(command);
        program
    }

    /// Any other command of the program on this store.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut program = distlock();
        program.env("DISTLOCK_STORE", &self.url).args(args);
        program
    }

    /// What such a command answers under `--json`, where it ends with this code.
    pub(crate) fn json(&self, args: &[&str], code: i32) -> Value {
        let done = finish(self.command(args).arg("--json"));
        assert_eq!(done.code, Some(code), "{done:?}");
        assert_eq!(done.stderr, "", "{done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Tries until it gets the lock; what the command then printed.
    pub(crate) fn run_when_free(&self, command: &[&str]) -> Done {
        let start = clock::Instant::now();
        loop {
            let done = finish(&mut self.run(&["--at-most", "30s", "-E", "75"], command));
            if done.code != Some(75) {
                return done;
            }
            assert!(start.elapsed() < PATIENCE, "never free");
        }
    }
}

fn server_url(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("run `cargo xtask test`, or set {variable} to a server's URL"))
}

/// The same tests on each store.
#[macro_export]
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        $crate::on_store!(sqlite: $($test),*);
        $crate::on_each_server!($($test),*);
    };
}

/// The same tests on each store that is a server.
#[macro_export]
macro_rules! on_each_server {
    ($($test:ident),* $(,)?) => {
        $crate::on_store!(postgres: $($test),*);
        $crate::on_store!(mysql: $($test),*);
        $crate::on_store!(mariadb: $($test),*);
        $crate::on_store!(redis: $($test),*);
    };
}

/// Tests on one store.
#[macro_export]
macro_rules! on_store {
    ($store:ident: $($test:ident),* $(,)?) => {
        mod $store { $(#[test] fn $test() { super::$test(&super::common::Store::$store()); })* }
    };
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs it to its end.
pub(crate) fn finish(command: &mut Command) -> Done {
    let output = command.output();
    output
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
        .into()
}

/// The command of a holder: says that it holds, and goes on until its stdin is closed.
pub(crate) const HOLD: [&str; 3] = ["sh", "-c", "echo $DISTLOCK_FENCING_TOKEN; cat"];

/// A run that goes on, read line by line. Dropping it kills the wrapper and closes the command's stdin.
pub(crate) struct Running {
    pub(crate) wrapper: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut wrapper = command.spawn().unwrap();
        Self {
            stdout: lines(wrapper.stdout.take().unwrap()),
            stderr: lines(wrapper.stderr.take().unwrap()),
            wrapper,
        }
    }

    /// The next line that the command under the lock prints.
    pub(crate) fn line(&mut self) -> String {
        self.stdout.recv_timeout(PATIENCE).expect("a line")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.wrapper.id().cast_signed()), signal).unwrap();
    }

    /// Closes stdin, and waits until the wrapper has ended and everything that writes to its stdout has.
    pub(crate) fn finish(mut self) -> Done {
        drop(self.wrapper.stdin.take());
        let (stdout, stderr) = (rest(&self.stdout), rest(&self.stderr));
        let code = self.wrapper.wait().unwrap().code();
        Done {
            code,
            stdout,
            stderr,
        }
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(pipe).lines();
        lines.map_while(Result::ok).for_each(|line| {
            let _ = sender.send(line);
        });
    });
    receiver
}

/// What comes until the last writer has ended.
fn rest(pipe: &Receiver<String>) -> String {
    let mut text = String::new();
    loop {
        match pipe.recv_timeout(PATIENCE) {
            Ok(line) => text += &format!("{line}\n"),
            Err(RecvTimeoutError::Disconnected) => return text,
            Err(RecvTimeoutError::Timeout) => panic!("something still runs; it said {text:?}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.wrapper.kill();
        let _ = self.wrapper.wait();
    }
}

/// A session with a database beside the program's own.
pub(crate) struct Session {
    runtime: Runtime,
    connection: Connected,
}

enum Connected {
    MySql(MySqlConnection),
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

impl Session {
    pub(crate) fn connect(url: &str) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap();
        // The scheme mariadb: is ours and not the driver's.
        let url = url.replacen("mariadb:", "mysql:", 1);
        let connection = runtime.block_on(async {
            match url.split(':').next() {
                Some("mysql") => MySqlConnection::connect(&url).await.map(Connected::MySql),
                Some("sqlite") => SqliteConnection::connect(&url).await.map(Connected::Sqlite),
                _ => PgConnection::connect(&url).await.map(Connected::Postgres),
            }
        });
        Self {
            runtime,
            connection: connection.unwrap(),
        }
    }

    /// Runs statements to their end.
    pub(crate) fn run(&mut self, statements: &str) {
        let text = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
        let done = self.runtime.block_on(async {
            match &mut self.connection {
                Connected::MySql(to) => text.execute(to).await.map(drop),
                Connected::Postgres(to) => text.execute(to).await.map(drop),
                Connected::Sqlite(to) => text.execute(to).await.map(drop),
            }
        });
        done.unwrap_or_else(|error| panic!("{statements}: {error}"));
    }
}

/// Runs statements in a session of their own.
pub(crate) fn sql(url: &str, statements: &str) {
    Session::connect(url).run(statements);
}

/// Sends one command to a Redis without a password; its answer.
pub(crate) fn send_to_redis(url: &str, command: &str) -> String {
    let address = url.trim_start_matches("redis://");
    let mut server = TcpStream::connect(address.split('/').next().unwrap()).unwrap();
    server
        .write_all(format!("{command}\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    BufReader::new(server).read_line(&mut answer).unwrap();
    answer
}

/// The URL with one more parameter.
pub(crate) fn with(url: &str, parameter: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{parameter}")
}

/// The URL of the same server for somebody else: `user:password`.
pub(crate) fn for_user(url: &str, user: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split('@').next_back().unwrap();
    format!("{scheme}://{user}@{host}")
}

pub(crate) fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

pub(crate) fn kill_pid(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

pub(crate) fn lines_of(path: impl AsRef<Path>) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

/// Asserts that it failed as distlock's own failures do: exit 125 and one line.
pub(crate) fn assert_refused(done: &Done, reason: &str) {
    assert_eq!(done.code, Some(125), "{done:?}");
    assert_one_line(done, reason);
    assert_eq!(done.stdout, "", "{done:?}");
}

pub(crate) fn assert_one_line(done: &Done, text: &str) {
    assert!(done.stderr.starts_with("distlock: "), "{done:?}");
    assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
    assert!(done.stderr.contains(text), "{text}: {done:?}");
}
