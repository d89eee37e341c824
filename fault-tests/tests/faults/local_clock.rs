//! The clocks of the holder are wrong.

use std::time::Duration;

use distlock::{Fenced, clock};

use crate::catalogue::{Assumption, Cases, Fault, Seen, Store};
use crate::client::{Client, Lease};
use crate::evidence::{LATE, acquired, acquired_at_last, fence, refused};
use crate::ground::{Ground, LONG, fixed};

const WALL: Fault = Fault {
    cases: "B5",
    words: "the holder's wall clock jumps to and fro by a day",
    breaks: &[],
};

const A_LITTLE_SLOW: Fault = Fault {
    cases: "B6",
    words: "the holder's clock is 1 % slow",
    breaks: &[],
};

const MUCH_TOO_SLOW: Fault = Fault {
    cases: "B6",
    words: "the holder's clock runs at half its speed",
    breaks: &[Assumption::Rate],
};

const FAST: Fault = Fault {
    cases: "B6",
    words: "the holder's clock runs at double its speed",
    breaks: &[Assumption::RateToTheSafeSide],
};

const SUSPENDED: Fault = Fault {
    cases: "B7",
    words: "the holder's machine is suspended for longer than the lease",
    breaks: &[],
};

/// What the engine decides is the same for all stores.
const ONE: &[Store] = &[Store::Redis];

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&WALL, Store::ALL, a_wall_clock_that_jumps);
    cases.add(&A_LITTLE_SLOW, ONE, a_little_slow);
    cases.add(&MUCH_TOO_SLOW, ONE, much_too_slow);
    cases.add(&FAST, ONE, fast);
    cases.add(&SUSPENDED, ONE, a_suspended_machine);
}

async fn a_wall_clock_that_jumps(ground: Ground) -> Seen {
    let server = ground.server().await;
    let rival = ground.locks(&server).await;
    let lease = Duration::from_secs(12);
    let mut client = Client::start(&server, Lease::Watched(lease), 100).await;
    let day = Duration::from_secs(24 * 3600);
    let mut least = client.remaining().await;
    loop {
        client.clock.set_behind(day).unwrap();
        refused(&rival).await;
        client.clock.set_ahead(day).unwrap();
        assert!(client.wall().await > clock::wall() + day / 2);
        let left = client.remaining().await;
        assert!(left <= lease && client.is_valid().await);
        if left > least + Duration::from_millis(1) {
            break;
        }
        least = left;
    }
    client.release().await;
    let next = acquired(&fixed(&rival, LONG)).await;
    assert!(fence(&next) > client.fence);
    Seen::Held
}

/// The deadline leaves room for it.
async fn a_little_slow(ground: Ground) -> Seen {
    in_time(&ground, Duration::from_secs(6), 99).await
}

async fn fast(ground: Ground) -> Seen {
    in_time(&ground, Duration::from_secs(2), 200).await
}

/// A rival that asks all the time finds the lock free no earlier than the holder counts on it no longer.
async fn in_time(ground: &Ground, lease: Duration, percent: i64) -> Seen {
    let server = ground.server().await;
    let rival = ground.locks(&server).await;
    let mut client = Client::start(&server, Lease::Fixed(lease), percent).await;
    let next = acquired_at_last(&fixed(&rival, LONG)).await;
    assert!(!client.is_valid().await, "there were two holders");
    let told = clock::timeout(LATE, client.lost()).await;
    assert!(told.is_some(), "the holder is not told");
    assert!(fence(&next) > client.fence);
    Seen::Told
}

async fn much_too_slow(ground: Ground) -> Seen {
    let server = ground.server().await;
    let rival = ground.locks(&server).await;
    let lease = Duration::from_secs(6);
    let mut client = Client::start(&server, Lease::Fixed(lease), 50).await;
    let ledger = Fenced::new(());
    drop(ledger.enter(client.fence).unwrap());
    let next = acquired_at_last(&fixed(&rival, LONG)).await;
    drop(ledger.enter(fence(&next)).unwrap());
    assert!(client.is_valid().await, "one holder only");
    assert!(ledger.enter(client.fence).is_err());
    Seen::TwoHolders
}

/// The first question after it gets the right answer, whatever timers think.
async fn a_suspended_machine(ground: Ground) -> Seen {
    let server = ground.server().await;
    let rival = ground.locks(&server).await;
    let lease = Duration::from_secs(12);
    let mut client = Client::start(&server, Lease::Watched(lease), 100).await;
    assert!(client.is_valid().await);
    client.clock.suspend(lease).unwrap();
    assert!(!client.is_valid().await);
    let loss = client.lost().await;
    assert!(loss.contains("stood still"), "{loss}");
    let next = acquired_at_last(&fixed(&rival, LONG)).await;
    assert!(fence(&next) > client.fence);
    Seen::Told
}
