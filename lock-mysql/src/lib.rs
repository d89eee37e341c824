//! Distributed locks in a table of MySQL or MariaDB, on the time of the database.
//!
//! ```no_run
//! # async fn example() -> distlock_api::Result<()> {
//! use distlock_api::LockAdmin;
//! use distlock_mysql::MySqlBackend;
//!
//! let backend = MySqlBackend::connect("mysql://app:secret@db.example/app").await?;
//! backend.migrate().await?; // once, or apply the printed schema
//! # Ok(())
//! # }
//! ```
//!
//! MySQL 8.0.17 or later, MariaDB 10.6 or later. All processes share one table, by default `distlock_locks` in the database
//! of the URL; see [`Table`] for another one and [`schema_sql`] for how it is made.
//!
//! # What it promises
//!
//! At most one holder per lock name, as long as all clients talk to the same primary. **It fails where the server
//! forgets or misjudges:** after a failover to a replica that had not yet received the grant (asynchronous and
//! semi-synchronous replication), after a crash with `innodb_flush_log_at_trx_commit` or `sync_binlog` other than 1, after a
//! restore from a backup, and when the server's clock is stepped forward while a lease runs. The fencing tokens then still
//! grow, unless the clock of the server is behind the last token; [`Fences`] refuses stale holders at the data.
//!
//! Every lease is counted on the server's clock, in UTC; the clocks and time zones of clients and sessions play no part.
//!
//! In a cluster whose nodes all take writes (Galera, Group Replication) the nodes agree on one holder: of two grants at the
//! same time one is rolled back when it is committed. But each node counts leases by its own clock, so that one whose clock
//! is ahead grants too early, and refusals and lists may be out of date. Point the URLs of all clients at one node.
//!
//! # What it costs
//!
//! A grant and a release are one statement each, and so one round trip once it is prepared. A refusal is two, which write
//! nothing; the first grant of a name is three. A renewal is one statement for up to 256 leases, and one more to tell which
//! of them were lost, if any. It does not wait for a row that another session keeps locked: that lease is answered with
//! [`Timeout`](distlock_api::ErrorKind::Timeout), and the others are renewed. Grants, renewals and releases are on disk when
//! they are answered, as far as the server's settings go.
//!
//! # Connections
//!
//! Lock statements run on connections of the backend's own, in no transaction of yours: a pool that is busy holds nothing
//! up. There are at most 4 for acquires and operators' calls, and at most 4 more for renewals and releases, which so never
//! wait behind tries that hang on a locked row; [`Builder::max_connections`] sets both numbers. Besides, each call of
//! [`check`](distlock_api::LockAdmin::check) or [`migrate`](distlock_api::LockAdmin::migrate) has one of its own while it
//! lasts. They are opened when needed. One that was idle for 30 s, or whose call failed or was dropped, is not used again.
//!
//! From a [`MySqlPool`](sqlx::MySqlPool) only the connect options are taken; hooks such as `after_connect` are not run.
//! The sessions are set to `READ COMMITTED`, `autocommit`, a strict `sql_mode`, `utf8mb4`, UTC, and to time limits below the
//! operation limit, whatever the server's defaults, the options or the URL say.
//!
//! # Purging
//!
//! Keep `free_for` above the operation limit. The server's clock stands still while a statement waits, so that a first grant
//! that waited while its name's record was purged may get a fencing token from before it.
//!
//! # Rights
//!
//! `SELECT`, `INSERT`, `UPDATE` on the table; `DELETE` for [`purge`](distlock_api::LockAdmin::purge); `CREATE` for
//! [`migrate`](distlock_api::LockAdmin::migrate), where there is something to be made.
//!
//! ```sql
//! GRANT SELECT, INSERT, UPDATE, DELETE ON app.distlock_locks TO 'app'@'%'
//! ```
//!
//! # URL
//!
//! `mysql://USER:PASSWORD@HOST:PORT/DATABASE?…`, also `mariadb://`, with the parameters `ssl-mode` (`disabled`,
//! `preferred`, `required`, `verify_ca`, `verify_identity`; by default `preferred`), `ssl-ca`, `ssl-cert`, `ssl-key`,
//! `socket`, and our own `lock_table` and `lock_schema`, which is the same as a database here. `charset`, `collation`, `timezone` and
//! `statement-cache-capacity` are taken for the sake of URLs that others use, too, and change nothing. Others are refused,
//! not ignored. What is left out is `root`, no password, port 3306. A Unix socket is
//! `mysql://USER@localhost/DATABASE?socket=/run/mysqld/mysqld.sock`. An `@` behind the host is refused, because it is most
//! likely the end of a password that should have been percent-encoded: where one is meant, write `%40`.
//!
//! With `ssl-mode=disabled`, also through a socket, MySQL's own way to log in (`caching_sha2_password`) wants RSA until the
//! server has seen the password once. That is left out here, because anybody in between could read the password: leave TLS
//! on, as it is by default. Who wants RSA all the same adds
//! `sqlx = { version = "0.9", features = ["mysql-rsa"] }` to their own dependencies.
//!
//! # By hand
//!
//! The table may be read and written by people, in UTC. A lock whose `lock_until` is set to `9999-12-31` stays held until it is
//! forced free, or released by a holder that it had: so a job is paused. It is reported with the longest lease as what
//! remains.
//!
//! # Errors
//!
//! The [`driver_error`](distlock_api::Error::driver_error) of an error, where it has one, is an [`sqlx::Error`].

mod admin;
mod backend;
mod builder;
mod check;
mod error;
mod fencing;
mod schema;
mod server;
mod statements;
mod url;

pub use backend::MySqlBackend;
pub use builder::Builder;
pub use fencing::Fences;
pub use schema::{Table, schema_sql};
