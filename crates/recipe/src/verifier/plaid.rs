//! Plaid: a JSON Web Token whose key Plaid tells its customers.
//!
//! `Plaid-Verification` is a token signed with ES256 that holds the body's SHA-256
//! (<https://plaid.com/docs/api/webhooks/webhook-verification/>). Its key is asked for by the token's key id, with the
//! customer's own credentials: the setting `client_id` and, as the source's secret, Plaid's secret.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portero_types::{Redacted, SecretNo, Timestamp};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::jwt::Token;
use super::{Ambiguous, Input, header, optional_setting, setting, text_at};
use crate::algorithm::Key;
use crate::certificate::{KeyPairAlgorithm, PublicKey};
use crate::json::Document;
use crate::request::Fetch;
use crate::window::Unit;
use crate::{Reason, Rejection, Request};

/// For how long a key may be kept: Plaid says in the key when it ends.
const KEY_KEPT: Duration = Duration::from_secs(3600);
/// How far the token's time may lie back or ahead, seconds.
const WINDOW_S: u32 = 300;
/// Longest key id, bytes.
const KEY_ID_BYTES_MAX: usize = 128;
/// Deepest JSON in Plaid's answer.
const ANSWER_DEPTH_MAX: usize = 8;

/// Plaid has no options.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {}

/// The key that the token names.
pub(super) fn fetch(input: &Input<'_>) -> Result<Fetch, Rejection> {
    let (token, key_id) = read(input.request)?;
    // A time far off needs no key to be refused.
    judge(&token, input.now)?;
    let host = host(input.request)?;
    let client_id = setting(input.request, "client_id")?;
    let secret = secret(input)?.1;
    // Who asks with another secret may get another answer, a refusal say.
    let asked_by = hex::encode(Sha256::digest(secret));
    let question = serde_json::json!({ "client_id": client_id, "secret": secret, "key_id": key_id });
    Ok(Fetch {
        url: format!("https://{host}/webhook_verification_key/get"),
        post_json: Some(Redacted::new(question.to_string())),
        cache_key: format!("plaid {host} {client_id} {key_id} {asked_by}"),
        cache_for: KEY_KEPT,
    })
}

/// Verifies the request under the key that was fetched.
pub(super) fn verify(input: &Input<'_>) -> Result<SecretNo, Rejection> {
    let (token, key_id) = read(input.request)?;
    let secret = secret(input)?.0;
    let key = key(input.fetched("Plaid's key")?, &key_id, input.now)?;
    if !key.verifies(KeyPairAlgorithm::EcdsaP256Fixed, token.signed, &token.signature) {
        return Err(Rejection::new(
            Reason::SignatureMismatch,
            "the token's signature is not good under Plaid's key",
        ));
    }
    judge(&token, input.now)?;
    let claimed = token.claim("request_body_sha256").unwrap_or_default();
    let digest = hex::encode(Sha256::digest(input.request.body));
    if bool::from(digest.as_bytes().ct_eq(claimed.as_bytes())) {
        Ok(secret)
    } else {
        Err(Rejection::new(
            Reason::BodyDigestMismatch,
            "the SHA-256 in the signed token is not the body's: it was changed, or is not as Plaid sent it",
        ))
    }
}

fn read<'a>(request: &Request<'a>) -> Result<(Token<'a>, String), Rejection> {
    let token = Token::read(header(request, "plaid-verification", Reason::SignatureMissing)?, "ES256")?;
    let is_plain = |id: &String| {
        (1..=KEY_ID_BYTES_MAX).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let key_id = token.header("kid").filter(is_plain).ok_or_else(|| {
        Rejection::new(Reason::SignatureMalformed, "the token names no key ('kid') as Plaid names keys")
    })?;
    Ok((token, key_id))
}

fn judge(token: &Token<'_>, now: Timestamp) -> Result<(), Rejection> {
    super::judge(token.time("iat")?, Unit::Seconds, WINDOW_S, WINDOW_S, now)
}

/// Plaid's host for the source's environment.
fn host(request: &Request<'_>) -> Result<&'static str, Rejection> {
    match optional_setting(request, "environment") {
        None | Some("production") => Ok("production.plaid.com"),
        Some("sandbox") => Ok("sandbox.plaid.com"),
        Some(_) => Err(Rejection::new(
            Reason::SettingMissing,
            "the setting 'environment' is neither 'production' nor 'sandbox'",
        )),
    }
}

/// The first secret that is a text: Plaid's own.
fn secret<'a>(input: &Input<'a>) -> Result<(SecretNo, &'a str), Rejection> {
    let secrets = input.secrets.iter().flat_map(|secret| {
        secret.keys(input.scheme).iter().filter_map(Key::shared).map(|key| (secret.no(), key))
    });
    let mut texts = secrets.filter_map(|(no, key)| Some((no, std::str::from_utf8(key).ok()?)));
    texts.next().ok_or_else(|| {
        Rejection::new(
            Reason::NoActiveSecret,
            "the source has no active secret to ask Plaid for its key with",
        )
    })
}

/// The key in Plaid's answer, if it is the one that was asked for and has not ended.
fn key(answer: &[u8], key_id: &str, now: Timestamp) -> Result<PublicKey, Rejection> {
    let invalid = |what: &str| Rejection::new(Reason::FetchedKeyInvalid, format!("Plaid's key {what}"));
    let document = Document::parse(answer.into(), ANSWER_DEPTH_MAX).map_err(|_| invalid("is not JSON"))?;
    let text = |path: &str| text_at(&document, path).map_err(|Ambiguous| invalid("is ambiguous"));
    for (path, expected) in [("key.kty", "EC"), ("key.crv", "P-256"), ("key.kid", key_id)] {
        if text(path)?.as_deref() != Some(expected) {
            return Err(invalid("is not the P-256 key that the token names"));
        }
    }
    if let Some(end) = text("key.expired_at")? {
        let whole = end.split('.').next().unwrap_or_default();
        let end = whole.parse().map(Timestamp::from_secs).map_err(|_| invalid("has an unreadable end"))?;
        if end <= now {
            return Err(invalid("has expired"));
        }
    }
    let coordinate =
        |text: Option<String>| -> Option<[u8; 32]> { URL_SAFE_NO_PAD.decode(text?).ok()?.try_into().ok() };
    match (coordinate(text("key.x")?), coordinate(text("key.y")?)) {
        (Some(x), Some(y)) => PublicKey::from_p256_point(&x, &y).map_err(|_| invalid("is no point of P-256")),
        _ => Err(invalid("lacks its coordinates")),
    }
}

#[cfg(test)]
mod tests;
