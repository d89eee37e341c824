//! Rows that another session keeps locked: what callers who give up leave at the server, and what becomes of the leases in
//! the company of such a row (B13, U11, promise 8).
#![allow(clippy::unwrap_used, reason = "test code")]

#[macro_use]
mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::{Server, Store};
use distlock_api::LockAdmin;
use distlock_conformance::locked_rows::{self, LockedRows};
use distlock_mysql::MySqlBackend;

/// How long a call to the store may take.
const LIMIT: Duration = Duration::from_secs(3);

/// A table whose rows its own session locks.
struct Rows {
    store: Store,
    backend: Arc<MySqlBackend>,
}

impl Rows {
    async fn new(server: Server) -> Self {
        let store = Store::new(server, "locked").await;
        let builder = store.builder().operation_limit(LIMIT);
        let backend = Arc::new(builder.for_options(store.options()).unwrap());
        Self { store, backend }
    }
}

#[async_trait]
impl LockedRows for Rows {
    fn backend(&self) -> Arc<dyn LockAdmin> {
        self.backend.clone()
    }

    async fn lock_row(&mut self, name: &str) {
        // Of the row alone, and not of the gaps beside it.
        let lock = format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; SELECT * FROM {{}} WHERE name = '{name}' FOR UPDATE"
        );
        self.store.run(&lock).await;
    }

    async fn unlock(&mut self) {
        self.store.run("ROLLBACK").await;
    }

    async fn until_one_waits(&self) {
        self.store.until_waiting(1).await;
    }

    async fn until_nothing_is_left(&self) {
        self.store.until_waiting(0).await;
        let mine = self.store.processes();
        let none = format!(
            "SELECT COUNT(*) = 0 FROM information_schema.innodb_trx JOIN ({mine}) AS mine ON trx_mysql_thread_id = mine.id"
        );
        self.store.server.until(&none).await;
    }
}

async fn a_dropped_try_stops_waiting_for_the_row_by_itself_and_takes_nothing(server: Server) {
    let mut rows = Rows::new(server).await;
    locked_rows::dropped_try(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn a_try_that_times_out_stops_waiting_for_the_row_and_takes_nothing(server: Server) {
    let mut rows = Rows::new(server).await;
    locked_rows::timed_out_try(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn what_is_granted_after_its_caller_gave_up_is_released(server: Server) {
    let mut rows = Rows::new(server).await;
    locked_rows::late_grant(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn a_renewal_waits_for_no_row_and_tells_which_was_locked(server: Server) {
    let mut rows = Rows::new(server).await;
    locked_rows::renewal(&mut rows).await.unwrap();
    rows.store.close().await;
}

async fn one_stuck_row_takes_no_other_lease_down_and_is_told_in_time(server: Server) {
    for seconds in [3, 6, 12] {
        let mut rows = Rows::new(server).await;
        let ttl = Duration::from_secs(seconds);
        let shown = locked_rows::company(&mut rows, ttl).await.unwrap();
        rows.store.close().await;
        if shown {
            return;
        }
    }
    panic!("the machine is too slow to tell");
}

on_both![
    a_dropped_try_stops_waiting_for_the_row_by_itself_and_takes_nothing,
    a_try_that_times_out_stops_waiting_for_the_row_and_takes_nothing,
    what_is_granted_after_its_caller_gave_up_is_released,
    a_renewal_waits_for_no_row_and_tells_which_was_locked,
    one_stuck_row_takes_no_other_lease_down_and_is_told_in_time,
];
