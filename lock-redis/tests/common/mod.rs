//! What the tests share: the server that they are given, and servers of their own.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{
    AcquireRequest, Attempt, Effect, Error, FencingToken, LockBackend, LockName, Token,
};
use distlock_redis::RedisBackend;
use distlock_redis::redis::aio::MultiplexedConnection;
use distlock_redis::redis::{self, Client, FromRedisValue};

pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// The URL of the server that the tests were given.
pub(crate) fn given_url() -> String {
    std::env::var("DISTLOCK_TEST_REDIS_URL").expect(
        "no Redis server: run `cargo xtask test`, or set DISTLOCK_TEST_REDIS_URL=redis://127.0.0.1:6379/0",
    )
}

/// A part of the given server that no other test uses.
pub(crate) struct Space {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) raw: MultiplexedConnection,
}

impl Space {
    pub(crate) async fn new() -> Self {
        Self::at(&given_url()).await
    }

    pub(crate) async fn at(url: &str) -> Self {
        let random = u128::from_be_bytes(*Token::random().as_bytes());
        Self {
            url: url.to_owned(),
            prefix: format!("test-{random:032x}:"),
            raw: connection(url).await,
        }
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self) -> RedisBackend {
        let builder = RedisBackend::builder().prefix(&self.prefix);
        builder.connect(&self.url).await.unwrap()
    }

    pub(crate) fn key(&self, encoded_name: &str) -> String {
        format!("{}{{{encoded_name}}}", self.prefix)
    }

    /// Runs a command that tells its words by spaces; `KEY:NAME` stands for the key of a lock.
    pub(crate) async fn run<T: FromRedisValue>(&mut self, line: &str) -> T {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            match word.strip_prefix("KEY:") {
                Some(rest) => {
                    let (name, suffix) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
                    command.arg(self.key(name) + suffix)
                }
                None => command.arg(word),
            };
        }
        command.query_async(&mut self.raw).await.unwrap()
    }
}

pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let client = Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

pub(crate) fn request(lock: &str) -> AcquireRequest {
    AcquireRequest::new(name(lock), "tester/1", LEASE)
}

/// Takes the lock, which must be free.
pub(crate) async fn acquire(backend: &RedisBackend, request: &AcquireRequest) -> FencingToken {
    match backend.try_acquire(request).await.unwrap() {
        Attempt::Acquired { fencing_token } => fencing_token.unwrap(),
        other => panic!("not granted: {other:?}"),
    }
}

/// A password that must never be seen.
pub(crate) const SECRET: &str = "s3cret-canary";

/// Connects, which must fail.
pub(crate) async fn refused(url: &str) -> Error {
    let error = RedisBackend::connect(url).await.unwrap_err();
    assert_eq!(error.effect(), Effect::None, "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    error
}

/// Tries to take the lock `a`, which must fail.
pub(crate) async fn not_acquired(backend: &RedisBackend) -> Error {
    let error = backend.try_acquire(&request("a")).await.unwrap_err();
    assert_eq!(error.backend(), Some("redis"));
    assert_eq!(error.lock_name(), Some("a"));
    error
}

/// Makes a server a whole cluster by itself.
pub(crate) async fn give_all_slots(space: &mut Space) {
    let mut add = redis::cmd("CLUSTER");
    add.arg("ADDSLOTS").arg((0..16_384).collect::<Vec<u16>>());
    let () = add.query_async(&mut space.raw).await.unwrap();
    while !space
        .run::<String>("CLUSTER INFO")
        .await
        .contains("cluster_state:ok")
    {
        tokio::task::yield_now().await;
    }
}

/// The rights that the documentation names, without those that the server does not know.
pub(crate) async fn documented_rights(connection: &mut MultiplexedConnection) -> Vec<String> {
    let docs = include_str!("../../src/lib.rs").replace("\n//!", "");
    let rights = docs.split("~lock:* ").nth(1).unwrap();
    let rights = rights.split('`').next().unwrap().split(' ');
    let info: String = redis::cmd("INFO").query_async(connection).await.unwrap();
    let is_old = info.contains("redis_version:6");
    let known = |right: &&str| !(is_old && *right == "+pexpiretime");
    rights.filter(known).map(str::to_owned).collect()
}

/// A server of a test's own, stopped when dropped.
pub(crate) struct Server {
    process: Child,
    program: String,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let program = std::env::var("DISTLOCK_TEST_REDIS_SERVER");
        let program = program.unwrap_or_else(|_| "redis-server".to_owned());
        let mut all = vec!["--bind", "127.0.0.1", "--save", ""];
        all.extend(["--dir", folder.path().to_str().unwrap()]);
        all.extend(["--logfile", "redis.log"]);
        let port_text = port.to_string();
        all.extend(["--port", &port_text]);
        all.extend(arguments);
        let arguments: Vec<String> = all.into_iter().map(str::to_owned).collect();
        let mut server = Self {
            process: spawn(&program, &arguments),
            program,
            arguments,
            folder,
            port,
        };
        server.answers().await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // A server in a container ends a moment after the program that stands for it.
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {}
    }

    pub(crate) async fn start_again(&mut self) {
        self.process = spawn(&self.program, &self.arguments);
        self.answers().await;
    }

    /// Waits until it answers a PING, or shows why it does not.
    async fn answers(&mut self) {
        let start = Instant::now();
        while ping(self.port).is_err() {
            let ended = self.process.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > Duration::from_secs(30) {
                let log = std::fs::read_to_string(self.folder.path().join("redis.log"));
                panic!("{} did not start: {log:?}", self.program);
            }
            clock::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Any answer will do: the server may want a password first.
fn ping(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    stream.read_exact(&mut [0; 5])
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn spawn(program: &str, arguments: &[String]) -> Child {
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("{program} (install redis-server): {e}"))
}
