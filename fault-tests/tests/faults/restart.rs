//! The server is killed, and comes back, with its data or without, or does not come back.

use std::time::Duration;

use distlock::{ErrorKind, Loss};
use distlock_test_servers::Setup;

use crate::catalogue::{Assumption, Cases, Fault, Seen, Store};
use crate::evidence::{acquired, endangered, held_on, loss, passed_on_after_the_loss, two_holders};
use crate::ground::{Ground, LONG, fixed, watched};

const WITH_MEMORY: Fault = Fault {
    cases: "E6, F1",
    words: "kill -9 and a start on the same data (Redis: appendfsync always)",
    breaks: &[],
};

const WITHOUT_MEMORY: Fault = Fault {
    cases: "E6",
    words: "kill -9 and a start without persistence",
    breaks: &[Assumption::Memory],
};

const WITHOUT_MEMORY_WATCHED: Fault = Fault {
    cases: "E6",
    words: "the same, while a watchdog renews and before anybody else asks",
    breaks: &[Assumption::Memory],
};

const DOWN_TOO_LONG: Fault = Fault {
    cases: "E6, F1",
    words: "kill -9, and nobody there for longer than the lease",
    breaks: &[],
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&WITH_MEMORY, Store::ALL, with_memory);
    cases.add(&WITHOUT_MEMORY, &[Store::Redis], without_memory);
    cases.add(
        &WITHOUT_MEMORY_WATCHED,
        &[Store::Redis],
        without_memory_while_watched,
    );
    cases.add(&DOWN_TOO_LONG, Store::ALL, down_for_longer_than_the_lease);
}

async fn with_memory(ground: Ground) -> Seen {
    let mut server = ground.server().await;
    let locks = ground.locks(&server).await;
    // So long that the rest of it is enough for a server that has much to recover, on a busy machine.
    let lease = Duration::from_secs(60);
    let holder = acquired(&watched(&locks, lease)).await;
    server.crash().unwrap();
    // A third of it, and a little more: by then a renewal has failed.
    endangered(&holder, lease * 16 / 25).await;
    server.start_again().await.unwrap();
    // One that has no broken connection, after which a refusal would be in doubt.
    let rival = ground.locks(&server).await;
    held_on(holder, &rival).await
}

async fn without_memory(ground: Ground) -> Seen {
    let mut server = ground.start(Setup::new()).await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&fixed(&locks, LONG)).await;
    server.crash().unwrap();
    server.start_again().await.unwrap();
    two_holders(&holder, &rival).await
}

async fn without_memory_while_watched(ground: Ground) -> Seen {
    let mut server = ground.start(Setup::new()).await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&watched(&locks, Duration::from_secs(15))).await;
    server.crash().unwrap();
    server.start_again().await.unwrap();
    let loss = loss(&holder).await;
    assert!(matches!(loss, Loss::Gone), "{loss}");
    passed_on_after_the_loss(&holder, &rival).await
}

async fn down_for_longer_than_the_lease(ground: Ground) -> Seen {
    let mut server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&watched(&locks, Duration::from_secs(6))).await;
    server.crash().unwrap();
    let error = fixed(&rival, LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let loss = loss(&holder).await;
    let Loss::NotRenewed { cause: Some(cause) } = loss else {
        panic!("{loss}");
    };
    assert!(cause.is_retryable(), "{cause}");
    server.start_again().await.unwrap();
    passed_on_after_the_loss(&holder, &rival).await
}
