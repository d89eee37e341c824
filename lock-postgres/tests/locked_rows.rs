//! Rows that another session keeps locked: what callers who give up leave at the server, and what becomes of the leases in
//! the company of such a row. Each on the server itself and through PgBouncer (B13, U11, promise 8).
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::{Store, until};
use distlock_api::LockAdmin;
use distlock_conformance::locked_rows::{self, LockedRows};
use distlock_postgres::PostgresBackend;
use sqlx::postgres::PgConnectOptions;

/// How long a call to the store may take.
const LIMIT: Duration = Duration::from_secs(3);

/// Makes two tests of a function that takes the way to the server.
macro_rules! on_both_ways {
    ($($name:ident),* $(,)?) => {
        mod direct {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::common::options()).await;
            })*
        }
        mod pooled {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::common::pooler_options()).await;
            })*
        }
    };
}

/// A table whose rows its own session locks.
struct Rows {
    store: Store,
    backend: Arc<PostgresBackend>,
}

impl Rows {
    async fn new(way: &PgConnectOptions) -> Self {
        let store = Store::new("locked").await;
        let builder = store.builder().operation_limit(LIMIT);
        let backend = Arc::new(builder.for_options(way.clone()).unwrap());
        Self { store, backend }
    }
}

#[async_trait]
impl LockedRows for Rows {
    fn backend(&self) -> Arc<dyn LockAdmin> {
        self.backend.clone()
    }

    async fn lock_row(&mut self, name: &str) {
        let lock = format!("BEGIN; SELECT FROM {{}} WHERE name = '{name}' FOR UPDATE");
        self.store.run(&lock).await;
    }

    async fn unlock(&mut self) {
        self.store.run("ROLLBACK").await;
    }

    /// Whoever sent it: PgBouncer sends from sessions of its own.
    async fn until_one_waits(&self) {
        let table = &self.store.table;
        until(&format!(
            "SELECT count(*) = 1 FROM pg_stat_activity
             WHERE query LIKE '%{table}%' AND wait_event_type = 'Lock'"
        ))
        .await;
    }

    async fn until_nothing_is_left(&self) {
        let table = &self.store.table;
        until(&format!(
            "SELECT count(*) = 0 FROM pg_stat_activity
             WHERE query LIKE '%{table}%' AND state <> 'idle' AND query NOT LIKE '%FOR UPDATE'
               AND pid <> pg_backend_pid()"
        ))
        .await;
    }
}

async fn a_dropped_try_stops_waiting_for_the_row_by_itself_and_takes_nothing(
    way: PgConnectOptions,
) {
    let mut rows = Rows::new(&way).await;
    locked_rows::dropped_try(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn a_try_that_times_out_stops_waiting_for_the_row_and_takes_nothing(way: PgConnectOptions) {
    let mut rows = Rows::new(&way).await;
    locked_rows::timed_out_try(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn what_is_granted_after_its_caller_gave_up_is_released(way: PgConnectOptions) {
    let mut rows = Rows::new(&way).await;
    locked_rows::late_grant(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn a_renewal_waits_for_no_row_and_tells_which_was_locked(way: PgConnectOptions) {
    let mut rows = Rows::new(&way).await;
    locked_rows::renewal(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn one_stuck_row_takes_no_other_lease_down_and_is_told_in_time(way: PgConnectOptions) {
    for seconds in [3, 6, 12] {
        let mut rows = Rows::new(&way).await;
        let ttl = Duration::from_secs(seconds);
        let shown = locked_rows::company(&mut rows, ttl).await.unwrap();
        rows.store.close().await;
        if shown {
            return;
        }
    }
    panic!("the machine is too slow to tell");
}

on_both_ways![
    a_dropped_try_stops_waiting_for_the_row_by_itself_and_takes_nothing,
    a_try_that_times_out_stops_waiting_for_the_row_and_takes_nothing,
    what_is_granted_after_its_caller_gave_up_is_released,
    a_renewal_waits_for_no_row_and_tells_which_was_locked,
    one_stuck_row_takes_no_other_lease_down_and_is_told_in_time,
];
