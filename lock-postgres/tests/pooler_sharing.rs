//! Clients of a pooler that share its sessions: nobody's answers get mixed up, nobody's settings reach another.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Store, acquire, granted, pooler_options, request};
use distlock_api::clock::Instant;
use distlock_api::{ErrorKind, LockAdmin, LockBackend, Release};
use distlock_postgres::PostgresBackend;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

fn pooled(store: &Store) -> PostgresBackend {
    store.builder().for_options(pooler_options()).unwrap()
}

async fn release(backend: &PostgresBackend, request: &distlock_api::AcquireRequest) {
    let release = backend.release(&request.lease_id(), Duration::ZERO).await;
    assert_eq!(release.unwrap(), Release::Released);
}

/// Takes a lock, renews and releases.
async fn cycle(backend: &PostgresBackend) {
    let (held, _) = acquire(backend, "job").await;
    let renewed = backend.renew(&[(held.lease_id(), common::LEASE)]).await;
    assert_eq!(
        renewed[0].as_ref().unwrap(),
        &distlock_api::Renewal::Renewed
    );
    release(backend, &held).await;
}

/// What each write saw of its session, in the order of the commits.
const SPY: &str = "CREATE TABLE {}_seen (number serial, pid int, setting text);
    CREATE FUNCTION {}_spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.{}_seen (pid, setting) VALUES (pg_backend_pid(), concat_ws(', ',
            current_setting('transaction_isolation'), current_setting('synchronous_commit'),
            current_setting('lock_timeout'), current_setting('statement_timeout')));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER spy AFTER INSERT OR UPDATE ON {} DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION {}_spy()";
const NO_SPY: &str = "DROP TABLE {}, {}_seen; DROP FUNCTION {}_spy";

#[tokio::test]
async fn settings_of_the_role_do_not_reach_lock_statements_and_a_release_is_not_flushed() {
    // (trap 7)
    let mut store = Store::new("settings").await;
    store.run(SPY).await;
    let (role, options) = store.role().await;
    store
        .run(&format!(
            "GRANT ALL ON {{}}_seen, {{}}_seen_number_seq TO {role};
             ALTER ROLE {role} SET default_transaction_isolation = serializable;
             ALTER ROLE {role} SET synchronous_commit = off;
             ALTER ROLE {role} SET bytea_output = escape;
             ALTER ROLE {role} SET standard_conforming_strings = off;
             ALTER ROLE {role} SET lock_timeout = 0;
             ALTER ROLE {role} SET statement_timeout = 0"
        ))
        .await;
    let builder = store.builder().pooler(true);
    cycle(&builder.for_options(options).unwrap()).await;
    let seen = "SELECT string_agg(setting, '; ' ORDER BY number) FROM {}_seen";
    let setting = |commit| format!("read committed, {commit}, 4s, 4500ms");
    let expected = ["on", "on", "off"].map(setting).join("; ");
    assert_eq!(store.value::<String>(seen).await, expected);
    store.run(NO_SPY).await;
    store.close().await;
}

/// Another client of the pooler, and the lock statements that it meets in the same session.
struct Neighbours {
    store: Store,
    backend: PostgresBackend,
    other: PgConnection,
    busy: Vec<PgConnection>,
    cycles: u32,
}

impl Neighbours {
    async fn new(label: &str) -> Self {
        let mut store = Store::new(label).await;
        store.run(SPY).await;
        let other = PgConnection::connect_with(&pooler_options()).await;
        Self {
            backend: pooled(&store),
            other: other.unwrap(),
            busy: Vec::new(),
            cycles: 0,
            store,
        }
    }

    /// Takes and frees a lock; the session that it was freed in.
    async fn cycle(&mut self) -> i32 {
        self.cycles += 1;
        assert!(self.cycles < 5000, "the pooler never gave the same session");
        cycle(&self.backend).await;
        let last = "SELECT pid FROM {}_seen ORDER BY number DESC LIMIT 1";
        self.store.value(last).await
    }

    /// The same in this session. The pooler gives the one that was used last, so that others are kept busy by open
    /// transactions until it has no other to give.
    async fn cycle_in(&mut self, wanted: i32) {
        while self.cycle().await != wanted {
            let mut client = PgConnection::connect_with(&pooler_options()).await.unwrap();
            let begun = sqlx::raw_sql("BEGIN; SELECT pg_backend_pid()");
            let row = begun.fetch_one(&mut client).await.unwrap();
            match sqlx::Row::get::<i32, _>(&row, 0) == wanted {
                true => drop(sqlx::raw_sql("ROLLBACK").execute(&mut client).await),
                false => self.busy.push(client),
            }
        }
    }

    /// Asks as the other client in a session that a lock statement has just used, in this one if it is given, and in no
    /// other. Tests that run meanwhile may get in between.
    async fn ask(&mut self, wanted: Option<i32>, sql: &str) -> (i32, String) {
        loop {
            let pid = match wanted {
                None => self.cycle().await,
                Some(wanted) => {
                    self.cycle_in(wanted).await;
                    wanted
                }
            };
            let sql = format!("SELECT CASE WHEN pg_backend_pid() = {pid} THEN ({sql}) END");
            let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut self.other);
            if let Some(answer) = sqlx::Row::get(&row.await.unwrap(), 0) {
                return (pid, answer);
            }
        }
    }

    async fn close(mut self) {
        self.store.run(NO_SPY).await;
        self.store.close().await;
    }
}

/// What one leaves behind, another would find.
static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn our_settings_do_not_reach_other_clients_of_the_pooler() {
    let _alone = ALONE.lock().await;
    let mut neighbours = Neighbours::new("leaks").await;
    // What a transaction of theirs would have, and what the server's own sessions have.
    let sql = "SELECT concat_ws(', ', current_setting('transaction_isolation'), current_setting('synchronous_commit'),
                   current_setting('lock_timeout'), current_setting('statement_timeout'),
                   current_setting('search_path'), current_setting('bytea_output'))";
    let (_, theirs) = neighbours.ask(None, sql).await;
    assert_eq!(theirs, neighbours.store.value::<String>(sql).await);
    neighbours.close().await;
}

#[tokio::test]
async fn what_other_clients_left_in_a_session_does_not_reach_us() {
    let _alone = ALONE.lock().await;
    let mut neighbours = Neighbours::new("left").await;
    let left = "SELECT concat(set_config('search_path', 'nowhere', false), set_config('bytea_output', 'escape', false),
                    set_config('synchronous_commit', 'off', false), set_config('role', 'pg_monitor', false),
                    set_config('default_transaction_read_only', 'on', false),
                    set_config('default_transaction_isolation', 'serializable', false))";
    let (pid, _) = neighbours.ask(None, left).await;
    neighbours.cycle_in(pid).await;
    // Neither the role nor the reading alone is met by the backend, else the cycle would have failed.
    let strange =
        "SELECT count(*) FROM {}_seen WHERE setting NOT LIKE 'read committed, o%, 4s, 4500ms'";
    let strange: i64 = neighbours.store.value(strange).await;
    let undo = "SELECT concat(string_agg(set_config(name, reset_val, false), ' ')) FROM pg_settings WHERE name IN
                    ('search_path', 'bytea_output', 'synchronous_commit', 'default_transaction_isolation', 'role',
                     'default_transaction_read_only')";
    neighbours.ask(Some(pid), undo).await;
    assert_eq!(strange, 0);
    neighbours.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_clients_of_a_small_pool_each_get_their_own_answers() {
    let store = Arc::new(Store::new("twelve").await);
    let mut clients = JoinSet::new();
    for client in 0..12 {
        let store = Arc::clone(&store);
        clients.spawn(async move {
            let backend = pooled(&store);
            for round in 0..40 {
                let mut request = request(&format!("job-{client}-{round}"));
                request.owner = format!("{client}/{round}");
                let attempt = backend.try_acquire(&request).await.unwrap();
                let fence = granted(&attempt).unwrap();
                let record = backend.inspect(&request.name).await.unwrap().unwrap();
                assert_eq!(record.owner.as_deref(), Some(&*request.owner));
                assert_eq!(record.fencing_token.map(|fence| fence.value()), Some(fence));
                release(&backend, &request).await;
            }
        });
    }
    clients.join_all().await;
    Arc::into_inner(store).unwrap().close().await;
}

/// PgBouncer 1.21 or later can keep prepared statements apart; earlier ones do not know the setting.
async fn let_it_mix_them_up() {
    let console = pooler_options().database("pgbouncer");
    let mut console = PgConnection::connect_with(&console).await.unwrap();
    let set = sqlx::raw_sql("SET max_prepared_statements = 0");
    set.execute(&mut console).await.ok();
}

/// Why all this: what the test above would meet.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_get_mixed_up_there() {
    let_it_mix_them_up().await;
    let began = Instant::now();
    let mut mixed_up = 0;
    while mixed_up == 0 && began.elapsed() < Duration::from_secs(60) {
        let mut clients = JoinSet::new();
        for client in 0..12 {
            clients.spawn(async move {
                let mut connection = PgConnection::connect_with(&pooler_options()).await.unwrap();
                let mut wrong = 0;
                for _ in 0..40 {
                    let query = sqlx::query_scalar(AssertSqlSafe(format!("SELECT {client}")));
                    let answer: sqlx::Result<i32> = query.fetch_one(&mut connection).await;
                    wrong += u32::from(answer.ok() != Some(client));
                }
                wrong
            });
        }
        mixed_up += clients.join_all().await.into_iter().sum::<u32>();
        // What they prepared stays in the pool's sessions, and is nothing to us.
    }
    assert!(mixed_up > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_race_has_one_winner() {
    // (A1, A2)
    let mut store = Store::new("race").await;
    let one = || Arc::new(pooled(&store));
    let backends: Vec<_> = (0..4).map(|_| one()).collect();
    let mut last = 0;
    for round in 0..60 {
        let fresh = format!("fresh-{round}");
        for name in [&*fresh, "old"] {
            let mut tries = JoinSet::new();
            for contender in 0..16 {
                let (backend, request) = (Arc::clone(&backends[contender % 4]), request(name));
                tries.spawn(async move { backend.try_acquire(&request).await.unwrap() });
            }
            let answers = tries.join_all().await;
            let winners: Vec<u64> = answers.iter().filter_map(granted).collect();
            assert_eq!(winners.len(), 1, "{answers:?}");
            assert!(winners[0] > last);
            last = winners[0];
        }
        store
            .run("UPDATE {} SET lock_until = clock_timestamp() - interval '1 hour'")
            .await;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_migrate_at_once_and_a_schema_is_made_too() {
    // (U6)
    let mut store = Store::without_table("migrate").await;
    let schema = common::unique("schema");
    let table = distlock_postgres::Table::new(&store.table).unwrap();
    let table = table.in_schema(&schema).unwrap();
    let backend = || {
        let builder = PostgresBackend::builder().table(table.clone());
        builder.for_options(pooler_options()).unwrap()
    };
    let error = common::fault(&backend()).await;
    assert_eq!(error.kind(), ErrorKind::SchemaMissing, "{error}");
    let mut nodes = JoinSet::new();
    for backend in [(); 8].map(|()| backend()) {
        nodes.spawn(async move { backend.migrate().await });
    }
    for outcome in nodes.join_all().await {
        outcome.unwrap();
    }
    assert!(backend().check().await.unwrap().is_empty());
    cycle(&backend()).await;
    store.run(&format!("DROP SCHEMA {schema} CASCADE")).await;
    store.close().await;
}
