//! The server stands still, with its connections open.

use std::time::Duration;

use distlock::{Effect, ErrorKind, Loss, clock};

use crate::catalogue::{Cases, Fault, Seen, Store};
use crate::evidence::{
    acquired, acquired_at_last, endangered, held_on, loss, passed_on, passed_on_after_the_loss,
};
use crate::ground::{Ground, LONG, NAME, fixed, watched};

const WITHIN: Fault = Fault {
    cases: "E5",
    words: "the server is frozen for a part of the lease (SIGSTOP, SIGCONT)",
    breaks: &[],
};

const BEYOND: Fault = Fault {
    cases: "E5",
    words: "the server is frozen for longer than the lease",
    breaks: &[],
};

const IN_A_GRANT: Fault = Fault {
    cases: "E4, E5",
    words: "the server is frozen while it is asked for the lock, and grants it late",
    breaks: &[],
};

const IN_A_GRANT_BEYOND: Fault = Fault {
    cases: "E5",
    words: "the server is frozen while it is asked for the lock, for longer than the limit of a call",
    breaks: &[],
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&WITHIN, Store::ALL, within_the_lease);
    cases.add(&BEYOND, Store::ALL, beyond_the_lease);
    cases.add(&IN_A_GRANT, Store::ALL, in_a_grant);
    cases.add(&IN_A_GRANT_BEYOND, Store::ALL, in_a_grant_beyond_the_limit);
}

async fn within_the_lease(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let lease = Duration::from_secs(15);
    let holder = acquired(&watched(&locks, lease)).await;
    server.freeze().unwrap();
    // By then a renewal has failed.
    endangered(&holder, lease / 3).await;
    server.go_on().unwrap();
    held_on(holder, &rival).await
}

async fn beyond_the_lease(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&watched(&locks, Duration::from_secs(6))).await;
    server.freeze().unwrap();
    let loss = loss(&holder).await;
    let Loss::NotRenewed { cause: Some(cause) } = loss else {
        panic!("{loss}");
    };
    assert!(cause.is_retryable(), "{cause}");
    server.go_on().unwrap();
    passed_on_after_the_loss(&holder, &rival).await
}

/// The holder counts from when it asked, the server from when it granted.
async fn in_a_grant(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let admin = distlock::open(server.url()).await.unwrap();
    let (lease, frozen) = (Duration::from_secs(60), Duration::from_millis(1500));
    // The first acquire looks at the server, which is not what is frozen here.
    acquired(&fixed(&locks, lease))
        .await
        .release()
        .await
        .unwrap();
    server.freeze().unwrap();
    let lock = fixed(&locks, lease);
    let asking = async {
        let holder = acquired(&lock).await;
        let (granted, left) = (clock::Instant::now(), holder.remaining());
        (holder, granted, left)
    };
    let ((holder, granted, left), ()) = tokio::join!(asking, async {
        clock::sleep(frozen).await;
        server.go_on().unwrap();
    });
    assert!(left <= lease - frozen, "{left:?}");
    let record = admin.inspect(&NAME.parse().unwrap()).await.unwrap();
    let at_the_server = record.unwrap().remaining;
    assert!(
        left <= at_the_server + granted.elapsed(),
        "{at_the_server:?}"
    );
    passed_on(holder, &rival).await;
    Seen::Held
}

/// What was granted when nobody waited any more is given back, long before its lease ends.
async fn in_a_grant_beyond_the_limit(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    acquired(&fixed(&locks, LONG))
        .await
        .release()
        .await
        .unwrap();
    server.freeze().unwrap();
    let error = fixed(&locks, LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    server.go_on().unwrap();
    let next = acquired_at_last(&fixed(&rival, LONG)).await;
    assert!(next.is_valid());
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    Seen::Error(error.kind())
}
