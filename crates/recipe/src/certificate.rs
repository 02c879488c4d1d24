//! Public keys and certificates as providers hand them out, and the signatures made with them.
//!
//! A key is read from a PEM public key or certificate, or from the base64 of a public key's DER (SPKI, RFC 5280). Keys that
//! are too weak are refused when they are read, so that no other place has to ask.

mod private;

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use p256::ecdsa::signature::Verifier as _;
use portero_types::Timestamp;
use rsa::pkcs8::DecodePublicKey as _;
use rsa::traits::PublicKeyParts as _;
use rsa::{Pkcs1v15Sign, Pss};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};
use x509_cert::der::{Decode as _, Encode as _};
use zeroize::Zeroizing;

pub(crate) use self::private::PrivateKey;

/// Least length of an RSA modulus, bits.
pub(crate) const RSA_BITS_MIN: u32 = 2048;
/// Greatest length of an RSA modulus, bits: longer ones cost a verifier too much time.
pub(crate) const RSA_BITS_MAX: u32 = 8192;
/// Longest text that is read, bytes: a certificate with the chain above it.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Why a text is not a key that can be used. Never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InvalidKey {
    /// No PEM block with a key in it.
    #[error("it is not a PEM public key or certificate")]
    NotPem,
    /// Not base64 of a public key.
    #[error("it is not base64 of a public key")]
    NotBase64,
    /// A private key where the public one belongs.
    #[error("it is a private key; the receiver needs the public key")]
    Private,
    /// The DER inside cannot be read.
    #[error("the key or certificate inside is malformed")]
    Malformed,
    /// A kind of key that is not known.
    #[error("it is neither an RSA, nor a P-256, nor an Ed25519 key")]
    Unsupported,
    /// A key that proves too little.
    #[error(
        "it is an RSA key outside {RSA_BITS_MIN} to {RSA_BITS_MAX} bits or of a bad exponent, or a weak Ed25519 key"
    )]
    Weak,
    /// The certificate's time has not come.
    #[error("the certificate is not yet valid")]
    NotYetValid,
    /// The certificate's time is over.
    #[error("the certificate has expired")]
    Expired,
}

/// How a signature is made with a key pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPairAlgorithm {
    /// RSA PKCS #1 v1.5 with SHA-1: only for Amazon SNS version 1, whose senders still use it.
    RsaSha1,
    /// RSA PKCS #1 v1.5 with SHA-256.
    RsaSha256,
    /// RSA-PSS with SHA-512 and a salt of 64 bytes.
    RsaPssSha512,
    /// ECDSA over P-256 with SHA-256, the signature in DER.
    EcdsaP256Der,
    /// The same, the signature as two numbers of 32 bytes.
    EcdsaP256Fixed,
    /// Ed25519.
    Ed25519,
}

/// A public key that is strong enough.
#[derive(Clone)]
pub(crate) enum PublicKey {
    /// RSA of 2048 to 8192 bits.
    Rsa(Box<rsa::PublicKey>),
    /// A point of P-256.
    P256(Box<p256::ecdsa::VerifyingKey>),
    /// Ed25519.
    Ed25519(Box<ed25519_dalek::VerifyingKey>),
}

impl PublicKey {
    /// Reads a PEM public key or certificate. When a certificate was valid does not matter here: somebody chose it.
    pub(crate) fn from_pem(text: &str) -> Result<Self, InvalidKey> {
        match pem_block(text)? {
            ("PUBLIC KEY", der) => Self::from_spki(&der),
            ("CERTIFICATE", der) => Ok(Certificate::from_der(&der)?.key),
            (label, _) if label.ends_with("PRIVATE KEY") => Err(InvalidKey::Private),
            _ => Err(InvalidKey::NotPem),
        }
    }

    /// Reads the base64 of a public key's DER.
    pub(crate) fn from_spki_base64(text: &str) -> Result<Self, InvalidKey> {
        Self::from_spki(&base64_lines(text).ok_or(InvalidKey::NotBase64)?)
    }

    /// Reads a public key's DER.
    pub(crate) fn from_spki(der: &[u8]) -> Result<Self, InvalidKey> {
        let spki =
            x509_cert::spki::SubjectPublicKeyInfoRef::from_der(der).map_err(|_| InvalidKey::Malformed)?;
        let id = spki.algorithm.oid.to_string();
        match id.as_str() {
            "1.2.840.113549.1.1.1" => {
                let key = rsa::PublicKey::from_public_key_der(der).map_err(|_| InvalidKey::Weak)?;
                let is_strong = (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&key.n().bit_width_vartime())
                    && key.e() >= &rsa::BoxedUint::from(3_u8);
                if is_strong { Ok(Self::Rsa(Box::new(key))) } else { Err(InvalidKey::Weak) }
            }
            "1.2.840.10045.2.1" => p256::ecdsa::VerifyingKey::from_public_key_der(der)
                .map(|key| Self::P256(Box::new(key)))
                .map_err(|_| InvalidKey::Unsupported),
            "1.3.101.112" => match ed25519_dalek::VerifyingKey::from_public_key_der(der) {
                Ok(key) if !key.is_weak() => Ok(Self::Ed25519(Box::new(key))),
                Ok(_) => Err(InvalidKey::Weak),
                Err(_) => Err(InvalidKey::Malformed),
            },
            _ => Err(InvalidKey::Unsupported),
        }
    }

    /// A point of P-256 from its coordinates, 32 bytes each.
    pub(crate) fn from_p256_point(x: &[u8; 32], y: &[u8; 32]) -> Result<Self, InvalidKey> {
        let point = [&[0x04][..], x, y].concat();
        p256::ecdsa::VerifyingKey::from_sec1_bytes(&point)
            .map(|key| Self::P256(Box::new(key)))
            .map_err(|_| InvalidKey::Malformed)
    }

    /// Whether this kind of key belongs to `algorithm`.
    pub(crate) const fn fits(&self, algorithm: KeyPairAlgorithm) -> bool {
        use KeyPairAlgorithm as A;
        match self {
            Self::Rsa(_) => matches!(algorithm, A::RsaSha1 | A::RsaSha256 | A::RsaPssSha512),
            Self::P256(_) => matches!(algorithm, A::EcdsaP256Der | A::EcdsaP256Fixed),
            Self::Ed25519(_) => matches!(algorithm, A::Ed25519),
        }
    }

    /// Whether `signature` was made of `message` with the private key that belongs to this one. A key that does not fit
    /// the algorithm verifies nothing.
    pub(crate) fn verifies(&self, algorithm: KeyPairAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        match (self, algorithm) {
            (Self::Rsa(key), KeyPairAlgorithm::RsaSha1) => {
                key.verify(Pkcs1v15Sign::new::<Sha1>(), &Sha1::digest(message), signature).is_ok()
            }
            (Self::Rsa(key), KeyPairAlgorithm::RsaSha256) => {
                key.verify(Pkcs1v15Sign::new::<Sha256>(), &Sha256::digest(message), signature).is_ok()
            }
            (Self::Rsa(key), KeyPairAlgorithm::RsaPssSha512) => {
                key.verify(Pss::<Sha512>::new(), &Sha512::digest(message), signature).is_ok()
            }
            (Self::P256(key), KeyPairAlgorithm::EcdsaP256Der) => {
                p256::ecdsa::Signature::from_der(signature).is_ok_and(|s| key.verify(message, &s).is_ok())
            }
            (Self::P256(key), KeyPairAlgorithm::EcdsaP256Fixed) => {
                p256::ecdsa::Signature::from_slice(signature).is_ok_and(|s| key.verify(message, &s).is_ok())
            }
            (Self::Ed25519(key), KeyPairAlgorithm::Ed25519) => {
                ed25519_dalek::Signature::from_slice(signature)
                    .is_ok_and(|s| key.verify_strict(message, &s).is_ok())
            }
            _ => false,
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa(_) => "PublicKey(RSA)",
            Self::P256(_) => "PublicKey(P-256)",
            Self::Ed25519(_) => "PublicKey(Ed25519)",
        })
    }
}

/// A certificate's key and the time in which it may be used. Who issued it is not looked at: it is trusted for the place
/// from which it was fetched.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    key: PublicKey,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Certificate {
    /// Reads the first certificate of a PEM text, which is the leaf where there is a chain.
    pub(crate) fn from_pem(bytes: &[u8]) -> Result<Self, InvalidKey> {
        match pem_block(std::str::from_utf8(bytes).map_err(|_| InvalidKey::NotPem)?)? {
            ("CERTIFICATE", der) => Self::from_der(&der),
            _ => Err(InvalidKey::NotPem),
        }
    }

    /// The key, if `now` is within the certificate's time; its ends belong to it (RFC 5280, 4.1.2.5).
    pub(crate) fn key_at(&self, now: Timestamp) -> Result<&PublicKey, InvalidKey> {
        if now < self.not_before {
            Err(InvalidKey::NotYetValid)
        } else if now > self.not_after {
            Err(InvalidKey::Expired)
        } else {
            Ok(&self.key)
        }
    }

    fn from_der(der: &[u8]) -> Result<Self, InvalidKey> {
        let certificate = x509_cert::Certificate::from_der(der).map_err(|_| InvalidKey::Malformed)?;
        let content = certificate.tbs_certificate();
        let spki = content.subject_public_key_info().to_der().map_err(|_| InvalidKey::Malformed)?;
        let at = |time: &x509_cert::time::Time| {
            // The last moment of its second.
            Timestamp::EPOCH.plus(time.to_unix_duration())
        };
        let last_moment = Duration::from_micros(999_999);
        Ok(Self {
            key: PublicKey::from_spki(&spki)?,
            not_before: at(&content.validity().not_before),
            not_after: at(&content.validity().not_after).plus(last_moment),
        })
    }
}

/// The label and content of the first PEM block. Lines may have any length and any end, even none: people paste.
fn pem_block(text: &str) -> Result<(&str, Vec<u8>), InvalidKey> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(InvalidKey::NotPem);
    }
    let (_, rest) = text.split_once("-----BEGIN ").ok_or(InvalidKey::NotPem)?;
    let (label, rest) = rest.split_once("-----").ok_or(InvalidKey::NotPem)?;
    let (content, _) = rest.split_once(&format!("-----END {label}-----")).ok_or(InvalidKey::NotPem)?;
    Ok((label, base64_lines(content).ok_or(InvalidKey::NotPem)?))
}

/// Base64 with white space anywhere.
fn base64_lines(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let packed: Zeroizing<Vec<u8>> =
        Zeroizing::new(text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect());
    LENIENT.decode(packed.as_slice()).ok().filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
