//! The algorithms of HTTP signatures (RFC 9421, section 3.3).

use serde::Deserialize;

use crate::algorithm::{Key, SignatureBytes};
use crate::certificate::{KeyPairAlgorithm, PublicKey};

/// An algorithm by its registered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "HttpSignatureAlgorithm"))]
pub(super) enum Algorithm {
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    #[serde(rename = "ed25519")]
    Ed25519,
    #[serde(rename = "ecdsa-p256-sha256")]
    EcdsaP256Sha256,
    #[serde(rename = "rsa-v1_5-sha256")]
    RsaV15Sha256,
    #[serde(rename = "rsa-pss-sha512")]
    RsaPssSha512,
}

impl Algorithm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::Ed25519 => "ed25519",
            Self::EcdsaP256Sha256 => "ecdsa-p256-sha256",
            Self::RsaV15Sha256 => "rsa-v1_5-sha256",
            Self::RsaPssSha512 => "rsa-pss-sha512",
        }
    }

    /// How it is made with a key pair; `None`: it is made with a shared secret.
    pub(super) const fn key_pair(self) -> Option<KeyPairAlgorithm> {
        match self {
            Self::HmacSha256 => None,
            Self::Ed25519 => Some(KeyPairAlgorithm::Ed25519),
            Self::EcdsaP256Sha256 => Some(KeyPairAlgorithm::EcdsaP256Fixed),
            Self::RsaV15Sha256 => Some(KeyPairAlgorithm::RsaSha256),
            Self::RsaPssSha512 => Some(KeyPairAlgorithm::RsaPssSha512),
        }
    }

    /// Whether `raw`, which is `signature` again, was made of the message under the key.
    pub(super) fn proves(self, key: &Key, message: &[u8], signature: &SignatureBytes, raw: &[u8]) -> bool {
        match (self.key_pair(), key) {
            (None, Key::Shared(_)) => key
                .judge(crate::algorithm::Algorithm::HmacSha256, message)
                .is_some_and(|judge| judge.accepts(signature)),
            (Some(pair), Key::Public(key)) => key.verifies(pair, message, raw),
            // The 32 bytes of an Ed25519 key, where the recipe says that the secret is one.
            (Some(KeyPairAlgorithm::Ed25519), Key::Shared(bytes)) => ed25519(bytes.expose_secret())
                .is_some_and(|key| key.verifies(KeyPairAlgorithm::Ed25519, message, raw)),
            (None, Key::Public(_)) | (Some(_), Key::Shared(_)) => false,
        }
    }
}

fn ed25519(bytes: &[u8]) -> Option<PublicKey> {
    let key = ed25519_dalek::VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()?;
    (!key.is_weak()).then(|| PublicKey::Ed25519(Box::new(key)))
}
