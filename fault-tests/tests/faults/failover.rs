//! Another server takes over.

use std::time::Duration;

use distlock::ForceRelease;

use crate::catalogue::{Assumption, Cases, Fault, Seen, Store};
use crate::evidence::{acquired, fence, refused, two_holders};
use crate::ground::{Ground, LONG, fixed};

const CAUGHT_UP: Fault = Fault {
    cases: "E12, F14",
    words: "the primary is killed, and a replica that has the grant is promoted",
    breaks: &[],
};

const LAGGING: Fault = Fault {
    cases: "E12, F14",
    words: "the primary is killed, and a replica that has not got the grant is promoted",
    breaks: &[Assumption::Memory],
};

const CLOCK_AHEAD: Fault = Fault {
    cases: "B4",
    words: "the primary is killed, and a replica is promoted whose clock is an hour ahead",
    breaks: &[Assumption::Step],
};

const TWO_PRIMARIES: Fault = Fault {
    cases: "F15",
    words: "there are two primaries, and each client asks another one",
    breaks: &[Assumption::Authority],
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&CAUGHT_UP, Store::ALL, to_a_replica_that_has_it);
    cases.add(&LAGGING, Store::ALL, to_a_replica_that_lags);
    cases.add(&CLOCK_AHEAD, Store::ALL, to_a_replica_with_a_fast_clock);
    cases.add(&TWO_PRIMARIES, Store::ALL, two_primaries);
}

async fn to_a_replica_that_has_it(ground: Ground) -> Seen {
    let mut primary = ground.primary().await;
    let replica = ground.replica(&primary, ground.with_memory()).await;
    let locks = ground.locks(&primary).await;
    let holder = acquired(&fixed(&locks, LONG)).await;
    ground.caught_up(&primary, &replica).await;
    primary.crash().unwrap();
    ground.promote(&replica).await;
    let rival = ground.locks(&replica).await;
    refused(&rival).await;
    assert!(holder.is_valid());
    // Its holder knows the old primary only.
    let admin = distlock::open(replica.url()).await.unwrap();
    let freed = admin.force_release(holder.name(), holder.fencing_token());
    assert!(matches!(freed.await.unwrap(), ForceRelease::Freed { .. }));
    let next = acquired(&fixed(&rival, LONG)).await;
    assert!(fence(&next) > fence(&holder));
    Seen::Held
}

/// One that lags for sure: it does not run while the lock is granted.
async fn to_a_replica_that_lags(ground: Ground) -> Seen {
    let mut primary = ground.primary().await;
    let mut replica = ground.replica(&primary, ground.with_memory()).await;
    ground.caught_up(&primary, &replica).await;
    replica.crash().unwrap();
    let locks = ground.locks(&primary).await;
    let holder = acquired(&fixed(&locks, LONG)).await;
    primary.crash().unwrap();
    replica.start_again().await.unwrap();
    ground.promote(&replica).await;
    two_holders(&holder, &ground.locks(&replica).await).await
}

async fn to_a_replica_with_a_fast_clock(ground: Ground) -> Seen {
    let mut primary = ground.primary().await;
    let setup = ground.with_memory().own_clock();
    let replica = ground.replica(&primary, setup).await;
    let hour = Duration::from_secs(3600);
    replica.clock().unwrap().set_ahead(hour).unwrap();
    let locks = ground.locks(&primary).await;
    let holder = acquired(&fixed(&locks, LONG)).await;
    ground.caught_up(&primary, &replica).await;
    primary.crash().unwrap();
    ground.promote(&replica).await;
    two_holders(&holder, &ground.locks(&replica).await).await
}

/// The clocks agree, and so the later grant has the greater fencing token here as well.
async fn two_primaries(ground: Ground) -> Seen {
    let (one, other) = (ground.server().await, ground.server().await);
    let (locks, rival) = (ground.locks(&one).await, ground.locks(&other).await);
    let holder = acquired(&fixed(&locks, LONG)).await;
    two_holders(&holder, &rival).await
}
