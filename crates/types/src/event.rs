//! The accepted request, before and after it has a place in the log.

use bytes::Bytes;

use crate::{
    EntityHash, ProviderName, ReceiptId, RequestId, SecretNo, Shard, ShardCount, SourceId, SourceNo,
    TenantId, TenantNo, Timestamp,
};

/// One allow-listed header, kept with the event exactly as received.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// Lower-case name.
    pub name: String,
    /// The value's bytes; not necessarily UTF-8 (RFC 9110 section 5.5).
    pub value: Vec<u8>,
}

/// A verified event that asks to be accepted: what the accept statement writes.
///
/// Every text here is valid UTF-8 without NUL and within [`crate::limits`]; the body is the bytes as received.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The receipt that it gets if it is new.
    pub receipt_id: ReceiptId,
    /// Row number of the tenant.
    pub tenant_no: TenantNo,
    /// Row number of the source.
    pub source_no: SourceNo,
    /// The secret that verified the request; `None` where the recipe needs none.
    pub secret_no: Option<SecretNo>,
    /// Scopes `event_id`.
    pub provider: ProviderName,
    /// The id that the unique key holds: the provider's own, prefixed with its account or source where the recipe says
    /// that ids are only unique there, or derived from the bytes.
    pub event_id: String,
    /// Whether `event_id` was derived from the bytes because the provider sent none that can be trusted.
    pub id_derived: bool,
    /// The provider's word for what happened; may be empty.
    pub event_type: String,
    /// Entity within the tenant. Events with the same key are delivered in order.
    pub ordering_key: String,
    /// The hash of tenant and ordering key, which places the event.
    pub entity: EntityHash,
    /// SHA-256 of the event's bytes: tells a repeat from a conflict.
    pub body_digest: [u8; 32],
    /// When the request's body had been read.
    pub received_at: Timestamp,
    /// Until when the receipt is kept, and so a repeat recognised.
    pub expires_at: Timestamp,
    /// The HTTP request that brought it.
    pub request_id: RequestId,
    /// W3C `traceparent` of the span that accepted it; empty when tracing is off.
    pub trace_parent: String,
    /// Content type as received; may be empty.
    pub content_type: String,
    /// Allow-listed headers.
    pub headers: Vec<Header>,
    /// The bytes as received (of the item, when the request held several events).
    pub body: Bytes,
}

impl NewEvent {
    /// The shard whose order this event takes part in.
    #[must_use]
    pub const fn shard(&self, shards: ShardCount) -> Shard {
        self.entity.slot().shard(shards)
    }
}

/// An accepted event as a consumer gets it: receipt and body together.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its receipt.
    pub receipt_id: ReceiptId,
    /// The tenant's name.
    pub tenant: TenantId,
    /// The source's name.
    pub source: SourceId,
    /// Scopes `event_id`.
    pub provider: ProviderName,
    /// See [`NewEvent::event_id`].
    pub event_id: String,
    /// See [`NewEvent::id_derived`].
    pub id_derived: bool,
    /// The provider's word for what happened; may be empty.
    pub event_type: String,
    /// Entity within the tenant.
    pub ordering_key: String,
    /// When the request was received.
    pub received_at: Timestamp,
    /// The HTTP request that brought it.
    pub request_id: RequestId,
    /// W3C `traceparent`; empty when tracing was off.
    pub trace_parent: String,
    /// Content type as received; may be empty.
    pub content_type: String,
    /// Allow-listed headers.
    pub headers: Vec<Header>,
    /// The bytes as received.
    pub body: Bytes,
}
