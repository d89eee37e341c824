//! Distributed locks in Redis 6.2+ or Valkey, with fencing tokens.
//!
//! A backend of [distlock](https://docs.rs/distlock). Services use that crate, and this one for what a URL cannot say.
//!
//! ```no_run
//! use std::time::Duration;
//! use distlock_api::{AcquireRequest, Attempt, LockBackend, LockName};
//! use distlock_redis::RedisBackend;
//!
//! # async fn example() -> distlock_api::Result<()> {
//! let backend = RedisBackend::connect("rediss://locks:secret@redis.example.com/0").await?;
//!
//! let name = LockName::new("nightly")?;
//! let request = AcquireRequest::new(name, "worker-7", Duration::from_secs(30));
//! match backend.try_acquire(&request).await? {
//!     Attempt::Acquired { fencing_token } => println!("ours, under {fencing_token:?}"),
//!     Attempt::Held(held) => println!("held by {:?}", held.by),
//!     Attempt::TickDone { .. } => unreachable!("no tick was asked for"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises, and when it fails
//!
//! At most one holder per name, by the server's clock, as long as the server remembers. Redis forgets where a failover
//! promotes a replica that lags behind, where it restarts without persistence (or with `appendfsync everysec`, up to a
//! second of it), where `maxmemory-policy` is one of `allkeys-*` or `volatile-*` and memory runs out, and at FLUSHALL;
//! and a step of its wall clock ends leases early or late. Two may then hold a lock. Fencing tokens still grow through
//! all of this, unless the server's clock is by then behind the last token: let the resource check them.
//!
//! Set `appendonly yes` and `maxmemory-policy noeviction` on a server that holds locks; its check warns of others. It
//! does not warn of replicas, which make a failover possible in the first place: `min-replicas-to-write` and
//! `min-replicas-max-lag` bound how much one can forget, and do not end it.
//!
//! # Keys
//!
//! | key | what | lives |
//! |---|---|---|
//! | `lock:{NAME}` | token, state, owner | until the lease ends or is released |
//! | `lock:{NAME}:f` | the last fencing token | at least two days after the lease; the clock covers its loss |
//! | `lock:{NAME}:t` | the last tick, if ticks are used | 31 days after its grant's lease |
//!
//! The braces are part of the key: they keep a lock's keys in one slot of a cluster. In a name, `{`, `}` and `%` are
//! written `%7B`, `%7D` and `%25`. Another program's value at the key counts as a lock that is held by an unknown owner.
//! A cluster is not followed: connect to it through a proxy, or use a server of its own for locks.
//!
//! # Rights
//!
//! `ACL SETUSER locks on >secret ~lock:* +evalsha +eval +set +get +del +incr +incrby +pttl +pexpire +pexpireat
//! +pexpiretime +time +info +scan`
//!
//! - Redis 6.2 has no `+pexpiretime`; where it is denied, each grant works around it and leaves a line in the ACL log.
//! - `+info` shows whether the server is a replica that was made writable, throws keys away or forgets them in a crash.
//!   Without it the check cannot tell, and says so.
//! - `+scan` is for lists only.
//! - `+select` is needed if the database is not 0.
//! - `+ping` keeps the ACL log free of the one PING of a new connection, whose refusal is answer enough.
//!
//! The first acquire and the check try all of these but `scan` on the key `lock:{}`, which is no lock's. What is missing
//! is told with the `ACL SETUSER` that grants it.
//!
//! # The resource
//!
//! A lease can end while its holder is frozen, and no lock keeps what the holder sends then from arriving. The fencing
//! token does, where the resource refuses smaller ones: [`FencedScript`] makes a write to Redis do so.

mod admin;
mod backend;
mod builder;
mod check;
mod connection;
mod error;
mod fencing;
mod first_look;
mod keys;
mod server;
mod statements;
mod target;
mod value;

pub use backend::RedisBackend;
pub use builder::RedisBackendBuilder;
pub use fencing::{FencedCall, FencedScript};
pub use {deadpool_redis, redis};
