//! The request to judge, and the replies to give.

use crate::form::{self, Field};

/// An HTTP request as received. Everything is borrowed; nothing was decoded, trimmed or re-encoded.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The method, upper case.
    pub method: &'a str,
    /// The query text after `?`, still percent-encoded; empty when there is none.
    pub query: &'a str,
    /// Headers in the order received: lower-case name, value bytes. A name may repeat.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body's bytes as received.
    pub body: &'a [u8],
    /// The URL that the operator configured at the provider (scheme to path), for providers that sign it. Never taken
    /// from `Host` or forwarded headers.
    pub public_url: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// All values of the header `name` (lower case), in order.
    pub fn header_values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// Whether the query has a field `name`.
    pub(crate) fn has_query(&self, name: &str) -> bool {
        form::field(self.query.as_bytes(), name) != Field::Missing
    }
}

impl std::fmt::Debug for Request<'_> {
    /// Shows the shape only: headers and body may hold signatures and payloads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// An HTTP reply that a provider expects word for word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code, 200 to 599.
    pub status: u16,
    /// `Content-Type`; `None` when the body is empty.
    pub content_type: Option<String>,
    /// Further headers, lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body; may be empty.
    pub body: Vec<u8>,
}
