//! The request and its body, as far as both may be described.

use portero_types::limits::JSON_DEPTH_MAX;
use sha2::{Digest as _, Sha256};

use super::steps::{Steps, count};
use crate::Request;
use crate::json::Document;

/// Says what arrived: never a value.
pub(super) fn describe(request: &Request<'_>, steps: &mut Steps) {
    let query = match request.query.len() {
        0 => "no query".to_owned(),
        length => format!("a query of {length} characters"),
    };
    steps.noted(
        "request",
        format!("{}, {}, {query}", method(request.method), count(request.headers.len(), "header")),
    );
    steps.noted("body", body(request.body));
}

/// The method, unless it is none.
fn method(method: &str) -> &str {
    let is_word = method.len() <= 16 && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if is_word { method } else { "a method that is none" }
}

fn body(body: &[u8]) -> String {
    if body.is_empty() {
        return "empty".to_owned();
    }
    let mut text = format!(
        "{}, SHA-256 {}, {}",
        count(body.len(), "byte"),
        hex::encode(Sha256::digest(body)),
        kind(body)
    );
    if body.starts_with(b"\xEF\xBB\xBF") {
        text.push_str(", begins with a byte order mark");
    }
    if body.ends_with(b"\n") {
        text.push_str(", ends with a line end");
    }
    text
}

fn kind(body: &[u8]) -> &'static str {
    if Document::parse(body.into(), JSON_DEPTH_MAX).is_ok() {
        "JSON"
    } else if is_compressed(body) {
        "compressed"
    } else if body.trim_ascii_start().starts_with(b"<") {
        "not JSON, perhaps XML"
    } else if std::str::from_utf8(body).is_err() {
        "not JSON, not UTF-8"
    } else if body.contains(&b'=') && !body.contains(&b'{') {
        "not JSON, perhaps a form"
    } else {
        "not JSON"
    }
}

/// Whether it begins as gzip does (RFC 1952 section 2.3.1).
pub(super) fn is_compressed(body: &[u8]) -> bool {
    body.starts_with(b"\x1F\x8B\x08")
}
