//! A refused request as it is kept, in bytes that every implementation and every gateway reads alike. They are always
//! sealed before they are stored: nobody has verified what they hold.
//!
//! *Capture*: one byte `1` (the format's version), then varint length and bytes of method, query, headers (as
//! [`crate::codec::encode_headers`] writes them) and body. Nothing follows.

use bytes::Bytes;
use portero_types::Header;

use crate::codec::{Malformed, decode_headers, encode_headers, put_bytes, take_bytes};

/// Largest body that is kept with a refused request, bytes. Of a larger one only length and digest are kept.
pub const CAPTURED_BODY_BYTES_MAX: usize = 256 * 1024;

const VERSION: u8 = 1;

/// A request as it was received. Debug shows its shape only.
#[derive(Clone, PartialEq, Eq)]
pub struct CapturedRequest {
    /// The method.
    pub method: String,
    /// The query text after `?`, still percent-encoded; empty when there is none.
    pub query: String,
    /// All headers in the order received.
    pub headers: Vec<Header>,
    /// The body's bytes as received.
    pub body: Bytes,
}

impl CapturedRequest {
    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let headers = encode_headers(&self.headers);
        let parts = [self.method.as_bytes(), self.query.as_bytes(), &headers, &self.body];
        let mut out = Vec::with_capacity(1 + parts.iter().map(|part| part.len() + 5).sum::<usize>());
        out.push(VERSION);
        for part in parts {
            put_bytes(&mut out, part);
        }
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not in the format.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (version, mut rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        if *version != VERSION {
            return Err(Malformed::Version);
        }
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed::Name);
        let method = text(take_bytes(&mut rest)?)?;
        let query = text(take_bytes(&mut rest)?)?;
        let headers = decode_headers(take_bytes(&mut rest)?)?;
        let body = Bytes::copy_from_slice(take_bytes(&mut rest)?);
        if !rest.is_empty() {
            return Err(Malformed::Trailing);
        }
        Ok(Self { method, query, headers, body })
    }
}

impl std::fmt::Debug for CapturedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CapturedRequest")
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CapturedRequest {
        CapturedRequest {
            method: "POST".to_owned(),
            query: "a=%00&b".to_owned(),
            headers: vec![Header { name: "x-signature".to_owned(), value: (0..=255).collect() }],
            body: Bytes::from((0..=255).cycle().take(70_000).collect::<Vec<u8>>()),
        }
    }

    #[test]
    fn a_request_reads_back_as_it_was_received() {
        assert_eq!(CapturedRequest::decode(&request().encode()), Ok(request()));
        let empty = CapturedRequest {
            method: String::new(),
            query: String::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        };
        assert_eq!(CapturedRequest::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn damaged_bytes_are_told_apart_and_never_panic() {
        let bytes = request().encode();
        for end in 0..200 {
            assert!(CapturedRequest::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(CapturedRequest::decode(&[2]), Err(Malformed::Version));
        assert_eq!(CapturedRequest::decode(&[&bytes[..], &[0]].concat()), Err(Malformed::Trailing));
        assert_eq!(CapturedRequest::decode(&[1, 1, 0xff]), Err(Malformed::Name));
    }

    #[test]
    fn debug_shows_no_part_of_it() {
        let shown = format!("{:?}", request());
        assert!(!shown.contains("signature") && shown.contains("70000"), "{shown}");
    }
}
