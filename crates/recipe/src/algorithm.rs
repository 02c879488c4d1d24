//! Signature algorithms, key material, and the only comparison of signatures.

use std::fmt;

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use portero_types::Redacted;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// How a signature is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
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
    /// No signature: the secret itself is sent.
    #[serde(rename = "equal")]
    Equal,
    /// Nothing is checked.
    #[serde(rename = "none")]
    None,
}

/// What a secret decodes to.
#[derive(Clone)]
pub(crate) enum Key {
    /// A shared secret.
    Shared(Redacted<Vec<u8>>),
    /// A public key.
    Ed25519(VerifyingKey),
}

impl Key {
    /// Whether this kind of key belongs to `algorithm`: a public key must never serve as a shared secret.
    pub(crate) const fn fits(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512 | Algorithm::Equal => {
                matches!(self, Self::Shared(_))
            }
            Algorithm::Ed25519 => matches!(self, Self::Ed25519(_)),
            Algorithm::None => false,
        }
    }

    /// What signatures of `message` are judged by; `None` when the key does not fit. A MAC is computed here, once,
    /// however many signatures there are to judge.
    pub(crate) fn judge<'a>(&'a self, algorithm: Algorithm, message: &'a [u8]) -> Option<Judge<'a>> {
        match (algorithm, self) {
            (Algorithm::Ed25519, Self::Ed25519(key)) => Some(Judge::Ed25519(key, message)),
            // Digests have one length, so nothing about the secret's own length shows.
            (Algorithm::Equal, Self::Shared(secret)) => Some(Judge::Token(sha256(secret.expose_secret()))),
            (Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512, Self::Shared(secret)) => {
                Some(Judge::Mac(mac(algorithm, secret.expose_secret(), message)))
            }
            _ => None,
        }
    }
}

/// Tells good signatures of one message under one key from others.
pub(crate) enum Judge<'a> {
    /// The MAC that it must be.
    Mac(Vec<u8>),
    /// The digest of the token that it must be.
    Token(Vec<u8>),
    /// The public key and the message.
    Ed25519(&'a VerifyingKey, &'a [u8]),
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
            Self::Ed25519(key, message) => ed25519_dalek::Signature::from_slice(&signature.0)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
        }
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
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
        Algorithm::Ed25519 | Algorithm::Equal | Algorithm::None => Vec::new(),
    }
}

/// The Ed25519 signature of a message under the private key of that seed.
pub(crate) fn sign_ed25519(seed: &[u8; 32], message: &[u8]) -> Vec<u8> {
    SigningKey::from_bytes(seed).sign(message).to_bytes().to_vec()
}

/// The public key of that seed.
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
        let public = public_key(&[7; 32]);
        let key = Key::Ed25519(VerifyingKey::from_bytes(&public).expect("valid"));
        let forged = mac(Algorithm::HmacSha256, &public, b"m");
        assert!(!key.fits(Algorithm::HmacSha256) && !proves(&forged, Algorithm::HmacSha256, &key, b"m"));
        assert!(proves(&sign_ed25519(&[7; 32], b"m"), Algorithm::Ed25519, &key, b"m"));
    }

    #[test]
    fn an_empty_token_matches_nothing_not_even_an_empty_secret() {
        assert!(!proves(b"", Algorithm::Equal, &shared(b""), b""));
        assert!(proves(b"tok", Algorithm::Equal, &shared(b"tok"), b""));
        assert!(!proves(b"toke", Algorithm::Equal, &shared(b"tok"), b""));
    }
}
