//! Distributed locks in a PostgreSQL table, on the time of the database.
//!
//! ```no_run
//! # async fn example() -> distlock_api::Result<()> {
//! use distlock_api::LockAdmin;
//! use distlock_postgres::PostgresBackend;
//!
//! let backend = PostgresBackend::connect("postgres://app:secret@db.example/app").await?;
//! backend.migrate().await?; // once, or apply the printed schema
//! # Ok(())
//! # }
//! ```
//!
//! PostgreSQL 13 or later. All processes share one table, by default `distlock_locks` in the first schema of the
//! search path; see [`Table`] for another one and [`schema_sql`] for how it is made.
//!
//! # What it promises
//!
//! At most one holder per lock name, as long as all clients talk to the same primary. **It fails where the server
//! forgets or misjudges:** after a failover to a standby that had not yet received the grant (asynchronous
//! replication), after a crash with `fsync` or `full_page_writes` off, after a restore from a backup, and when the
//! server's clock is stepped forward while a lease runs. Where grants wait for a synchronous standby, a
//! `pg_cancel_backend` in that wait makes the server report success for a grant that only the primary has. The fencing
//! tokens then still grow, unless the clock of the server is behind the last token.
//!
//! Every lease is counted on the server's clock; the clocks and time zones of clients and sessions play no part.
//!
//! # What it costs
//!
//! A grant and a release are one statement each. A refusal is one statement too, which writes nothing and locks no
//! row; two where two clients met in that moment. Grants and renewals are on disk when they are answered; a
//! release does not wait for the disk.
//!
//! # Connections
//!
//! Lock statements run on connections of the backend's own, in no transaction of yours: a pool that is busy holds nothing
//! up. There are at most 4 for acquires and operators' calls, and at most 4 more for renewals and releases, which so never
//! wait behind tries that hang on a locked row; [`Builder::max_connections`] sets both numbers. Besides, each call of
//! [`check`](distlock_api::LockAdmin::check) or [`migrate`](distlock_api::LockAdmin::migrate) has one of its own while it
//! lasts. They are opened when needed. One that was idle for 30 s, or whose call failed or was dropped, is not used again.
//!
//! From a [`PgPool`](sqlx::PgPool) only the connect options are taken; hooks such as `after_connect`
//! are not run. The connections are set to `read committed`, to `synchronous_commit = on` and to time limits below
//! the operation limit.
//!
//! A pooler in transaction mode (PgBouncer) between the backend and the server is detected and refused: connect to the
//! server directly.
//!
//! # Rights
//!
//! `USAGE` on the schema and `SELECT`, `INSERT`, `UPDATE` on the table; `DELETE` for
//! [`purge`](distlock_api::LockAdmin::purge); `CREATE` on the schema for [`migrate`](distlock_api::LockAdmin::migrate),
//! and on the database where the schema is missing, too.
//!
//! # URL
//!
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`, also `postgresql://`, with the parameters `sslmode` (`disable`,
//! `prefer`, `require`, `verify-ca`, `verify-full`), `sslrootcert`, `sslcert`, `sslkey`, `application_name`, `options`,
//! `host`, `hostaddr`, `port`, `dbname`, `user`, `password`, and our own `lock_table` and `lock_schema`. Others are
//! refused, not ignored. What is left out comes from `PGHOST`, `PGPASSWORD` and the like, or from `.pgpass`. A Unix
//! socket is `postgres:///DATABASE?host=/run/postgresql&user=USER`. An `@` behind the host is refused, because it is most
//! likely the end of a password that should have been percent-encoded: where one is meant, write `%40`.
//!
//! # By hand
//!
//! The table may be read and written by people. A lock whose `lock_until` is set to `infinity` stays
//! held until it is forced free, or released by a holder that it had: so a job is paused. It is reported with the longest
//! lease as what remains, and with no instant of its end.
//!
//! # Errors
//!
//! The [`driver_error`](distlock_api::Error::driver_error) of an error, where it has one, is an [`sqlx::Error`].

mod admin;
mod backend;
mod builder;
mod check;
mod error;
mod schema;
mod server;
mod statements;
mod url;

pub use backend::PostgresBackend;
pub use builder::Builder;
pub use schema::{Table, schema_sql};
