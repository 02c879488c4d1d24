//! Jira Connect: a JSON Web Token that names the request's path and query.
//!
//! `Authorization: JWT …` is a token signed with HS256 under the secret that the product shared when the app was installed
//! (<https://developer.atlassian.com/cloud/jira/platform/understanding-jwt-for-connect-apps/>). It says who sends (`iss`, the
//! client key) and for which method, path and query (`qsh`). Nothing of the body is signed.

use portero_types::{SecretNo, Timestamp};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::jwt::{self, Token};
use super::url::{PublicUrl, encode, query_pairs};
use super::{Input, Signing, header, no_public_url, optional_setting, setting};
use crate::algorithm::{Algorithm, SignatureBytes, mac};
use crate::window::Unit;
use crate::{InvalidSecret, Reason, Rejection, Request, SignError};

/// How far clocks may differ, seconds.
const LEEWAY_S: u32 = 60;
/// How old a token may be whatever it says of itself, seconds; Atlassian's live for some minutes.
const PAST_S: u32 = 3600;
/// How long our own tokens live, seconds.
const LIFE_S: i64 = 180;

/// Jira Connect has no options.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {}

pub(super) fn verify(input: &Input<'_>) -> Result<SecretNo, Rejection> {
    let request = input.request;
    let client_key = setting(request, "client_key")?;
    let text = header(request, "authorization", Reason::SignatureMissing)?;
    let text = text.strip_prefix("JWT ").ok_or_else(|| {
        Rejection::new(Reason::SignatureMissing, "the header 'authorization' does not hold a 'JWT …'")
    })?;
    let token = Token::read(text.trim(), "HS256")?;
    let signature = SignatureBytes::new(token.signature.clone());
    let secret = input.matching(|key| {
        key.judge(Algorithm::HmacSha256, token.signed).is_some_and(|judge| judge.accepts(&signature))
    })?;
    times(&token, input.now)?;
    if token.claim("iss").as_deref() != Some(client_key) {
        return Err(Rejection::new(
            Reason::NotForThisSource,
            "the token comes from another installation than the setting 'client_key' says",
        ));
    }
    audience(&token, request)?;
    query_hash(&token, request)?;
    Ok(secret)
}

pub(super) fn sign(signing: &Signing<'_>) -> Result<Vec<(String, String)>, SignError> {
    let missing = |rejection: Rejection| SignError::Missing(rejection.detail().to_owned());
    let secret = signing.secret.trim();
    if secret.is_empty() {
        return Err(InvalidSecret::Empty.into());
    }
    let hashes = query_hashes(signing.request).map_err(missing)?;
    let now = signing.now.as_secs();
    let mut claims = serde_json::json!({
        "iss": setting(signing.request, "client_key").map_err(missing)?,
        "iat": now,
        "exp": now + LIFE_S,
        "qsh": hashes.first(),
    });
    if let Some(audience) = optional_setting(signing.request, "audience") {
        claims["aud"] = audience.into();
    }
    let token = jwt::write(r#"{"typ":"JWT","alg":"HS256"}"#, &claims.to_string(), |signed| {
        mac(Algorithm::HmacSha256, secret.as_bytes(), signed)
    });
    Ok(vec![("authorization".to_owned(), format!("JWT {token}"))])
}

/// A token counts from when it was made until it ends, and never for longer than an hour.
fn times(token: &Token<'_>, now: Timestamp) -> Result<(), Rejection> {
    super::judge(token.time("iat")?, Unit::Seconds, PAST_S, LEEWAY_S, now)?;
    let leeway = std::time::Duration::from_secs(LEEWAY_S.into());
    if token.time("exp")?.plus(leeway) < now {
        return Err(Rejection::new(Reason::TimestampTooOld, "the token has expired"));
    }
    Ok(())
}

/// If the source says for whom tokens are, one that names somebody must name that.
fn audience(token: &Token<'_>, request: &Request<'_>) -> Result<(), Rejection> {
    let Some(expected) = optional_setting(request, "audience") else { return Ok(()) };
    let names = token.texts("aud");
    if names.is_empty() || names.iter().any(|name| name == expected) {
        return Ok(());
    }
    Err(Rejection::new(
        Reason::NotForThisSource,
        "the token is for somebody else than the setting 'audience' says",
    ))
}

fn query_hash(token: &Token<'_>, request: &Request<'_>) -> Result<(), Rejection> {
    let claimed = token.claim("qsh").unwrap_or_default();
    let is_one =
        query_hashes(request)?.iter().any(|hash| bool::from(hash.as_bytes().ct_eq(claimed.as_bytes())));
    if is_one {
        return Ok(());
    }
    Err(Rejection::new(
        Reason::SignatureMismatch,
        "the token is for another method, path or query ('qsh') than the public URL's; the setting 'base_url' must be the app's baseUrl",
    ))
}

/// The query string hash for each public URL: of the method, the path below the app's base URL, and the sorted query.
fn query_hashes(request: &Request<'_>) -> Result<Vec<String>, Rejection> {
    let base = optional_setting(request, "base_url").and_then(PublicUrl::parse);
    let base = base.map_or("", |url| url.path.trim_end_matches('/'));
    let query = canonical_query(request.query);
    let hashes: Vec<String> = request
        .public_urls
        .iter()
        .filter_map(|url| PublicUrl::parse(url))
        .map(|url| {
            // Only a whole step of the path is the base's.
            let below = url.path.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let path = below.unwrap_or(url.path).trim_end_matches('/');
            let path = if path.is_empty() { "/".to_owned() } else { path.replace('&', "%26") };
            let text = format!("{}&{path}&{query}", request.method);
            hex::encode(Sha256::digest(text))
        })
        .collect();
    if hashes.is_empty() { Err(no_public_url()) } else { Ok(hashes) }
}

/// The query without the token: names sorted, the values of one name sorted and joined by commas, everything encoded anew.
fn canonical_query(query: &str) -> String {
    let mut fields = std::collections::BTreeMap::<Vec<u8>, Vec<Vec<u8>>>::new();
    for (name, value) in query_pairs(query) {
        if name != b"jwt" {
            fields.entry(name).or_default().push(value);
        }
    }
    let fields = fields.into_iter().map(|(name, mut values)| {
        values.sort_unstable();
        let values: Vec<String> = values.iter().map(|value| encode(value)).collect();
        format!("{}={}", encode(&name), values.join(","))
    });
    fields.collect::<Vec<_>>().join("&")
}

impl Token<'_> {
    /// A claim that is a text or a list of texts.
    fn texts(&self, name: &str) -> Vec<String> {
        const TEXTS_MAX: usize = 16;
        match self.claim(name) {
            Some(text) => vec![text],
            None => (0..TEXTS_MAX).map_while(|n| self.claim(&format!("{name}.{n}"))).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
