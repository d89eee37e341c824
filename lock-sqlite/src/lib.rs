//! Locks in one SQLite file, for the processes of one machine: the store of `distlock` that needs no server.
//!
//! ```
//! use std::time::Duration;
//! use distlock_api::{Acquisition, LockAdmin, Locks};
//! use distlock_sqlite::SqliteBackend;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> distlock_api::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("locks.db");
//! let backend = SqliteBackend::builder().file(path).build()?;
//! backend.migrate().await?; // once, at deployment: makes the file and the table
//!
//! let locks = Locks::new(backend);
//! let lock = locks.lock("nightly")?.at_most_for(Duration::from_secs(600));
//! match lock.try_acquire().await? {
//!     Acquisition::Acquired(guard) => {
//!         // … the job …
//!         guard.release().await?;
//!     }
//!     other => println!("not ours this time: {other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! All processes of one machine that use the same file share its locks, whoever opened it: containers that mount the
//! file's folder, too. Among them at most one holds a lock, also after a crash of any of them, and after a power cut:
//! every grant is flushed to the disk before it is told.
//!
//! Leases are counted in the time since the machine started, which nobody sets: no step of the wall clock, no time
//! zone and no time namespace frees a lock or keeps one. It goes on in suspend. With the machine's next start all
//! leases are over at once, since whoever held them is gone. The wall clock is for display, and the start of a fencing
//! counter that is not stored: after a record was deleted, fencing tokens keep growing unless the wall clock was set
//! to before the last grant.
//!
//! # When exclusion fails
//!
//! - **The file is on a network file system,** or in a folder that a virtual machine shares with its host: SQLite's
//!   file locks do not reach the other machine, which also counts in another boot. Such file systems are refused,
//!   unless [`SqliteBuilder::shared_file_system`] allows them.
//! - **Containers with a boot of their own.** What runs under gVisor, Kata or Firecracker is another machine. LXC and
//!   systemd-nspawn give each container a boot id of its own (`/proc/sys/kernel/random/boot_id`), so that a file may
//!   be shared within such a container, and not with another or the host. Docker, Podman and Kubernetes on runc give
//!   none.
//! - **The file has two names,** by a hard link or because a container mounts the file and not its folder: SQLite's
//!   `-wal` and `-shm` files are then not shared, and the database breaks.
//! - **The file is copied, restored or deleted** while locks are held. A file that was replaced is noticed at the next
//!   call, and the new one is used from then on, as by everybody else.
//! - **Somebody else changes the table.**
//!
//! What still protects the resource then is the [fencing token](distlock_api::FencingToken): [`Fences`] makes a database
//! of yours refuse the ones that come too late.
//!
//! # The file
//!
//! It has to be there. Make it and its table by [`migrate`](distlock_api::LockAdmin::migrate), by
//! `distlock migrate`, or by [`schema_sql`] in your own migrations; any number of processes may do so at once. A file
//! that `migrate` makes has a write-ahead log; a database of yours keeps the journal mode that it has, and either is
//! safe. Processes that share locks need to write the file and its folder, because SQLite keeps `-wal` and `-shm`
//! beside the file.
//!
//! The locks use one connection of their own in each process, made from the options of your pool where you
//! [give it](SqliteBuilder::pool), never the pool's, and never in a transaction of yours.
//!
//! The [check](distlock_api::LockAdmin::check) tells all that is wrong with the file at once, each with what mends it. It
//! writes a lock and undoes that, to find constraints that would refuse one. It warns of a journal that is no write-ahead
//! log, of triggers on the table, of a second name, and of a file or a folder that anybody may write: who can write either
//! can take and free any lock. Give both to one user or group (`chmod 660`, `chmod 770`); a folder such as `/tmp` is no
//! place for the file, because SQLite takes a `-wal` or `-journal` beside it for its own, whoever made that.
//!
//! Every grant, renewal and release is one `BEGIN IMMEDIATE` … `COMMIT`; a hundred renewals are one, too. A try that
//! meets a held lock only reads. SQLite has one writer at a time: where another process keeps the file locked for
//! writing, an operation waits for four fifths of its limit, and then fails with
//! [`Timeout`](distlock_api::ErrorKind::Timeout) and nothing done.
//!
//! # The table
//!
//! ```sql
#![doc = include_str!("statements/schema.sql")]
//! ```
//!
//! `{table}` is [`DEFAULT_TABLE`], or the name you give. Records stay after a release; `purge` deletes old ones.

mod admin;
mod backend;
mod builder;
mod check;
mod clock;
mod error;
mod fencing;
mod file;
mod record;
mod schema;
mod server;
mod session;

pub use backend::SqliteBackend;
pub use builder::SqliteBuilder;
pub use fencing::Fences;
pub use schema::{DEFAULT_TABLE, schema_sql};
