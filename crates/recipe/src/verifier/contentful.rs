//! Contentful: HMAC-SHA-256 over headers of the sender's choice.
//!
//! `X-Contentful-Signature` is the MAC, in hexadecimal, of four lines: the method, the path with its query, the headers
//! that `X-Contentful-Signed-Headers` names (`name:value` joined by `;`), and the body
//! (<https://www.contentful.com/developers/docs/webhooks/request-verification/>). The path is the configured public URL's.

use portero_types::SecretNo;
use serde::Deserialize;

use super::url::{PublicUrl, encode_except};
use super::{Input, Signing, check_window, header, no_public_url};
use crate::algorithm::{Algorithm, SignatureBytes, mac};
use crate::compile::Checked;
use crate::encoding::Encoding;
use crate::window::Unit;
use crate::{InvalidSecret, Reason, Rejection, Request, SignError};

const SIGNATURE: &str = "x-contentful-signature";
const SIGNED_HEADERS: &str = "x-contentful-signed-headers";
const TIMESTAMP: &str = "x-contentful-timestamp";
/// Most headers that may be signed.
const HEADERS_MAX: usize = 64;

/// What a recipe may say about Contentful.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// How far the signed time may lie back, seconds. Contentful's own packages say 30, too little behind a queue.
    #[serde(default = "five_minutes")]
    past_s: u32,
    /// How far it may lie ahead.
    #[serde(default = "five_minutes")]
    future_s: u32,
}

const fn five_minutes() -> u32 {
    300
}

impl Options {
    pub(super) fn check(&self, at: &str) -> Checked<()> {
        check_window(at, "past_s", self.past_s)?;
        check_window(at, "future_s", self.future_s)
    }

    pub(super) fn verify(&self, input: &Input<'_>) -> Result<SecretNo, Rejection> {
        let request = input.request;
        let signature = header(request, SIGNATURE, Reason::SignatureMissing)?;
        let signature =
            Encoding::Hex.decode(signature.as_bytes()).map(SignatureBytes::new).ok_or_else(|| {
                Rejection::new(
                    Reason::SignatureMalformed,
                    format!("the header '{SIGNATURE}' is not hexadecimal"),
                )
            })?;
        let headers = signed_headers(request)?;
        let time = header(request, TIMESTAMP, Reason::TimestampMissing)?;
        let time = super::window(Unit::Milliseconds, 0, 0).read(time.as_bytes())?;
        let messages = messages(request, &headers)?;
        let secret = input.matching(|key| {
            messages.iter().any(|message| {
                key.judge(Algorithm::HmacSha256, message).is_some_and(|judge| judge.accepts(&signature))
            })
        })?;
        super::judge(time, Unit::Milliseconds, self.past_s, self.future_s, input.now)?;
        Ok(secret)
    }
}

pub(super) fn sign(signing: &Signing<'_>) -> Result<Vec<(String, String)>, SignError> {
    let missing = |rejection: Rejection| SignError::Missing(rejection.detail().to_owned());
    let secret = signing.secret.trim();
    if secret.is_empty() {
        return Err(InvalidSecret::Empty.into());
    }
    let mut headers = vec![
        (SIGNED_HEADERS.to_owned(), format!("{SIGNED_HEADERS},{TIMESTAMP}")),
        (TIMESTAMP.to_owned(), signing.now.as_millis().to_string()),
    ];
    let values: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let request = Request { headers: &values, ..*signing.request };
    let signed = signed_headers(&request).map_err(missing)?;
    let messages = messages(&request, &signed).map_err(missing)?;
    let message = messages.first().ok_or_else(|| missing(no_public_url()))?;
    let signature = Encoding::Hex.encode(&mac(Algorithm::HmacSha256, secret.as_bytes(), message));
    headers.push((SIGNATURE.to_owned(), signature));
    Ok(headers)
}

/// The headers that are signed, as the sender lists them: `name:value`, sorted and joined.
///
/// The list and the time must be among them: an unsigned list could be split in other ways.
fn signed_headers(request: &Request<'_>) -> Result<String, Rejection> {
    let list = header(request, SIGNED_HEADERS, Reason::SignedPartMissing)?;
    let mut names: Vec<String> = list.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    if names.len() > HEADERS_MAX {
        return Err(Rejection::new(
            Reason::SignatureMalformed,
            format!("more than {HEADERS_MAX} signed headers"),
        ));
    }
    names.sort_unstable();
    names.dedup();
    for name in [SIGNED_HEADERS, TIMESTAMP] {
        if !names.iter().any(|have| have == name) {
            return Err(Rejection::new(
                Reason::SignedPartMissing,
                format!("the header '{name}' is not among the signed headers"),
            ));
        }
    }
    let mut pairs = Vec::with_capacity(names.len());
    for name in &names {
        // An empty value is signed like any other.
        let value = super::optional_header(request, name)?.ok_or_else(|| {
            Rejection::new(Reason::SignedPartMissing, "a header that is listed as signed is missing")
        })?;
        pairs.push(format!("{name}:{value}"));
    }
    Ok(pairs.join(";"))
}

/// What may have been signed: one text for each public URL and form of the query.
fn messages(request: &Request<'_>, headers: &str) -> Result<Vec<Vec<u8>>, Rejection> {
    let mut paths = Vec::new();
    for url in request.public_urls.iter().filter_map(|url| PublicUrl::parse(url)) {
        // As Contentful's own packages write it: what is behind the question mark is escaped as one text, and then the
        // whole is escaped again as a URI.
        let escaped = encode_except(request.query.as_bytes(), b"-_.!~*'()");
        paths.push(encode_except(url.target(&escaped).as_bytes(), b";/?:@&=+$,#-_.!~*'()"));
        paths.push(url.target(request.query));
    }
    if paths.is_empty() {
        return Err(no_public_url());
    }
    paths.dedup();
    Ok(paths
        .iter()
        .map(|path| [request.method, path, headers, ""].join("\n").into_bytes())
        .map(|start| [&start, request.body].concat())
        .collect())
}

#[cfg(test)]
mod tests;
