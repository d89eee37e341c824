//! What only PostgreSQL does.

use std::pin::pin;

use distlock::{Effect, ErrorKind};
use distlock_test_servers::{Server, Setup};
use sqlx::{Connection, PgConnection};

use crate::catalogue::{Cases, Fault, Seen, Store};
use crate::evidence::{acquired, passed_on, refused};
use crate::ground::{Ground, LONG, fixed, postgres_asked, soon};

const STANDBY: Fault = Fault {
    cases: "F9",
    words: "the server is a standby, which takes no writes, until it is promoted",
    breaks: &[],
};

const COMMIT_FAILS: Fault = Fault {
    cases: "F4",
    words: "the commit of a grant fails (a deferred constraint)",
    breaks: &[],
};

const WAIT_CANCELLED: Fault = Fault {
    cases: "F5",
    words: "the wait for a synchronous standby is cancelled: granted, and nobody else has the record",
    breaks: &[],
};

pub(crate) fn cases(cases: &mut Cases) {
    cases.add(&STANDBY, &[Store::Postgres], a_standby);
    cases.add(&COMMIT_FAILS, &[Store::Postgres], a_commit_that_fails);
    cases.add(
        &WAIT_CANCELLED,
        &[Store::Postgres],
        a_cancelled_wait_for_a_standby,
    );
}

async fn a_standby(ground: Ground) -> Seen {
    let primary = ground.server().await;
    let standby = ground.replica(&primary, Setup::new()).await;
    let backend = distlock::open(standby.url()).await.unwrap();
    let locks = distlock::Locks::from_arc(backend);
    let error = fixed(&locks, LONG).try_acquire().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::ReadOnly, Effect::None),
        "{error}"
    );
    ground.promote(&standby).await;
    let guard = acquired(&fixed(&locks, LONG)).await;
    assert!(guard.is_valid());
    Seen::Error(error.kind())
}

async fn a_commit_that_fails(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    told(
        &server,
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not today'; END$$;
        CREATE CONSTRAINT TRIGGER no AFTER INSERT OR UPDATE ON distlock_locks
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()",
    )
    .await;
    let error = fixed(&locks, LONG).try_acquire().await.unwrap_err();
    told(&server, "DROP TRIGGER no ON distlock_locks").await;
    let guard = acquired(&fixed(&rival, LONG)).await;
    assert!(guard.is_valid());
    Seen::Error(error.kind())
}

async fn a_cancelled_wait_for_a_standby(ground: Ground) -> Seen {
    let server = ground.server().await;
    let (locks, rival) = (ground.locks(&server).await, ground.locks(&server).await);
    acquired(&fixed(&locks, LONG))
        .await
        .release()
        .await
        .unwrap();
    told(
        &server,
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
    )
    .await;
    assert!(postgres_asked::<bool>(&server, "SELECT pg_reload_conf()").await);
    let lock = fixed(&locks, LONG);
    let holder = loop {
        let mut asking = pin!(acquired(&lock));
        tokio::select! {
            // The server has not read its new settings yet.
            guard = &mut asking => guard.release().await.unwrap(),
            () = cancelled_wait(&server) => break asking.await,
        };
    };
    refused(&rival).await;
    told(&server, "ALTER SYSTEM RESET synchronous_standby_names").await;
    assert!(postgres_asked::<bool>(&server, "SELECT pg_reload_conf()").await);
    passed_on(holder, &rival).await;
    Seen::Held
}

/// Cancels the statement that waits for a standby, once there is one.
async fn cancelled_wait(server: &Server) {
    let cancel = "SELECT COALESCE(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity
        WHERE wait_event = 'SyncRep'";
    while !postgres_asked::<bool>(server, cancel).await {
        soon().await;
    }
}

async fn told(server: &Server, sql: &'static str) {
    let mut session = PgConnection::connect(server.url()).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut session).await.unwrap();
}
