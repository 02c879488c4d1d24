//! The accepted request, before and after it has a place in the log.

use std::fmt;

use bytes::Bytes;

use crate::{
    EntityHash, ProviderName, ReceiptId, RequestId, SecretNo, Shard, ShardCount, SourceId, SourceNo,
    TenantId, TenantNo, Timestamp,
};

/// One allow-listed header, kept with the event exactly as received.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// Lower-case name.
    pub name: String,
    /// The value's bytes; not necessarily UTF-8 (RFC 9110 section 5.5).
    pub value: Vec<u8>,
}

/// A verified event that asks to be accepted: what the accept statement writes.
///
/// Every text here is valid UTF-8 without NUL and within [`crate::limits`]. What the request held is sealed.
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
    /// Length of the body as received (of the item, when the request held several events).
    pub body_bytes: u32,
    /// Content type, allow-listed headers and body, sealed for the tenant.
    pub content: Bytes,
}

impl NewEvent {
    /// The shard whose order this event takes part in.
    #[must_use]
    pub const fn shard(&self, shards: ShardCount) -> Shard {
        self.entity.slot().shard(shards)
    }
}

impl fmt::Debug for Header {
    /// Shows no value: it belongs to the payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header").field("name", &self.name).field("value_bytes", &self.value.len()).finish()
    }
}

/// An accepted event as a consumer gets it: receipt and body together.
#[derive(Clone)]
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

impl fmt::Debug for Event {
    /// Shows which event it is, and nothing of what it says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("receipt_id", &self.receipt_id)
            .field("tenant", &self.tenant)
            .field("source", &self.source)
            .field("event_id", &self.event_id)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_headers_nor_body() {
        let header = Header { name: "x-account".to_owned(), value: b"hunter2".to_vec() };
        let event = Event {
            receipt_id: ReceiptId::new(Timestamp::EPOCH, 7),
            tenant: "acme".parse().expect("an id"),
            source: "stripe".parse().expect("an id"),
            provider: "stripe".parse().expect("a provider"),
            event_id: "evt_1".to_owned(),
            id_derived: false,
            event_type: "invoice.paid".to_owned(),
            ordering_key: "stripe:1".to_owned(),
            received_at: Timestamp::EPOCH,
            request_id: RequestId::new(Timestamp::EPOCH, 7),
            trace_parent: String::new(),
            content_type: "text/plain".to_owned(),
            headers: vec![header.clone()],
            body: Bytes::from_static(b"hunter2"),
        };
        let shown = format!("{header:?} {event:?}");
        assert!(
            shown.contains("x-account") && shown.contains("evt_1") && shown.contains("body_bytes: 7"),
            "{shown}"
        );
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    }
}
