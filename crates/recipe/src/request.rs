//! The request to judge, the replies to give, and what must be fetched to judge it.

use std::collections::BTreeMap;
use std::time::Duration;

use portero_types::Redacted;

use crate::form::{self, Field};

/// No settings.
static NO_SETTINGS: BTreeMap<String, String> = BTreeMap::new();

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
    /// The URLs that the operator configured at the provider (scheme to path), for providers that sign it; several while
    /// a source moves, each is tried. Never taken from `Host` or forwarded headers.
    pub public_urls: &'a [String],
    /// What the operator told about the source beside its secrets (see [`crate::Recipe::settings`]).
    pub settings: &'a BTreeMap<String, String>,
    /// What [`crate::fetch_needed`] asked for, such as a certificate's PEM; `None` when nothing was needed.
    pub fetched: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// A request without public URLs, settings or anything fetched.
    #[must_use]
    pub fn new(method: &'a str, query: &'a str, headers: &'a [(&'a str, &'a [u8])], body: &'a [u8]) -> Self {
        Self { method, query, headers, body, public_urls: &[], settings: &NO_SETTINGS, fetched: None }
    }

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
#[derive(Clone, PartialEq, Eq)]
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

impl std::fmt::Debug for Reply {
    /// Shows the shape only: a handshake's reply may repeat the secret that it brought.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Something to be fetched before a request can be judged, or because of a request that was verified.
///
/// The recipe's code has pinned scheme, host and shape of the path; a caller must not follow redirects.
#[derive(Clone)]
pub struct Fetch {
    /// Where: an `https` URL.
    pub url: String,
    /// A JSON text to POST; `None`: GET.
    pub post_json: Option<Redacted<String>>,
    /// Under what an answer may be kept; answers under one key are alike.
    pub cache_key: String,
    /// For how long it may be kept; zero: not at all.
    pub cache_for: Duration,
}

impl std::fmt::Debug for Fetch {
    /// Shows no path and no query: the URL that confirms a subscription is a credential.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.url.split('/').nth(2).unwrap_or_default();
        f.debug_struct("Fetch")
            .field("host", &host)
            .field("cache_for", &self.cache_for)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_what_replies_and_fetches_say() {
        let reply = Reply {
            status: 200,
            content_type: None,
            headers: vec![("x-hook-secret".to_owned(), "hunter2".to_owned())],
            body: b"hunter2".to_vec(),
        };
        let fetch = Fetch {
            url: "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=hunter2".to_owned(),
            post_json: None,
            cache_key: "hunter2".to_owned(),
            cache_for: Duration::ZERO,
        };
        let shown = format!("{reply:?} {fetch:?}");
        assert!(shown.contains("sns.us-east-1.amazonaws.com") && shown.contains("body_bytes: 7"), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    }
}
