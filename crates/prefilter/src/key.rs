//! What is asked and what is answered.

use async_trait::async_trait;
use portero_types::{ProviderName, ReceiptId, TenantNo};

/// The key of an event: what the database's unique key holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Row number of the tenant.
    pub tenant_no: TenantNo,
    /// Scopes `event_id`.
    pub provider: ProviderName,
    /// As stored; at most [`portero_types::limits::EVENT_ID_BYTES_MAX`] bytes.
    pub event_id: String,
}

/// An event with this key was committed. Trusted for answering `duplicate` to the same bytes, and for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The receipt of the first one.
    pub receipt_id: ReceiptId,
    /// SHA-256 of the first one's bytes.
    pub body_digest: [u8; 32],
}

/// Remembers committed events. Never fails: what goes wrong inside is "nothing known".
#[async_trait]
pub trait Prefilter: Send + Sync + 'static {
    /// What is known of these keys, one answer per key in their order.
    ///
    /// Returns within a bound that the implementation documents. Cancel-safe.
    async fn lookup(&self, keys: &[Key]) -> Vec<Option<Hit>>;

    /// Notes events. Call it only after their commit, with the receipt and digest of the first event of each key.
    ///
    /// Returns within a bound that the implementation documents. Cancel-safe: some may be noted, some not.
    async fn remember(&self, events: &[(Key, Hit)]);
}

/// Remembers nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disabled;

#[async_trait]
impl Prefilter for Disabled {
    async fn lookup(&self, keys: &[Key]) -> Vec<Option<Hit>> {
        vec![None; keys.len()]
    }

    async fn remember(&self, _events: &[(Key, Hit)]) {}
}
