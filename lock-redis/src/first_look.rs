//! The look at the server before the first lock is taken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock_api::Result;
use tokio::sync::Mutex;

/// One look at a time. That it went well is remembered; that it did not is told to those only who waited for it, so that
/// many do not wait for one another's looks at a server that does not answer.
#[derive(Debug)]
pub(crate) struct FirstLook {
    went_well: AtomicBool,
    ended: AtomicU64,
    last: Mutex<Result<()>>,
}

impl FirstLook {
    pub(crate) fn new() -> Self {
        Self {
            went_well: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            last: Mutex::new(Ok(())),
        }
    }

    /// What came of the look, or of one that ended since this was called.
    ///
    /// # Cancel safety
    ///
    /// The next who waits looks instead.
    pub(crate) async fn once(&self, look: impl Future<Output = Result<()>>) -> Result<()> {
        if self.went_well.load(Ordering::Acquire) {
            return Ok(());
        }
        let ended = self.ended.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if self.ended.load(Ordering::Acquire) == ended {
            *last = look.await;
            self.went_well.store(last.is_ok(), Ordering::Release);
            self.ended.fetch_add(1, Ordering::Release);
        }
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use distlock_api::{Error, ErrorKind};
    use std::future::pending;
    use tokio::sync::Notify;
    use tokio::{join, select, task::yield_now};

    async fn fails() -> Result<()> {
        yield_now().await;
        Err(Error::new(ErrorKind::Unavailable, "down"))
    }

    async fn must_not_be_run() -> Result<()> {
        unreachable!("a second look");
    }

    #[tokio::test]
    async fn those_who_waited_get_the_failure_and_the_next_looks_again() {
        let first = FirstLook::new();
        let (one, other) = join!(first.once(fails()), first.once(must_not_be_run()));
        assert_eq!(one.unwrap_err().message(), "down");
        assert_eq!(other.unwrap_err().message(), "down");
        first.once(async { Ok(()) }).await.unwrap();
        first.once(must_not_be_run()).await.unwrap();
    }

    #[tokio::test]
    async fn a_look_that_was_dropped_is_made_by_the_next_who_waits() {
        let (first, started) = (FirstLook::new(), Notify::new());
        let dropped = async {
            let look = async {
                started.notify_one();
                pending().await
            };
            select! {
                biased;
                _ = first.once(look) => unreachable!("it is pending"),
                () = yield_now() => {}
            }
        };
        let next = async {
            started.notified().await;
            first.once(async { Ok(()) }).await
        };
        let ((), looked) = join!(dropped, next);
        looked.unwrap();
    }
}
