//! Private keys, for the command line, tests and senders.

use std::fmt;

use p256::ecdsa::signature::Signer as _;
use rsa::pkcs8::DecodePrivateKey as _;
use rsa::traits::PublicKeyParts as _;
use sha1::Sha1;
use sha2::Sha256;
use zeroize::Zeroizing;

#[cfg(test)]
use super::PublicKey;
use super::{InvalidKey, KeyPairAlgorithm, RSA_BITS_MAX, RSA_BITS_MIN, pem_block};

/// A private key that is strong enough.
pub(crate) enum PrivateKey {
    /// RSA.
    Rsa(Box<rsa::PrivateKey>),
    /// P-256; signs as RFC 6979 says, so the same message gives the same signature.
    P256(Box<p256::ecdsa::SigningKey>),
    /// Ed25519.
    Ed25519(Box<ed25519_dalek::SigningKey>),
}

impl PrivateKey {
    /// Reads a PKCS #8 PEM private key.
    pub(crate) fn from_pem(text: &str) -> Result<Self, InvalidKey> {
        let ("PRIVATE KEY", der) = pem_block(text)? else { return Err(InvalidKey::NotPem) };
        let der = Zeroizing::new(der);
        if let Ok(key) = rsa::PrivateKey::from_pkcs8_der(&der) {
            let is_strong = (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&key.n().bit_width_vartime());
            return if is_strong { Ok(Self::Rsa(Box::new(key))) } else { Err(InvalidKey::Weak) };
        }
        if let Ok(key) = p256::ecdsa::SigningKey::from_pkcs8_der(&der) {
            return Ok(Self::P256(Box::new(key)));
        }
        ed25519_dalek::SigningKey::from_pkcs8_der(&der)
            .map(|key| Self::Ed25519(Box::new(key)))
            .map_err(|_| InvalidKey::Unsupported)
    }

    /// The public key that belongs to it.
    #[cfg(test)]
    pub(crate) fn public(&self) -> PublicKey {
        match self {
            Self::Rsa(key) => PublicKey::Rsa(Box::new(key.to_public_key())),
            Self::P256(key) => PublicKey::P256(Box::new(*key.verifying_key())),
            Self::Ed25519(key) => PublicKey::Ed25519(Box::new(key.verifying_key())),
        }
    }

    /// Signs a message; `None` when the key does not fit the algorithm, and for RSA-PSS, which needs randomness.
    pub(crate) fn sign(&self, algorithm: KeyPairAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        match (self, algorithm) {
            (Self::Rsa(key), KeyPairAlgorithm::RsaSha1) => key.pkcs1v15_sign::<Sha1>(message).ok(),
            (Self::Rsa(key), KeyPairAlgorithm::RsaSha256) => key.pkcs1v15_sign::<Sha256>(message).ok(),
            (Self::P256(key), KeyPairAlgorithm::EcdsaP256Der) => {
                let signature: p256::ecdsa::DerSignature = key.sign(message);
                Some(signature.as_bytes().to_vec())
            }
            (Self::P256(key), KeyPairAlgorithm::EcdsaP256Fixed) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                Some(signature.to_bytes().to_vec())
            }
            (Self::Ed25519(key), KeyPairAlgorithm::Ed25519) => Some(key.sign(message).to_bytes().to_vec()),
            _ => None,
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}
