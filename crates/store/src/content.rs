//! An accepted event as it is stored: what routes and names it readable, what the request held sealed.
//!
//! *Content*: one byte `1` (the format's version), then varint length and bytes of content type, headers (as
//! [`crate::codec::encode_headers`] writes them) and body. Nothing follows. It is always sealed before it is stored.

use std::fmt;

use bytes::Bytes;
use portero_types::{
    Event, Header, ProviderName, ReceiptId, RequestId, SourceId, TenantId, TenantNo, Timestamp,
};

use crate::codec::{Malformed, decode_headers, encode_headers, put_bytes, take_bytes};

const VERSION: u8 = 1;

/// What an accepted request held. Debug shows its shape only.
#[derive(Clone, PartialEq, Eq)]
pub struct EventContent {
    /// Content type as received; may be empty.
    pub content_type: String,
    /// Allow-listed headers.
    pub headers: Vec<Header>,
    /// The bytes as received (of the item, when the request held several events).
    pub body: Bytes,
}

impl EventContent {
    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Self::encode_parts(&self.content_type, &encode_headers(&self.headers), &self.body)
    }

    /// Writes one whose headers are encoded already, which all events of a request share.
    #[must_use]
    pub fn encode_parts(content_type: &str, headers: &[u8], body: &[u8]) -> Vec<u8> {
        let parts = [content_type.as_bytes(), headers, body];
        let mut out = Vec::with_capacity(1 + parts.iter().map(|part| part.len() + 5).sum::<usize>());
        out.push(VERSION);
        for part in parts {
            put_bytes(&mut out, part);
        }
        out
    }

    /// Reads it back. The body stays where it is.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not in the format.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let (version, mut rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        if *version != VERSION {
            return Err(Malformed::Version);
        }
        let content_type = std::str::from_utf8(take_bytes(&mut rest)?).map_err(|_| Malformed::Name)?;
        let headers = decode_headers(take_bytes(&mut rest)?)?;
        let body = bytes.slice_ref(take_bytes(&mut rest)?);
        if !rest.is_empty() {
            return Err(Malformed::Trailing);
        }
        Ok(Self { content_type: content_type.to_owned(), headers, body })
    }
}

impl fmt::Debug for EventContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventContent")
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// An accepted event as it is read from the store.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    /// Its receipt.
    pub receipt_id: ReceiptId,
    /// Row number of the tenant, whose data key sealed the content.
    pub tenant_no: TenantNo,
    /// The tenant's name.
    pub tenant: TenantId,
    /// Whether the tenant was erased: nobody can read the content any more.
    pub is_erased: bool,
    /// The source's name.
    pub source: SourceId,
    /// Scopes `event_id`.
    pub provider: ProviderName,
    /// See [`portero_types::NewEvent::event_id`].
    pub event_id: String,
    /// See [`portero_types::NewEvent::id_derived`].
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
    /// The sealed [`EventContent`].
    pub content: Bytes,
}

impl StoredEvent {
    /// The event with its opened content.
    #[must_use]
    pub fn with_content(self, content: EventContent) -> Event {
        Event {
            receipt_id: self.receipt_id,
            tenant: self.tenant,
            source: self.source,
            provider: self.provider,
            event_id: self.event_id,
            id_derived: self.id_derived,
            event_type: self.event_type,
            ordering_key: self.ordering_key,
            received_at: self.received_at,
            request_id: self.request_id,
            trace_parent: self.trace_parent,
            content_type: content.content_type,
            headers: content.headers,
            body: content.body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> EventContent {
        EventContent {
            content_type: "application/json".to_owned(),
            headers: vec![Header { name: "x-a".to_owned(), value: (0..=255).collect() }],
            body: Bytes::from((0..=255).cycle().take(70_000).collect::<Vec<u8>>()),
        }
    }

    #[test]
    fn it_reads_back_as_it_was_written_without_a_copy_of_the_body() {
        let bytes = Bytes::from(content().encode());
        let read = EventContent::decode(&bytes).expect("in the format");
        assert_eq!(read, content());
        assert!(bytes.as_ptr_range().contains(&read.body.as_ptr()));
        let empty = EventContent { content_type: String::new(), headers: Vec::new(), body: Bytes::new() };
        assert_eq!(EventContent::decode(&empty.encode().into()), Ok(empty));
    }

    #[test]
    fn damaged_bytes_are_told_apart_and_never_panic() {
        let bytes = Bytes::from(content().encode());
        for end in 0..400 {
            assert!(EventContent::decode(&bytes.slice(..end)).is_err(), "cut at {end}");
        }
        assert_eq!(EventContent::decode(&Bytes::from_static(&[2])), Err(Malformed::Version));
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        assert_eq!(EventContent::decode(&longer), Err(Malformed::Trailing));
        assert_eq!(EventContent::decode(&Bytes::from_static(&[1, 1, 0xff])), Err(Malformed::Name));
    }

    #[test]
    fn debug_shows_no_part_of_it() {
        let shown = format!("{:?}", content());
        assert!(!shown.contains("x-a") && !shown.contains("json") && shown.contains("70000"), "{shown}");
    }
}
