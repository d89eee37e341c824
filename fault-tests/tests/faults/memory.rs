//! The server forgets a lease that it granted.

use std::time::Duration;

use distlock::Loss;
use distlock_test_servers::Setup;

use crate::catalogue::{Assumption, Cases, Fault, Seen, Store};
use crate::evidence::{acquired, loss, passed_on_after_the_loss, two_holders};
use crate::ground::{Ground, LONG, fixed, mariadb_told, redis_asked, watched};

const DELETED: Fault = Fault {
    cases: "E2",
    words: "the records are deleted (FLUSHALL, DELETE)",
    breaks: &[Assumption::Memory],
};

const DELETED_WATCHED: Fault = Fault {
    cases: "E2",
    words: "the same, while a watchdog renews and before anybody else asks",
    breaks: &[Assumption::Memory],
};

const EVICTED: Fault = Fault {
    cases: "E8",
    words: "memory runs out under allkeys-lru",
    breaks: &[Assumption::Memory],
};

const NOT_FLUSHED: Fault = Fault {
    cases: "E6",
    words: "kill -9 with innodb_flush_log_at_trx_commit=0",
    breaks: &[Assumption::Memory],
};

const RESTORED: Fault = Fault {
    cases: "E7",
    words: "kill -9, and a start from an older copy of the data",
    breaks: &[Assumption::Memory],
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&DELETED, Store::ALL, deleted);
    cases.add(&DELETED_WATCHED, Store::ALL, deleted_while_watched);
    cases.add(&RESTORED, Store::ALL, restored);
    cases.add(&EVICTED, &[Store::Redis], evicted);
    cases.add(&NOT_FLUSHED, &[Store::MariaDb], not_flushed);
}

async fn deleted(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&fixed(&locks, LONG)).await;
    ground.forget(&server).await;
    two_holders(&holder, &rival).await
}

async fn deleted_while_watched(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&watched(&locks, Duration::from_secs(15))).await;
    ground.forget(&server).await;
    // By the next renewal, and not only by the deadline.
    let loss = loss(&holder).await;
    assert!(matches!(loss, Loss::Gone), "{loss}");
    passed_on_after_the_loss(&holder, &rival).await
}

async fn restored(ground: Ground) -> Seen {
    let mut server = ground.server().await;
    // Connected before: what a client knows of the server must not make a difference.
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    server.crash().unwrap();
    let backup = ground.backup(&server);
    server.start_again().await.unwrap();
    let holder = acquired(&fixed(&locks, LONG)).await;
    server.crash().unwrap();
    ground.restore(&server, &backup);
    server.start_again().await.unwrap();
    two_holders(&holder, &rival).await
}

async fn evicted(ground: Ground) -> Seen {
    let setup = ["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"];
    let server = ground.start(Setup::new().with(setup)).await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    let holder = acquired(&fixed(&locks, LONG)).await;
    let fill = "for i = 1, 200 do redis.call('SET', KEYS[1]..i, string.rep('x', 10000)) end";
    for round in 0.. {
        if !redis_asked::<bool>(&server, &["EXISTS", "lock:{job}"]).await {
            break;
        }
        let key = format!("filler-{round}-");
        let () = redis_asked(&server, &["EVAL", fill, "1", &key]).await;
    }
    two_holders(&holder, &rival).await
}

async fn not_flushed(ground: Ground) -> Seen {
    let mut server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    // Not even once a second, so that there is something to lose.
    let never =
        "SET GLOBAL innodb_flush_log_at_timeout = 2700, GLOBAL innodb_flush_log_at_trx_commit = 0";
    mariadb_told(&server, never).await;
    let holder = acquired(&fixed(&locks, LONG)).await;
    server.crash().unwrap();
    server.start_again().await.unwrap();
    two_holders(&holder, &rival).await
}
