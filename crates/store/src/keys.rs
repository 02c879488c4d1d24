//! Data keys: what tenants' secrets, secret settings, refused requests and events are encrypted with. Here they are wrapped always.

use async_trait::async_trait;
use portero_types::{SecretNo, SourceId, SourceNo, TenantId, TenantNo, Timestamp, WrappedKey};

use crate::{Change, Sealed, SealedSettings, Secret};

/// A version of a tenant's data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantKey {
    /// The tenant's row number.
    pub tenant_no: TenantNo,
    /// The tenant's name, which the wrapped key is bound to.
    pub tenant: TenantId,
    /// The key.
    pub key: WrappedKey,
    /// When it was made.
    pub created_at: Timestamp,
}

/// How much a key-encryption key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Its name.
    pub key_id: String,
    /// Data keys that are wrapped under it.
    pub data_keys: u64,
    /// Tenants that have one of those; deleted ones that were not erased included.
    pub tenants: u64,
}

/// A data key that was wrapped again under another key-encryption key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrapped {
    /// The tenant.
    pub tenant_no: TenantNo,
    /// The wrapped form that it replaces, byte for byte.
    pub from: WrappedKey,
    /// The same data key under the other key.
    pub to: WrappedKey,
}

/// A secret that was sealed again with another data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resealed {
    /// Which secret.
    pub no: SecretNo,
    /// The sealed form that it replaces, byte for byte.
    pub from: Sealed,
    /// The same value, sealed with the other key.
    pub to: Sealed,
}

/// A source's secret settings, of which some were sealed again with another data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResealedSettings {
    /// Whose.
    pub source: SourceNo,
    /// All of them as they were.
    pub from: SealedSettings,
    /// All of them as they are to be.
    pub to: SealedSettings,
}

/// Looks after data keys. A data key of one tenant and version never changes, only what it is wrapped in; so gateways that hold it
/// need not be told of [`KeyStore::rewrap`], and the revision stays.
#[async_trait]
pub trait KeyStore: Send + Sync + 'static {
    /// Destroys a tenant's data keys, and deletes it with its sources, secrets, rejections and the subscriptions that name it,
    /// in one transaction that raises the revision: the live one of this name, or, when there is none, every deleted one
    /// of this name that was not erased before. What it sealed is unreadable from then on. Receipts stay.
    ///
    /// # Errors
    /// `NotFound` when there is nobody to erase.
    async fn erase_tenant(&self, tenant: &TenantId, change: &Change) -> crate::Result<()>;
    /// The data keys of the live tenant of this name, oldest first; empty when there is none.
    async fn tenant_keys(&self, tenant: &TenantId) -> crate::Result<Vec<TenantKey>>;
    /// How much each key-encryption key holds, by name; one that holds nothing is not in it. Spans tenants.
    async fn key_uses(&self) -> crate::Result<Vec<KeyUse>>;
    /// Data keys that are wrapped under another key than `key_id`, in the order of tenants' numbers and versions, after a
    /// tenant's number and version. Spans tenants.
    async fn keys_not_under(
        &self,
        key_id: &str,
        after: Option<(TenantNo, u16)>,
        limit: u32,
    ) -> crate::Result<Vec<TenantKey>>;
    /// Replaces wrapped forms, in one transaction with its entry of the audit log; how many. What has another form by now, or is
    /// gone, is passed over. All of them are wrapped under one key, which the entry names; where nothing is replaced there is none.
    async fn rewrap(&self, keys: Vec<Rewrapped>, change: &Change) -> crate::Result<u64>;
    /// The newest data key of each live tenant that has none made at or after `before`, in the order of tenants' numbers, after a
    /// number. Spans tenants.
    async fn newest_keys_before(
        &self,
        before: Timestamp,
        after: Option<TenantNo>,
        limit: u32,
    ) -> crate::Result<Vec<TenantKey>>;
    /// Gives a tenant its next data key, and raises the revision: what it seals from then on has this one.
    ///
    /// # Errors
    /// `AlreadyExists` when it has this version; `NotFound` when the tenant is gone or erased; `FailedPrecondition` when it has
    /// [`TENANT_KEYS_MAX`].
    async fn add_tenant_key(
        &self,
        tenant_no: TenantNo,
        key: WrappedKey,
        change: &Change,
    ) -> crate::Result<()>;
    /// All secrets of a tenant's live sources, each with its source's name.
    async fn secrets_of(&self, tenant_no: TenantNo) -> crate::Result<Vec<(SourceId, Secret)>>;
    /// Replaces sealed forms, in one transaction; how many. What has another form by now, or is gone, is passed over. They
    /// verify as before.
    async fn reseal(&self, secrets: Vec<Resealed>) -> crate::Result<u64>;
    /// The secret settings of a tenant's live sources that have some, each with its source's number and name.
    async fn sealed_settings_of(
        &self,
        tenant_no: TenantNo,
    ) -> crate::Result<Vec<(SourceNo, SourceId, SealedSettings)>>;
    /// Replaces secret settings, in one transaction; of how many sources. What has another form by now, or is gone, is passed
    /// over. They hold what they held before.
    async fn reseal_settings(&self, settings: Vec<ResealedSettings>) -> crate::Result<u64>;
}

/// Most data keys of one tenant.
pub const TENANT_KEYS_MAX: usize = 16;
