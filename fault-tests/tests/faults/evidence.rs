//! What the tests of many faults show alike.

use std::time::Duration;

use distlock::clock::{self, Instant};
use distlock::{Acquisition, Fenced, FencingToken, Guard, Hold, Lock, Locks, Loss};

use crate::catalogue::Seen;
use crate::ground::{LONG, PATIENCE, fixed, soon};

/// Takes the lock, which must be free.
pub(crate) async fn acquired(lock: &Lock) -> Guard {
    match lock.try_acquire().await.unwrap() {
        Acquisition::Acquired(guard) => guard,
        other => panic!("not acquired: {other:?}"),
    }
}

/// Asks until the lock is granted, whatever is said before.
pub(crate) async fn acquired_at_last(lock: &Lock) -> Guard {
    let asking = async {
        loop {
            if let Ok(Acquisition::Acquired(guard)) = lock.try_acquire().await {
                return guard;
            }
            soon().await;
        }
    };
    let granted = clock::timeout(PATIENCE, asking).await;
    granted.expect("the lock is never granted again")
}

/// A rival is told that the lock is held, and nothing else.
pub(crate) async fn refused(rival: &Locks) {
    let refused = fixed(rival, LONG).try_acquire().await.unwrap();
    assert!(matches!(refused, Acquisition::Held(_)), "{refused:?}");
}

/// Waits until no more than this is left, since the renewals fail.
pub(crate) async fn endangered(hold: &Hold, left: Duration) {
    let endangered = clock::timeout(PATIENCE, hold.endangered(left)).await;
    assert!(endangered.is_some(), "the renewals do not fail");
}

/// By how much a busy machine may be late to tell what is so by the clock.
pub(crate) const LATE: Duration = Duration::from_secs(3);

/// Waits until the holder, whose lease is not renewed any more, is told of its loss, and why. That is by its deadline.
pub(crate) async fn loss(hold: &Hold) -> Loss {
    let (since, left) = (Instant::now(), hold.remaining());
    let loss = clock::timeout(left + LATE, hold.lost()).await;
    let loss = loss.unwrap_or_else(|| panic!("{left:?} were left {:?} ago", since.elapsed()));
    assert!(!hold.is_valid());
    loss
}

/// Waits until the lease is renewed, which must happen before it is lost.
pub(crate) async fn renewed(hold: &Hold) {
    let mut least = hold.remaining();
    let renewal = async {
        while hold.remaining() <= least + Duration::from_millis(1) {
            least = least.min(hold.remaining());
            assert!(hold.is_valid(), "lost: {}", hold.lost().await);
            soon().await;
        }
    };
    let renewed = clock::timeout(PATIENCE, renewal).await;
    assert!(renewed.is_some(), "it is not renewed");
}

/// After the fault: the lock is renewed, refused to others, and passed on with a greater fencing token in the end.
pub(crate) async fn held_on(holder: Guard, rival: &Locks) -> Seen {
    renewed(&holder).await;
    refused(rival).await;
    assert!(holder.is_valid(), "lost: {}", holder.lost().await);
    passed_on(holder, rival).await;
    Seen::Held
}

/// The holder releases the lock, and the next one has a greater fencing token.
pub(crate) async fn passed_on(holder: Guard, rival: &Locks) {
    let before = fence(&holder);
    let released = holder.release().await.unwrap();
    assert_eq!(released, distlock::Release::Released);
    let next = acquired(&fixed(rival, LONG)).await;
    assert!(fence(&next) > before, "{:?} {before:?}", fence(&next));
}

/// A rival gets the lock, not before the holder has lost it, and with a greater fencing token.
pub(crate) async fn passed_on_after_the_loss(holder: &Hold, rival: &Locks) -> Seen {
    let next = acquired_at_last(&fixed(rival, LONG)).await;
    assert!(!holder.is_valid(), "there were two holders");
    assert!(fence(&next) > fence(holder));
    Seen::Told
}

/// A rival gets the lock while its holder counts on it. The resource that both write to finds out who is too late.
pub(crate) async fn two_holders(holder: &Hold, rival: &Locks) -> Seen {
    let ledger = Fenced::new(Vec::new());
    ledger.enter(fence(holder)).unwrap().push("the holder");
    let rival = acquired(&fixed(rival, LONG)).await;
    assert!(holder.is_valid() && rival.is_valid(), "one holder only");
    ledger.enter(fence(&rival)).unwrap().push("the rival");
    let stale = ledger.enter(fence(holder)).unwrap_err();
    assert!(stale.seen > stale.token);
    assert_eq!(ledger.into_inner(), ["the holder", "the rival"]);
    Seen::TwoHolders
}

pub(crate) fn fence(hold: &Hold) -> FencingToken {
    hold.fencing_token().unwrap()
}
