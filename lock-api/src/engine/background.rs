use std::sync::Arc;

use tokio::sync::Notify;

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// What goes on when nobody waits for it, so that a shutdown can.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pending: AtomicUsize,
    idle: Notify,
    closed: AtomicBool,
}

/// One pending matter, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Background>);

impl Background {
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        self.pending.fetch_add(1, Ordering::SeqCst);
        Ticket(Arc::clone(self))
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// Waits until nothing is pending.
    pub(crate) async fn idle(&self) {
        loop {
            // Made before looking, so that the last ticket's end is not missed.
            let notified = self.idle.notified();
            if self.pending() == 0 {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_comes_with_the_last_ticket() {
        let background = Arc::new(Background::default());
        background.idle().await;
        let (one, two) = (background.ticket(), background.ticket());
        let waiting = tokio::spawn({
            let background = Arc::clone(&background);
            async move { background.idle().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(two);
        waiting.await.unwrap();
    }
}
