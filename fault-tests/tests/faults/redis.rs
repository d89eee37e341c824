//! What only Redis does.

use std::fs;
use std::time::Duration;

use distlock::{ErrorKind, clock};
use distlock_test_servers::Server;

use crate::catalogue::{Cases, Fault, Seen, Store};
use crate::evidence::{acquired, endangered, held_on, passed_on};
use crate::ground::{Ground, LONG, fixed, redis_asked, watched};

const CANNOT_SAVE: Fault = Fault {
    cases: "E10",
    words: "the server cannot save its data, and takes no writes (MISCONF), until it can",
    breaks: &[],
};

const MISSES_REPLICAS: Fault = Fault {
    cases: "E11",
    words: "the server misses replicas, and takes no writes (NOREPLICAS), until it need not have any",
    breaks: &[],
};

const PAUSED: Fault = Fault {
    cases: "E4",
    words: "writes are paused while the server is asked for the lock (CLIENT PAUSE)",
    breaks: &[],
};

const LOADING: Fault = Fault {
    cases: "E11",
    words: "the server is loading its data after kill -9 (LOADING)",
    breaks: &[],
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&CANNOT_SAVE, &[Store::Redis], a_server_that_cannot_save);
    cases.add(
        &MISSES_REPLICAS,
        &[Store::Redis],
        a_server_that_misses_replicas,
    );
    cases.add(&LOADING, &[Store::Redis], a_server_that_is_loading);
    cases.add(&PAUSED, &[Store::Redis], paused_writes);
}

async fn a_server_that_cannot_save(ground: Ground) -> Seen {
    let server = ground.server().await;
    let in_the_way = server.folder().join("dump.rdb");
    let fault = async {
        fs::create_dir_all(in_the_way.join("full")).unwrap();
        let () = redis_asked(&server, &["CONFIG", "SET", "save", "3600 1"]).await;
        let () = redis_asked(&server, &["BGSAVE"]).await;
        until(&server, "rdb_last_bgsave_status:err").await;
    };
    let mended = async {
        fs::remove_dir_all(&in_the_way).unwrap();
        let () = redis_asked(&server, &["BGSAVE"]).await;
        until(&server, "rdb_last_bgsave_status:ok").await;
    };
    unavailable_for_a_while(&ground, &server, fault, mended).await
}

async fn a_server_that_misses_replicas(ground: Ground) -> Seen {
    let server = ground.server().await;
    let fault = async {
        let () = redis_asked(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    };
    let mended = async {
        let () = redis_asked(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    };
    unavailable_for_a_while(&ground, &server, fault, mended).await
}

/// Nobody gets a lock, and the watchdog tries until its renewal is taken.
async fn unavailable_for_a_while(
    ground: &Ground,
    server: &Server,
    fault: impl Future<Output = ()>,
    mended: impl Future<Output = ()>,
) -> Seen {
    let (locks, rival) = (ground.locks(server).await, ground.locks(server).await);
    let lease = Duration::from_secs(12);
    let holder = acquired(&watched(&locks, lease)).await;
    fault.await;
    let error = fixed(&rival, LONG).try_acquire().await.unwrap_err();
    endangered(&holder, lease / 2).await;
    mended.await;
    held_on(holder, &rival).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    Seen::Error(error.kind())
}

async fn a_server_that_is_loading(ground: Ground) -> Seen {
    let slowly = [
        "--key-load-delay",
        "10000",
        "--loading-process-events-interval-bytes",
        "1024",
    ];
    let mut server = ground.start(ground.with_memory().with(slowly)).await;
    let locks = ground.locks(&server).await;
    let () = redis_asked(&server, &["DEBUG", "POPULATE", "200"]).await;
    let () = redis_asked(&server, &["BGREWRITEAOF"]).await;
    until(&server, "aof_rewrite_in_progress:0").await;
    let holder = acquired(&watched(&locks, Duration::from_secs(20))).await;
    server.crash().unwrap();
    let rival = fixed(&locks, LONG);
    let told = async {
        loop {
            let error = rival.try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            if error.to_string().contains("LOADING") {
                return error.kind();
            }
            crate::ground::soon().await;
        }
    };
    let (started, kind) = tokio::join!(server.start_again(), told);
    started.unwrap();
    held_on(holder, &ground.locks(&server).await).await;
    Seen::Error(kind)
}

async fn until(server: &Server, line: &str) {
    while !redis_asked::<String>(server, &["INFO", "persistence"])
        .await
        .contains(line)
    {
        crate::ground::soon().await;
    }
}

/// The lease that the server counts from the end of the pause is longer than what the holder counts on.
async fn paused_writes(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    acquired(&fixed(&locks, LONG))
        .await
        .release()
        .await
        .unwrap();
    let lease = Duration::from_secs(60);
    // From before the server can have begun its pause: it ends no earlier, however late the answer is.
    let start = clock::Instant::now();
    let () = redis_asked(&server, &["CLIENT", "PAUSE", "3000", "WRITE"]).await;
    let asked = clock::Instant::now();
    let holder = acquired(&fixed(&locks, lease)).await;
    let (waited, left) = (asked.elapsed(), holder.remaining());
    assert!(start.elapsed() > Duration::from_secs(2), "no pause");
    assert!(left <= lease - waited, "{left:?} after {waited:?}");
    passed_on(holder, &rival).await;
    Seen::Held
}
