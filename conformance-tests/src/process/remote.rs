use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use distlock_api::{
    AcquireRequest, Attempt, Capabilities, Error, ErrorKind, LeaseId, LockBackend, Release,
    Renewal, Result,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::WORKER;
use super::wire::{self, Answer, Question};
use crate::failure::Checked;

/// A backend in another process. It can be killed, as a holder can.
pub(crate) struct Remote {
    capabilities: Capabilities,
    line: Mutex<Line>,
}

struct Line {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    asked: u64,
}

impl Remote {
    /// Starts this program again as a client of the store. With `clock_offset`, such as `-1h`, its wall clock is off
    /// by so much.
    pub(crate) async fn start(
        store: &str,
        capabilities: Capabilities,
        clock_offset: Option<&str>,
    ) -> Checked<Self> {
        let program = std::env::current_exe()?;
        let mut command = match clock_offset {
            None => Command::new(program),
            Some(offset) => {
                let mut command = Command::new("faketime");
                command.args(["-f", offset]).arg(program);
                command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
                command
            }
        };
        let mut child = command
            .env(WORKER, store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // faketime cleans up after its child, which ends with its input.
            .kill_on_drop(clock_offset.is_none())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
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
            line: Mutex::new(line),
        })
    }

    /// Kills the process in the middle of whatever it does (SIGKILL), and waits until it is gone.
    pub(crate) async fn kill(&self) -> Checked {
        Ok(self.line.lock().await.child.kill().await?)
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
