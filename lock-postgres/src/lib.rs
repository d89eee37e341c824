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
//! row; two where two clients met in that moment. A renewal is one statement for any number of leases, and does not wait for a
//! row that another session keeps locked: that lease is answered with [`Timeout`](distlock_api::ErrorKind::Timeout), and the
//! others are renewed. Grants and renewals are on disk when they are answered; a release does not wait for the disk.
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
//! # Poolers
//!
//! A pooler between the backend and the server may send each transaction to another session. There, prepared statements run
//! other clients' statements without an error, and settings of a session are lost. So each new connection finds out whether
//! its settings arrive, by one question. Where a pooler swallows or refuses them, every statement goes as a single message of
//! the simple protocol, which prepares nothing and brings its settings along, for its own transaction only. All promises
//! stay, and so do the round trips; the server plans each statement anew. What is put in between while the program runs is
//! found out by the next connection, and the connections of before end with the switch.
//!
//! `lock_pooler=true` in the URL, or [`Builder::pooler`], says so beforehand and spares the finding out, which costs one more
//! try for each new connection where the pooler refuses settings. `options` in the URL, and `PGOPTIONS`, do not pass a pooler
//! and are refused there; where the table is not in the role's search path, name its schema by `lock_schema`. Leave room in
//! the pool: a try that waits for a locked row keeps a session of it.
//!
//! - **PgBouncer** 1.18 passes all rules of the family in the modes transaction, statement and session.
//! - **RDS Proxy** is known to refuse `options` (0A000), **Supabase's pooler** and **pgcat** to swallow them; all of these
//!   would be found out, but none was tried.
//! - **Pgpool-II** is said to pass settings on and to keep a client in one session, so that it would count as a direct
//!   connection. It was not tried: switch its load balancing and its query cache off.
//! - **Others** may pass settings on to sessions that they then share. We cannot see that: set `lock_pooler=true`.
//!
//! # Rights
//!
//! A client needs no more than this; the rules of the family pass under a role that has nothing else:
//!
//! ```sql
//! GRANT USAGE ON SCHEMA public TO app;
//! GRANT SELECT, INSERT, UPDATE ON distlock_locks TO app;
//! GRANT DELETE ON distlock_locks TO app; -- for purge only
//! ```
//!
//! [`migrate`](distlock_api::LockAdmin::migrate) needs `CREATE` on the schema where the table is missing, and on the database
//! where the schema is, too; where both are there, it needs none. Who only lists and inspects needs `USAGE` and `SELECT`.
//!
//! # Fencing
//!
//! A holder that was frozen past the end of its lease can still write when it wakes up. [`fencing`] has what keeps it out of
//! tables in PostgreSQL.
//!
//! # URL
//!
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`, also `postgresql://`, with the parameters `sslmode` (`disable`,
//! `prefer`, `require`, `verify-ca`, `verify-full`), `sslrootcert`, `sslcert`, `sslkey`, `application_name`, `options`,
//! `host`, `hostaddr`, `port`, `dbname`, `user`, `password`, and our own `lock_table`, `lock_schema` and `lock_pooler`
//! (`true` or `false`). Others are refused, not ignored. What is left out comes from `PGHOST`, `PGPASSWORD` and the like, or from `.pgpass`. A Unix
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
pub mod fencing;
mod schema;
mod server;
mod session;
mod statements;
mod url;
mod value;

pub use backend::PostgresBackend;
pub use builder::Builder;
pub use fencing::Fences;
pub use schema::{Table, schema_sql};
