//! A JSON Web Key Set (RFC 7517): the public keys of an issuer.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;

use crate::Algorithm;

/// Most keys that are read from one set; the rest is ignored.
const KEYS_MAX: usize = 64;
/// RSA keys of 2,048 to 4,096 bits (NIST SP 800-131A); longer ones would make verification a way to burn the processor.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;
/// Longest public exponent, bytes.
const EXPONENT_BYTES_MAX: usize = 4;

/// Usable keys by their id.
pub(crate) struct KeySet(HashMap<String, Vec<VerifyKey>>);

/// A public key and the algorithms that it may verify.
pub(crate) struct VerifyKey {
    key: DecodingKey,
    algorithms: Vec<Algorithm>,
}

impl VerifyKey {
    pub(crate) fn can(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Whether `signature` (base64url) is this key's over `message`.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &str, signature: &str) -> bool {
        self.can(algorithm)
            && jsonwebtoken::crypto::verify(signature, message.as_bytes(), &self.key, algorithm.to_library())
                .unwrap_or(false)
    }
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

/// The members of a JWK that matter for verifying.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl KeySet {
    /// Reads a set. Keys that cannot verify here (encryption, symmetric, unknown kinds, too short, without id) are left out,
    /// as RFC 7517 section 5 asks. `None` when it is no set at all; a set may turn out empty.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        let document: Document = serde_json::from_slice(json).ok()?;
        let mut keys: HashMap<String, Vec<VerifyKey>> = HashMap::new();
        for value in document.keys.into_iter().take(KEYS_MAX) {
            if let Ok(jwk) = serde_json::from_value::<Jwk>(value)
                && let Some((kid, key)) = usable(jwk)
            {
                keys.entry(kid).or_default().push(key);
            }
        }
        Some(Self(keys))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many key ids.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The keys of this id; usually one.
    pub(crate) fn of(&self, kid: &str) -> Option<&[VerifyKey]> {
        self.0.get(kid).map(Vec::as_slice)
    }
}

fn usable(jwk: Jwk) -> Option<(String, VerifyKey)> {
    if jwk.r#use.is_some_and(|purpose| purpose != "sig")
        || jwk.key_ops.is_some_and(|operations| !operations.iter().any(|o| o == "verify"))
    {
        return None;
    }
    let (key, mut algorithms) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => {
            let x = jwk.x.filter(|x| bytes(x) == Some(32))?;
            (DecodingKey::from_ed_components(&x).ok()?, vec![Algorithm::EdDsa])
        }
        ("EC", Some("P-256")) => (point(jwk.x?, jwk.y?, 32)?, vec![Algorithm::Es256]),
        ("EC", Some("P-384")) => (point(jwk.x?, jwk.y?, 48)?, vec![Algorithm::Es384]),
        ("RSA", _) => {
            let n = jwk.n.filter(|n| bytes(n).is_some_and(|len| RSA_BYTES.contains(&len)))?;
            let e = jwk.e.filter(|e| bytes(e).is_some_and(|len| (1..=EXPONENT_BYTES_MAX).contains(&len)))?;
            let rsa = [
                Algorithm::Rs256,
                Algorithm::Rs384,
                Algorithm::Rs512,
                Algorithm::Ps256,
                Algorithm::Ps384,
                Algorithm::Ps512,
            ];
            (DecodingKey::from_rsa_components(&n, &e).ok()?, rsa.to_vec())
        }
        _ => return None,
    };
    if let Some(named) = jwk.alg {
        algorithms.retain(|algorithm| algorithm.name() == named);
    }
    let kid = jwk.kid.filter(|kid| !kid.is_empty())?;
    (!algorithms.is_empty()).then_some((kid, VerifyKey { key, algorithms }))
}

/// The library trusts lengths, so they are checked here.
fn point(x: String, y: String, len: usize) -> Option<DecodingKey> {
    (bytes(&x) == Some(len) && bytes(&y) == Some(len))
        .then(|| DecodingKey::from_ec_components(&x, &y).ok())?
}

fn bytes(base64url: &str) -> Option<usize> {
    URL_SAFE_NO_PAD.decode(base64url).ok().map(|bytes| bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn ids(keys: &str) -> Vec<String> {
        let mut ids: Vec<_> = KeySet::parse(format!(r#"{{"keys":[{keys}]}}"#).as_bytes())
            .expect("a set")
            .0
            .into_keys()
            .collect();
        ids.sort();
        ids
    }

    #[test]
    fn one_key_that_cannot_be_used_does_not_spoil_the_others() {
        let good = format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"good","x":"{X}"}}"#);
        for bad in [
            r#"{"kty":"oct","kid":"bad","k":"c2VjcmV0"}"#.to_owned(),
            r#"{"kty":"NEW","kid":"bad"}"#.to_owned(),
            r#"{"kid":"bad"}"#.to_owned(),
            "17".to_owned(),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}"}}"#),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"","x":"{X}"}}"#),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"bad","use":"enc","x":"{X}"}}"#),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"bad","key_ops":["sign"],"x":"{X}"}}"#),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"bad","alg":"HS256","x":"{X}"}}"#),
            format!(r#"{{"kty":"OKP","crv":"Ed448","kid":"bad","x":"{X}"}}"#),
            format!(r#"{{"kty":"EC","crv":"P-256","kid":"bad","x":"{X}","y":"AA"}}"#),
            r#"{"kty":"OKP","crv":"Ed25519","kid":"bad","x":"AAAA"}"#.to_owned(),
            r#"{"kty":"RSA","kid":"bad","n":"AQAB","e":"AQAB"}"#.to_owned(),
        ] {
            assert_eq!(ids(&format!("{bad},{good}")), ["good"], "{bad}");
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in ["", "[]", "{}", r#"{"keys":{}}"#, "<html>"] {
            assert!(KeySet::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn an_algorithm_named_by_the_key_limits_it() {
        let set = format!(
            r#"{{"keys":[{{"kty":"RSA","kid":"r","alg":"RS256","n":"{}","e":"AQAB"}}]}}"#,
            "A".repeat(342)
        );
        let set = KeySet::parse(set.as_bytes()).expect("a set");
        let key = &set.of("r").expect("there")[0];
        assert!(key.can(Algorithm::Rs256) && !key.can(Algorithm::Ps256) && !key.can(Algorithm::EdDsa));
    }
}
