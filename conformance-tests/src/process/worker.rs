use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use distlock_api::{
    Acquisition, Attempt, Error, ErrorKind, Guard, LockBackend, LockName, Locks, Result,
};
use tokio::runtime::Builder;

use super::wire::{self, Answer, Done, Look, Question};
use super::{LINK, WORKER};
use crate::history;
use crate::store::{Opened, Store, StoreError};

/// Whether this process was started to serve a rule of this store.
pub(crate) fn asked_for(store: &str) -> bool {
    std::env::var_os(WORKER).is_some_and(|asked| asked == store)
}

/// Opens a client and answers questions until there are no more. Whatever it holds then, it takes along.
pub(crate) fn serve(store: &Store) -> ExitCode {
    match answer_all(store) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.downcast::<Error>().map_or_else(
                |other| Error::new(ErrorKind::Unavailable, other.to_string()),
                |error| *error,
            );
            say(0, &wire::write_result(Err(error)));
            ExitCode::FAILURE
        }
    }
}

fn answer_all(store: &Store) -> std::result::Result<(), StoreError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut worker = Worker::new(runtime.block_on(open(store))?);
    say(0, "ready");
    for line in std::io::stdin().lines() {
        let line = line?;
        let asked = line
            .split_once('\t')
            .and_then(|(number, question)| Some((number.parse().ok()?, Question::read(question)?)));
        let (number, question) = asked.ok_or("a question that is none")?;
        let answer = runtime.block_on(worker.answer(question));
        say(number, &wire::write_result(answer));
    }
    runtime.shutdown_background();
    Ok(())
}

async fn open(store: &Store) -> std::result::Result<Opened, StoreError> {
    let Ok(address) = std::env::var(LINK) else {
        return (store.open)(()).await;
    };
    let linked = store
        .linked
        .as_ref()
        .ok_or("a link for a store that has none")?;
    (linked.open)(address.parse()?).await
}

struct Worker {
    client: Opened,
    locks: Locks,
    held: Option<Guard>,
}

impl Worker {
    fn new(client: Opened) -> Self {
        Self {
            locks: Locks::from_arc(client.backend.clone()),
            client,
            held: None,
        }
    }

    async fn answer(&mut self, question: Question) -> Result<String> {
        let backend: &dyn LockBackend = &*self.client.backend;
        Ok(match question {
            Question::Acquire(request) => backend.try_acquire(&request).await?.write(),
            Question::Release(lease, linger) => backend.release(&lease, linger).await?.write(),
            Question::Renew(lease, ttl) => {
                let answers = backend.renew(&[(lease, ttl)]).await;
                match answers.into_iter().next() {
                    Some(answer) => answer?.write(),
                    None => "nothing".to_owned(),
                }
            }
            Question::Hold(name, watchdog) => self.hold(&name, watchdog).await?.write(),
            Question::Look => self.look().await?.write(),
            Question::Contend(contest) => {
                let contended = history::contend(&self.locks, &contest).await;
                contended.map_err(|error| Error::new(ErrorKind::Unexpected, error.to_string()))?;
                Done.write()
            }
        })
    }

    async fn hold(&mut self, name: &LockName, watchdog: Duration) -> Result<Attempt> {
        let lock = self.locks.lock(name)?.watchdog(watchdog);
        Ok(match lock.try_acquire().await? {
            Acquisition::Acquired(guard) => {
                let fencing_token = guard.fencing_token();
                self.held = Some(guard);
                Attempt::Acquired { fencing_token }
            }
            Acquisition::Held(held) => Attempt::Held(held),
            other => return Err(Error::new(ErrorKind::Unexpected, format!("{other:?}"))),
        })
    }

    async fn look(&self) -> Result<Look> {
        let guard = self.held.as_ref();
        let guard = guard.ok_or_else(|| Error::new(ErrorKind::Unexpected, "nothing is held"))?;
        let remaining = guard.remaining();
        let lost = match guard.is_valid() {
            true => None,
            false => Some(guard.lost().await.to_string()),
        };
        Ok(Look { remaining, lost })
    }
}

/// Writes an answer. Lines of the program's own, if it prints some, are told apart by their beginning.
fn say(number: u64, answer: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "answer\t{number}\t{answer}");
    let _ = out.flush();
}
