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
//! | hints between gateways | [`HintStore`] | they may be lost: polling is the truth |
//! | tenants, sources, secrets, subscriptions | [`ConfigStore`] | each change raises the revision in its transaction |
//! | refused requests | [`RejectionStore`] | the newest of each source, never more than a few |
//! | schema | [`SchemaStore`] | says whether the schema fits this program |

mod accept;
pub mod balance;
mod capture;
mod change;
pub mod codec;
mod config;
mod cut;
mod error;
mod hint;
mod lane;
mod log;
pub mod overlap;
mod rejection;
mod schema;
mod share;
mod source;
#[cfg(feature = "testing")]
pub mod testing;

use std::sync::Arc;

pub use accept::{AcceptStore, Receipt, Verdict};
pub use capture::{CAPTURED_BODY_BYTES_MAX, CapturedRequest};
pub use change::{ACTOR_BYTES_MAX, Actor, Change, REQUEST_ID_BYTES_MAX};
pub use config::{
    ConfigSnapshot, ConfigStore, DeadLetterPolicy, NewSecret, NewSubscription, NewTenant, Page, Revision,
    Sealed, Secret, StartAt, Subscription, SubscriptionUpdate, Tenant,
};
pub use error::{Error, ErrorKind, Result};
pub use hint::{Hint, HintStore, Hints};
pub use lane::{
    ClaimedLane, DeadLetter, Deferred, Detour, JournalState, LaneFlush, LaneKey, LaneStore, NewSession,
    Overflow, ParkedEntity, ParkedState,
};
pub use log::{LogEntry, LogPage, LogStore, PageRequest, Scope};
pub use rejection::{NewRejection, REJECTIONS_PER_SOURCE_MAX, Rejection, RejectionStore, StoredRejection};
pub use schema::{SchemaState, SchemaStore};
pub use share::{LaneAction, LaneRequest, PARKED_LISTING_MAX, ParkedListing, Roll, Share};
pub use source::{
    NewSource, PUBLIC_URL_BYTES_MAX, PUBLIC_URLS_MAX, SETTING_NAME_BYTES_MAX, SETTING_VALUE_BYTES_MAX,
    SETTINGS_MAX, Source, SourceUpdate,
};

/// What deliveries need.
pub trait DeliveryStore: HintStore + LaneStore + LogStore {}

impl<T: HintStore + LaneStore + LogStore> DeliveryStore for T {}

/// Everything at once: what a gateway holds.
pub trait Store: AcceptStore + ConfigStore + DeliveryStore + RejectionStore + SchemaStore {}

impl<T: AcceptStore + ConfigStore + HintStore + LaneStore + LogStore + RejectionStore + SchemaStore> Store
    for T
{
}

/// A store behind a pointer, shared by all parts of the gateway.
pub type DynStore = Arc<dyn Store>;
