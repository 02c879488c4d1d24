//! Makes tokens, good and bad.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm as Alg, EncodingKey};
use portero_auth::{Grant, Issuer, NewToken, Verifier};
use portero_types::Timestamp;
use serde_json::{Value, json};

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
pub(crate) const RSA: &str = include_str!("../data/rsa.pem");
pub(crate) const P256: &str = include_str!("../data/p256.pem");

pub(crate) fn issuer() -> Issuer {
    Issuer::generate("https://portero.test", "portero", [1; 32])
}

pub(crate) fn verifier() -> Verifier {
    Verifier::new(vec![issuer().trusted()]).unwrap()
}

pub(crate) fn minted(issuer: &Issuer) -> String {
    let new = NewToken {
        subject: "ops".into(),
        grant: Some(Grant::platform_admin()),
        lifetime: Duration::from_secs(600),
    };
    issuer.mint(&new, NOW, 7).unwrap().token.expose_secret().clone()
}

/// Header and claims that the test issuer would accept.
pub(crate) fn good_parts() -> (Value, Value) {
    let now = NOW.as_secs();
    (
        json!({ "alg": "EdDSA", "typ": "JWT", "kid": issuer().key_id() }),
        json!({
            "iss": "https://portero.test", "aud": "portero", "sub": "ops",
            "iat": now, "nbf": now, "exp": now + 600, "portero": { "role": "platform-admin" },
        }),
    )
}

pub(crate) fn encode(part: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(part)
}

/// Signs any header and claims, as text, with a key of any kind.
pub(crate) fn sign_text(header: &str, claims: &str, algorithm: Alg, key: &EncodingKey) -> String {
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), key, algorithm).unwrap();
    format!("{signed}.{signature}")
}

/// The key of [`issuer`] in the library's form.
pub(crate) fn issuer_key() -> EncodingKey {
    use ed25519_dalek::pkcs8::EncodePrivateKey;
    let der = ed25519_dalek::SigningKey::from_bytes(&[1; 32]).to_pkcs8_der().unwrap();
    EncodingKey::from_ed_der(der.as_bytes())
}

pub(crate) fn signed(header: &Value, claims: &Value) -> String {
    sign_text(&header.to_string(), &claims.to_string(), Alg::EdDSA, &issuer_key())
}

/// A key set with the public part of a private key.
pub(crate) fn jwks(key: &EncodingKey, algorithm: Alg, kid: &str) -> String {
    let mut jwk = Jwk::from_encoding_key(key, algorithm).unwrap();
    jwk.common.key_id = Some(kid.to_owned());
    json!({ "keys": [jwk] }).to_string()
}
