use std::io::Write as _;
use std::process::ExitCode;

use distlock_api::{Error, ErrorKind, LockBackend};
use tokio::runtime::Builder;

use super::WORKER;
use super::wire::{self, Answer, Question};
use crate::store::{Store, StoreError};

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

fn answer_all(store: &Store) -> Result<(), StoreError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let client = runtime.block_on((store.open)(()))?;
    say(0, "ready");
    for line in std::io::stdin().lines() {
        let line = line?;
        let asked = line
            .split_once('\t')
            .and_then(|(number, question)| Some((number.parse().ok()?, Question::read(question)?)));
        let (number, question) = asked.ok_or("a question that is none")?;
        say(
            number,
            &runtime.block_on(answer(&*client.backend, question)),
        );
    }
    runtime.shutdown_background();
    Ok(())
}

async fn answer(backend: &dyn LockBackend, question: Question) -> String {
    let answer = match question {
        Question::Acquire(request) => backend.try_acquire(&request).await.map(|a| a.write()),
        Question::Release(lease, linger) => {
            backend.release(&lease, linger).await.map(|r| r.write())
        }
        Question::Renew(lease, ttl) => {
            let answers = backend.renew(&[(lease, ttl)]).await;
            let first = answers.into_iter().next();
            first.map_or(Ok("nothing".to_owned()), |answer| answer.map(|r| r.write()))
        }
    };
    wire::write_result(answer)
}

/// Writes an answer. Lines of the program's own, if it prints some, are told apart by their beginning.
fn say(number: u64, answer: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "answer\t{number}\t{answer}");
    let _ = out.flush();
}
