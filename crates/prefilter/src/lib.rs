//! Remembers which events were committed lately, so that most repeats are answered without the database.
//!
//! **It only saves work.** The unique key in the database is the only authority; whatever this crate holds may be gone,
//! wrong or late without an event being lost or stored twice:
//!
//! - *Nothing known* means nothing: the event goes to the database, which finds the repeat there.
//! - *A hit* means that an event with this key was committed, by this database. It may be used for one thing only: to answer
//!   `duplicate` when the digest of the body is equal too. With another digest the event goes to the database, which
//!   judges the conflict. So a hit can never make an event new, change one, or answer for other bytes.
//! - [`Prefilter::remember`] is called only after the commit that it stands for. A process that dies in between leaves a
//!   gap, never a false hit.
//!
//! A false hit would lose an event: it would be answered 2xx and be nowhere. One can only come from another database, or
//! from this one before it lost committed rows (a restore, a failover to a lagging standby). Therefore every key is hashed
//! together with the store's identity, which changes in all these cases ([`Namespace`]): what was remembered under
//! another identity is another key, is never found, and ends by its time to live. And because an identity can change while
//! this process runs, [`Layered`] answers only while the identity was confirmed a moment ago ([`Layered::confirm`]).
//!
//! The time to live must be shorter than receipts are kept: a hit after its receipt was deleted would call a repeat a
//! duplicate that the ledger does not know any more. A repeat renews the time to live.
//!
//! Redis must be trusted like the database's own cache: a checksum turns accidents (a foreign or damaged value) into
//! "nothing known", but whoever can write there on purpose can make events be answered as duplicates.
//!
//! This crate must never decide that an event is new, surface a failure of Redis to a request, wait for it without a
//! bound, or write event ids into Redis, logs or metrics (keys are hashes).

mod breaker;
mod entry;
mod key;
mod layered;
mod local;
mod metrics;
mod redis;

pub use entry::Namespace;
pub use key::{Disabled, Hit, Key, Prefilter};
pub use layered::{LEASE, Layered, POLL, SETTLE};
pub use local::{ENTRY_BYTES, Local, LocalConfig};
pub use metrics::describe;
pub use redis::{InvalidRedis, KEYS_PER_COMMAND_MAX, Redis, RedisConfig, RedisTls};
