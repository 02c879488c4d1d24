//! What Portero needs from storage: one trait per aggregate, and the suite that every implementation must pass.
//!
//! Implementations live in crates of their own (`store-postgres`, `store-sqlite`) and are the only crates that know a
//! database. Traits speak in domain types; ids, time and randomness come in as arguments. No generated protocol type, no
//! HTTP type and no driver type may appear here. Driver text stays in [`Error`]'s source and is never displayed.
//!
//! | aggregate | trait | what it promises |
//! |---|---|---|
//! | receipts, events, log | [`AcceptStore`] | one receipt and one log entry per key, or nothing |
//! | reading the log | [`LogStore`] | pages in commit order, nothing skipped |
//! | sessions, lanes, journal, parked entities, dead letters | [`LaneStore`] | a fenced session writes nothing |
//! | tenants, sources, secrets, subscriptions | [`ConfigStore`] | each change raises the revision in its transaction |
//! | schema | [`SchemaStore`] | says whether the schema fits this program |

mod accept;
pub mod codec;
mod config;
mod error;
mod lane;
mod log;
pub mod overlap;
mod schema;
#[cfg(feature = "testing")]
pub mod testing;

use std::sync::Arc;

pub use accept::{AcceptStore, Receipt, Verdict};
pub use config::{
    ConfigSnapshot, ConfigStore, NewSecret, NewSource, NewSubscription, NewTenant, Page, Revision, Sealed,
    Secret, Source, StartAt, Subscription, Tenant,
};
pub use error::{Error, ErrorKind, Result};
pub use lane::{
    ClaimedLane, DeadLetter, Deferred, JournalState, LaneFlush, LaneKey, LaneStore, NewSession, ParkedEntity,
    ParkedState,
};
pub use log::{LogEntry, LogPage, LogStore, PageRequest};
pub use schema::{SchemaState, SchemaStore};

/// Everything at once: what a gateway holds.
pub trait Store: AcceptStore + ConfigStore + LaneStore + LogStore + SchemaStore {}

impl<T: AcceptStore + ConfigStore + LaneStore + LogStore + SchemaStore> Store for T {}

/// A store behind a pointer, shared by all parts of the gateway.
pub type DynStore = Arc<dyn Store>;
