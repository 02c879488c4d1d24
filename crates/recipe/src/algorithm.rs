//! Signature algorithms, key material, and the only comparison of signatures.

use std::fmt;

use ed25519_dalek::SigningKey;
use hmac::{Hmac, KeyInit as _, Mac as _};
use portero_types::Redacted;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::certificate::{KeyPairAlgorithm, PublicKey};

/// How a signature is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Algorithm {
    /// HMAC (RFC 2104) with SHA-1.
    #[serde(rename = "hmac-sha1")]
    HmacSha1,
    /// HMAC with SHA-256.
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// HMAC with SHA-512.
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
    /// Ed25519 (RFC 8032), verified strictly.
    #[serde(rename = "ed25519")]
    Ed25519,
    /// The SHA-256 digest of a message that holds the secret.
    #[serde(rename = "sha256")]
    Sha256,
    /// ECDSA over P-256 with SHA-256, the signature in DER (SEC 1, RFC 3279).
    #[serde(rename = "ecdsa-p256-sha256")]
    EcdsaP256Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017 section 8.2).
    #[serde(rename = "rsa-sha256")]
    RsaSha256,
    /// No signature: the secret itself is sent.
    #[serde(rename = "equal")]
    Equal,
    /// HTTP basic authentication (RFC 7617): the secret is `user:password`.
    #[serde(rename = "basic")]
    Basic,
    /// Nothing is checked.
    #[serde(rename = "none")]
    None,
}

impl Algorithm {
    /// How it is made with a key pair; `None` for algorithms of shared secrets.
    pub(crate) const fn key_pair(self) -> Option<KeyPairAlgorithm> {
        match self {
            Self::Ed25519 => Some(KeyPairAlgorithm::Ed25519),
            Self::EcdsaP256Sha256 => Some(KeyPairAlgorithm::EcdsaP256Der),
            Self::RsaSha256 => Some(KeyPairAlgorithm::RsaSha256),
            Self::HmacSha1
            | Self::HmacSha256
            | Self::HmacSha512
            | Self::Sha256
            | Self::Equal
            | Self::Basic
            | Self::None => None,
        }
    }

    /// Whether its signatures are made with a private key and judged with a public one.
    pub(crate) const fn is_public(self) -> bool {
        self.key_pair().is_some()
    }

    /// Whether the secret itself is sent.
    pub(crate) const fn is_token(self) -> bool {
        matches!(self, Self::Equal | Self::Basic)
    }

    /// Whether it is an HMAC.
    pub(crate) const fn is_mac(self) -> bool {
        matches!(self, Self::HmacSha1 | Self::HmacSha256 | Self::HmacSha512)
    }
}

/// What a secret decodes to.
#[derive(Clone)]
pub(crate) enum Key {
    /// A shared secret.
    Shared(Redacted<Vec<u8>>),
    /// A public key.
    Public(PublicKey),
}

impl Key {
    /// Whether this kind of key belongs to `algorithm`: a public key must never serve as a shared secret.
    pub(crate) const fn fits(&self, algorithm: Algorithm) -> bool {
        match (self, algorithm.key_pair()) {
            (Self::Shared(_), None) => !matches!(algorithm, Algorithm::None),
            (Self::Public(key), Some(pair)) => key.fits(pair),
            (Self::Shared(_), Some(_)) | (Self::Public(_), None) => false,
        }
    }

    /// The key material of a shared secret.
    pub(crate) fn shared(&self) -> Option<&[u8]> {
        match self {
            Self::Shared(material) => Some(material.expose_secret()),
            Self::Public(_) => None,
        }
    }

    /// What signatures of `message` are judged by; `None` when the key does not fit. A MAC is computed here, once,
    /// however many signatures there are to judge.
    pub(crate) fn judge<'a>(&'a self, algorithm: Algorithm, message: &'a [u8]) -> Option<Judge<'a>> {
        match (algorithm.key_pair(), self) {
            (Some(pair), Self::Public(key)) if key.fits(pair) => Some(Judge::Public(key, pair, message)),
            // Digests have one length, so nothing about the secret's own length shows.
            (None, Self::Shared(secret)) if algorithm.is_token() => {
                Some(Judge::Token(sha256(secret.expose_secret())))
            }
            (None, Self::Shared(secret)) if algorithm.is_mac() => {
                Some(Judge::Mac(mac(algorithm, secret.expose_secret(), message)))
            }
            (None, Self::Shared(_)) if algorithm == Algorithm::Sha256 => Some(Judge::Mac(sha256(message))),
            _ => None,
        }
    }
}

/// Tells good signatures of one message under one key from others.
pub(crate) enum Judge<'a> {
    /// The MAC or digest that it must be.
    Mac(Vec<u8>),
    /// The digest of the token that it must be.
    Token(Vec<u8>),
    /// The public key, how it is used, and the message.
    Public(&'a PublicKey, KeyPairAlgorithm, &'a [u8]),
}

impl Judge<'_> {
    /// Whether the signature is good; compares in constant time. An empty one never is.
    pub(crate) fn accepts(&self, signature: &SignatureBytes) -> bool {
        match self {
            Self::Mac(mac) => !signature.0.is_empty() && bool::from(mac.ct_eq(&signature.0)),
            Self::Token(digest) => {
                let same = digest.ct_eq(&sha256(&signature.0));
                !signature.0.is_empty() && bool::from(same)
            }
            Self::Public(key, pair, message) => key.verifies(*pair, message, &signature.0),
        }
    }
}

/// The SHA-256 digest.
pub(crate) fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

/// A signature's bytes as claimed by the sender.
///
/// Without `PartialEq` on purpose: [`Judge::accepts`] is the only way to compare, and it takes constant time.
pub(crate) struct SignatureBytes(Vec<u8>);

impl fmt::Debug for SignatureBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignatureBytes(…)")
    }
}

impl SignatureBytes {
    /// Wraps decoded bytes.
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// The HMAC of a message; empty for algorithms that are none.
pub(crate) fn mac(algorithm: Algorithm, key: &[u8], message: &[u8]) -> Vec<u8> {
    macro_rules! hmac {
        ($hash:ty) => {
            Hmac::<$hash>::new_from_slice(key)
                .expect("HMAC takes keys of any length")
                .chain_update(message)
                .finalize()
                .into_bytes()
                .to_vec()
        };
    }
    match algorithm {
        Algorithm::HmacSha1 => hmac!(sha1::Sha1),
        Algorithm::HmacSha256 => hmac!(Sha256),
        Algorithm::HmacSha512 => hmac!(sha2::Sha512),
        Algorithm::Sha256
        | Algorithm::Ed25519
        | Algorithm::EcdsaP256Sha256
        | Algorithm::RsaSha256
        | Algorithm::Equal
        | Algorithm::Basic
        | Algorithm::None => Vec::new(),
    }
}

/// The Ed25519 public key of that seed.
pub(crate) fn public_key(seed: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(seed).verifying_key().to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proves(signature: &[u8], algorithm: Algorithm, key: &Key, message: &[u8]) -> bool {
        let signature = SignatureBytes::new(signature.to_vec());
        key.judge(algorithm, message).is_some_and(|judge| judge.accepts(&signature))
    }

    fn shared(bytes: &[u8]) -> Key {
        Key::Shared(Redacted::new(bytes.to_vec()))
    }

    #[test]
    fn the_vectors_of_rfc_4231_and_rfc_2202_hold() {
        let (key, text) = (b"Jefe", b"what do ya want for nothing?");
        let hex = |algorithm| hex::encode(mac(algorithm, key, text));
        assert_eq!(hex(Algorithm::HmacSha1), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(
            hex(Algorithm::HmacSha256),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(hex(Algorithm::HmacSha512).starts_with("164b7a7bfcf819e2e395fbe73b56e0a3"));
    }

    #[test]
    fn a_cut_or_lengthened_mac_proves_nothing() {
        let good = mac(Algorithm::HmacSha256, b"k", b"m");
        let verdict = |signature: &[u8]| proves(signature, Algorithm::HmacSha256, &shared(b"k"), b"m");
        for length in 0..good.len() {
            assert!(!verdict(&good[..length]), "{length} bytes");
        }
        assert!(!verdict(&[&good[..], &[0]].concat()));
        assert!(verdict(&good));
    }

    #[test]
    fn a_public_key_is_never_taken_for_a_shared_secret() {
        let private = SigningKey::from_bytes(&[7; 32]);
        let key = Key::Public(PublicKey::Ed25519(Box::new(private.verifying_key())));
        let forged = mac(Algorithm::HmacSha256, &public_key(&[7; 32]), b"m");
        assert!(!key.fits(Algorithm::HmacSha256) && !proves(&forged, Algorithm::HmacSha256, &key, b"m"));
        let good = ed25519_dalek::Signer::sign(&private, b"m").to_bytes();
        assert!(proves(&good, Algorithm::Ed25519, &key, b"m"));
        assert!(!proves(&good, Algorithm::RsaSha256, &key, b"m"));
    }

    #[test]
    fn an_empty_token_matches_nothing_not_even_an_empty_secret() {
        assert!(!proves(b"", Algorithm::Equal, &shared(b""), b""));
        assert!(proves(b"tok", Algorithm::Equal, &shared(b"tok"), b""));
        assert!(!proves(b"toke", Algorithm::Equal, &shared(b"tok"), b""));
    }
}
