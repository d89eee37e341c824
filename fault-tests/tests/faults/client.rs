//! A holder in a process of its own, which can live on a clock of its own: this program, started once more.

use std::io::{BufRead, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use distlock::{Hold, clock};
use distlock_test_servers::{Clock, Server};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::evidence::acquired;
use crate::ground::{PATIENCE, fixed, watched};

const ORDER: &str = "DISTLOCK_FAULTS_CLIENT";

/// How long the lease of a client is.
pub(crate) enum Lease {
    Fixed(Duration),
    Watched(Duration),
}

/// A client that holds the lock.
pub(crate) struct Client {
    pub(crate) clock: Clock,
    pub(crate) fence: distlock::FencingToken,
    _child: Child,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _folder: TempDir,
}

impl Client {
    /// Starts it, lets its steady clocks run at this many hundredths of their speed, and waits until it has the lock.
    pub(crate) async fn start(server: &Server, lease: Lease, percent: i64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::new(folder.path()).unwrap();
        clock.run_at(percent).unwrap();
        let lease = match lease {
            Lease::Fixed(lease) => format!("fixed {}", lease.as_millis()),
            Lease::Watched(ttl) => format!("watched {}", ttl.as_millis()),
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.env(ORDER, format!("{lease} {}", server.url()));
        clock
            .rules(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut command =
            tokio::process::Command::from(std::mem::replace(command, Command::new("")));
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Self {
            clock,
            fence: distlock::FencingToken::new(0),
            questions: child.stdin.take().unwrap(),
            answers,
            _child: child,
            _folder: folder,
        };
        client.fence = distlock::FencingToken::new(client.answer().await.parse().unwrap());
        client
    }

    /// What it knows at this moment.
    pub(crate) async fn is_valid(&mut self) -> bool {
        self.ask("valid").await == "true"
    }

    /// What is left by its clock.
    pub(crate) async fn remaining(&mut self) -> Duration {
        Duration::from_millis(self.ask("remaining").await.parse().unwrap())
    }

    /// Its wall clock.
    pub(crate) async fn wall(&mut self) -> SystemTime {
        let millis = self.ask("wall").await.parse().unwrap();
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    /// Waits until it says that it has lost the lock, and why.
    pub(crate) async fn lost(&mut self) -> String {
        self.ask("lost").await
    }

    /// Lets it release the lock.
    pub(crate) async fn release(&mut self) {
        assert_eq!(self.ask("release").await, "Released");
    }

    async fn ask(&mut self, question: &str) -> String {
        let line = format!("{question}\n");
        self.questions.write_all(line.as_bytes()).await.unwrap();
        self.answer().await
    }

    async fn answer(&mut self) -> String {
        let answer = clock::timeout(PATIENCE, self.answers.next_line()).await;
        answer
            .expect("no answer")
            .unwrap()
            .expect("the client ended")
    }
}

/// What this process is to do, if it is a client.
pub(crate) fn order() -> Option<String> {
    std::env::var(ORDER).ok()
}

/// The client's side: takes the lock, says its fencing token, and answers questions until there are no more.
pub(crate) fn run(order: &str) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (lease, url) = order.rsplit_once(' ').unwrap();
    let guard = runtime.block_on(async {
        let locks = distlock::connect(url).await.unwrap();
        let (kind, length) = lease.split_once(' ').unwrap();
        let length = Duration::from_millis(length.parse().unwrap());
        match kind {
            "fixed" => acquired(&fixed(&locks, length)).await,
            _ => acquired(&watched(&locks, length)).await,
        }
    });
    say(crate::evidence::fence(&guard).value());
    for question in std::io::stdin().lock().lines() {
        let question = question.unwrap();
        if question == "release" {
            say(format!("{:?}", runtime.block_on(guard.release()).unwrap()));
            break;
        }
        answer(&runtime, &guard, &question);
    }
    ExitCode::SUCCESS
}

fn answer(runtime: &tokio::runtime::Runtime, hold: &Hold, question: &str) {
    match question {
        "valid" => say(hold.is_valid()),
        "wall" => {
            let wall = clock::wall().duration_since(SystemTime::UNIX_EPOCH);
            say(wall.unwrap().as_millis());
        }
        "remaining" => say(hold.remaining().as_millis()),
        _ => say(runtime.block_on(hold.lost())),
    }
}

fn say(answer: impl std::fmt::Display) {
    println!("{answer}");
    std::io::stdout().flush().unwrap();
}
