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
//! | tenants, sources, secrets, subscriptions, grants | [`ConfigStore`] | each change raises the revision in its transaction |
//! | who changed what | [`AuditStore`] | a chain that cannot be altered unnoticed |
//! | tenants' data keys | [`KeyStore`] | always wrapped; a version never becomes another key |
//! | refused requests | [`RejectionStore`] | the newest of each source, never more than a few |
//! | uses of secrets | [`SecretUseStore`] | counts that a crash may cut short by seconds |
//! | schema | [`SchemaStore`] | says whether the schema fits this program |

mod accept;
pub mod audit;
pub mod balance;
mod capture;
mod change;
mod changes;
pub mod codec;
mod config;
mod content;
mod cut;
mod error;
mod freed;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_entry;
mod grant;
mod hint;
mod keys;
mod lane;
mod limits;
mod log;
pub mod overlap;
mod rejection;
mod replica;
mod room;
mod schema;
mod sealed_settings;
mod secret_state;
mod secret_use;
mod share;
mod source;
#[cfg(feature = "testing")]
pub mod testing;

use std::sync::Arc;

pub use accept::{AcceptStore, Receipt, Verdict};
pub use audit::{
    AUDIT_PAGE_MAX, AuditEntry, AuditFilter, AuditHash, AuditOrder, AuditStore, NewAuditEntry, entry_hash,
};
pub use capture::{CAPTURED_BODY_BYTES_MAX, CapturedRequest};
pub use change::{ACTOR_BYTES_MAX, Actor, Change, NoReason, REASON_BYTES_MAX, REQUEST_ID_BYTES_MAX};
pub use changes::{ConfigChanges, ConfigDelta, Removed};
pub use config::{
    ConfigSnapshot, ConfigStore, DeadLetterPolicy, NewSecret, NewSubscription, NewTenant, Page, Revision,
    Sealed, Secret, StartAt, Subscription, SubscriptionUpdate, Tenant, TenantUpdate,
};
pub use content::{EventContent, StoredEvent};
pub use error::{Error, ErrorKind, Result};
pub use freed::{FreedName, Name};
pub use grant::{
    GRANT_ISSUER_BYTES_MAX, GRANT_SUBJECT_BYTES_MAX, GRANT_SUBSCRIPTIONS_MAX, GRANTS_OF_PLATFORM_MAX,
    GRANTS_PER_TENANT_MAX, Grant, NewGrant,
};
pub use hint::{Hint, HintStore, Hints};
pub use keys::{KeyStore, KeyUse, Resealed, ResealedSettings, Rewrapped, TENANT_KEYS_MAX, TenantKey};
pub use lane::{
    ClaimedLane, DeadLetter, Deferred, Detour, JournalState, LaneFlush, LaneKey, LaneStore, NewSession,
    Overflow, ParkedEntity, ParkedState,
};
pub use limits::{LIMIT_BYTES_MAX, LIMIT_EVENTS_MAX, Limits};
pub use log::{LogEntry, LogPage, LogStore, PageRequest, Scope};
pub use rejection::{NewRejection, REJECTIONS_PER_SOURCE_MAX, Rejection, RejectionStore, StoredRejection};
pub use replica::{
    EDGE, REPLICA_LIVE, REPLICA_SHOWN, REPLICA_WRITTEN_EVERY, Replica, ReplicaEcho, ReplicaReport,
};
pub use room::{
    RECIPE_BYTES_PER_TENANT_MAX, SOURCES_PER_TENANT_MAX, SUBSCRIPTIONS_PER_TENANT_MAX, SourcesHeld,
};
pub use schema::{SchemaState, SchemaStore};
pub use sealed_settings::{SEALED_SETTING_BYTES_MAX, SealedSetting, SealedSettings, SealedSettingsChange};
pub use secret_state::{BEGINS_EARLIER, SecretState};
pub use secret_use::{Day, RetiringInUse, SecretUsage, SecretUse, SecretUseStore, USE_DAYS_KEPT};
pub use share::{LaneAction, LaneRequest, PARKED_LISTING_MAX, ParkedListing, Roll, Share};
pub use source::{
    NewSource, PUBLIC_URL_BYTES_MAX, PUBLIC_URLS_MAX, SETTING_NAME_BYTES_MAX, SETTING_VALUE_BYTES_MAX,
    SETTINGS_MAX, Source, SourceUpdate,
};

/// What deliveries need.
pub trait DeliveryStore: HintStore + LaneStore + LogStore {}

impl<T: HintStore + LaneStore + LogStore> DeliveryStore for T {}

/// Everything at once: what a gateway holds.
pub trait Store:
    AcceptStore
    + AuditStore
    + ConfigStore
    + DeliveryStore
    + KeyStore
    + RejectionStore
    + SchemaStore
    + SecretUseStore
{
}

impl<
    T: AcceptStore
        + AuditStore
        + ConfigStore
        + HintStore
        + KeyStore
        + LaneStore
        + LogStore
        + RejectionStore
        + SchemaStore
        + SecretUseStore,
> Store for T
{
}

/// A store behind a pointer, shared by all parts of the gateway.
pub type DynStore = Arc<dyn Store>;
