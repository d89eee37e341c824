use std::fmt;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, Error, ErrorKind, LeaseId, LockBackend, LockName,
    Release, Renewal, Result,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::wire::{self, Answer, Done, Look, Question};
use super::{LINK, WORKER};
use crate::failure::{Checked, Failure};
use crate::history::Contest;

/// A backend in another process, which can also hold a lock by itself. It can be killed or frozen, as a holder can.
pub(crate) struct Remote {
    capabilities: Capabilities,
    pid: Pid,
    line: Mutex<Line>,
}

/// What is out of the ordinary with a second process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setting<'a> {
    /// How far its wall clock is off, such as `-1h`.
    pub(crate) clock_offset: Option<&'a str>,
    /// Where it finds the server.
    pub(crate) link: Option<SocketAddr>,
}

struct Line {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    asked: u64,
}

impl Remote {
    /// Starts this program again as a client of the store.
    pub(crate) async fn start(
        store: &str,
        capabilities: Capabilities,
        setting: Setting<'_>,
    ) -> Checked<Self> {
        let program = std::env::current_exe()?;
        let mut command = match setting.clock_offset {
            None => Command::new(program),
            Some(offset) => {
                let mut command = Command::new("faketime");
                command.args(["-f", offset]).arg(program);
                command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
                command
            }
        };
        if let Some(address) = setting.link {
            command.env(LINK, address.to_string());
        }
        let mut child = command
            .env(WORKER, store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // faketime cleans up after its child, which ends with its input.
            .kill_on_drop(setting.clock_offset.is_none())
            .spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(pid), Some(input), Some(output)) = (pid, input, output) else {
            return Err(std::io::Error::other("a second process without pipes").into());
        };
        let mut line = Line {
            child,
            input,
            output: BufReader::new(output).lines(),
            asked: 0,
        };
        line.answer().await?;
        Ok(Self {
            capabilities,
            pid: Pid::from_raw(pid),
            line: Mutex::new(line),
        })
    }

    /// Takes a free lock and holds it, by the engine of that process.
    pub(crate) async fn hold(&self, name: &LockName, watchdog: Duration) -> Result<Attempt> {
        self.ask(Question::Hold(name.clone(), watchdog)).await
    }

    /// What that process says of the lock that it holds, at this moment.
    pub(crate) async fn look(&self) -> Result<Look> {
        self.ask(Question::Look).await
    }

    /// Takes part in a contest until it is over.
    pub(crate) async fn contend(&self, contest: Contest) -> Result<Done> {
        self.ask(Question::Contend(contest)).await
    }

    /// Stops the process where it is (SIGSTOP), as a suspended virtual machine stops.
    pub(crate) fn freeze(&self) -> Checked {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on from there (SIGCONT).
    pub(crate) fn thaw(&self) -> Checked {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Checked {
        let sent = kill(self.pid, signal);
        sent.map_err(|error| Failure::broken(format!("{signal} to a second process: {error}")))
    }

    /// Kills the process in the middle of whatever it does (SIGKILL), and waits until it is gone.
    pub(crate) async fn kill(&self) -> Checked {
        self.signal(Signal::SIGKILL)?;
        // Who waits for an answer gets none now, and lets go of the line.
        self.line.lock().await.child.wait().await?;
        Ok(())
    }

    async fn ask<A: Answer>(&self, question: Question) -> Result<A> {
        let mut line = self.line.lock().await;
        let answer = line.ask(&question).await?;
        let fields: Vec<&str> = answer.split('\t').collect();
        A::read(&fields).ok_or_else(|| broken(format!("a second process answered {answer:?}")))
    }
}

impl Line {
    async fn ask(&mut self, question: &Question) -> Result<String> {
        self.asked += 1;
        let text = format!("{}\t{}\n", self.asked, question.write());
        let sent = self.input.write_all(text.as_bytes()).await;
        sent.map_err(|error| broken("a second process is gone").with_source(error))?;
        self.answer().await
    }

    /// The answer to the last question. Those to questions that nobody waits for any more are passed over.
    async fn answer(&mut self) -> Result<String> {
        let unheard = |error| broken("a second process cannot be heard").with_source(error);
        while let Some(line) = self.output.next_line().await.map_err(unheard)? {
            let answer = line.strip_prefix("answer\t");
            let answer = answer.and_then(|rest| rest.split_once('\t'));
            match answer.filter(|(number, _)| number.parse() == Ok(self.asked)) {
                Some((_, answer)) => return wire::read_result(answer).map(str::to_owned),
                None => continue,
            }
        }
        Err(broken("a second process has ended"))
    }
}

fn broken(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unexpected, message)
}

#[async_trait]
impl LockBackend for Remote {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.ask(Question::Acquire(request.clone())).await
    }

    async fn renew(&self, leases: &[(LeaseId, Duration)]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::new();
        for (lease, ttl) in leases {
            answers.push(self.ask(Question::Renew(lease.clone(), *ttl)).await);
        }
        answers
    }

    async fn release(&self, lease: &LeaseId, linger: Duration) -> Result<Release> {
        self.ask(Question::Release(lease.clone(), linger)).await
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}
