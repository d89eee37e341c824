//! The clock of the server is stepped while a lease lives.

use std::time::Duration;

use distlock::Acquisition;

use crate::catalogue::{Assumption, Cases, Fault, Seen, Store};
use crate::evidence::{acquired, fence, passed_on, two_holders};
use crate::ground::{Ground, LONG, fixed};

const HOUR: Duration = Duration::from_secs(3600);

const FORWARD: Fault = Fault {
    cases: "B1, B3",
    words: "the server's clock is stepped an hour forward",
    breaks: &[Assumption::Step],
};

const BACK: Fault = Fault {
    cases: "B2, B3, B16",
    words: "the server's clock is stepped an hour back",
    breaks: &[],
};

const BACK_AND_FORGOTTEN: Fault = Fault {
    cases: "B2, E2",
    words: "the records are deleted, and the server's clock is stepped an hour back",
    breaks: &[Assumption::Memory],
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&FORWARD, Store::ALL, forward);
    cases.add(&BACK, Store::ALL, back);
    cases.add(&BACK_AND_FORGOTTEN, Store::ALL, back_and_forgotten);
}

async fn forward(ground: Ground) -> Seen {
    let server = ground.server_with_clock().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&fixed(&locks, LONG)).await;
    server.clock().unwrap().set_ahead(HOUR).unwrap();
    two_holders(&holder, &rival).await
}

/// The lease takes an hour longer, and nothing worse.
async fn back(ground: Ground) -> Seen {
    let server = ground.server_with_clock().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&fixed(&locks, LONG)).await;
    server.clock().unwrap().set_behind(HOUR).unwrap();
    let refused = fixed(&rival, LONG).try_acquire().await.unwrap();
    let Acquisition::Held(held) = refused else {
        panic!("not held: {refused:?}");
    };
    assert!(held.remaining.unwrap() > HOUR, "the clock was not stepped");
    passed_on(holder, &rival).await;
    Seen::Held
}

/// Neither counter nor clock is left to make a greater fencing token of.
async fn back_and_forgotten(ground: Ground) -> Seen {
    let server = ground.server_with_clock().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&fixed(&locks, LONG)).await;
    server.clock().unwrap().set_behind(HOUR).unwrap();
    ground.forget(&server).await;
    let rival = acquired(&fixed(&rival, LONG)).await;
    assert!(holder.is_valid() && rival.is_valid());
    assert!(fence(&rival) < fence(&holder));
    Seen::TwoHoldersUnfenced
}
