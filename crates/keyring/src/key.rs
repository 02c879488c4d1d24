//! One version of a key and its name.

use std::fmt;

use aes_gcm::{Aes256Gcm, KeyInit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::Problem;

/// Length of a key, bytes (AES-256).
pub const KEY_BYTES: usize = 32;

/// Longest base64 text that is looked at: a key is 44 characters.
const TEXT_BYTES_MAX: usize = 64;

/// Why a text is not the name of a key version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a key id must be 1 to 63 characters of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
)]
pub struct InvalidKeyId;

/// The name of a key version: 1 to 63 characters of `A-Z`, `a-z`, `0-9`, `.`, `_` and `-`, first a letter or digit. It is
/// a valid file name and a valid key of a Kubernetes Secret. It is stored beside each sealed value, so it is never reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Box<str>);

impl KeyId {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`InvalidKeyId`] when the text breaks the rule.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidKeyId> {
        let text = text.into();
        let good = (1..=63).contains(&text.len())
            && text.as_bytes()[0].is_ascii_alphanumeric()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if good { Ok(Self(text.into_boxed_str())) } else { Err(InvalidKeyId) }
    }

    /// The name that stands for no key.
    pub(crate) fn reserved() -> Self {
        Self(crate::UNPROTECTED.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for KeyId {
    type Err = InvalidKeyId;
    fn from_str(text: &str) -> Result<Self, InvalidKeyId> {
        Self::new(text)
    }
}

/// 256 bits of key material. Wiped on drop; Debug shows nothing.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Key([u8; KEY_BYTES]);

impl Key {
    /// Takes fresh random bytes.
    pub(crate) const fn new(random: [u8; KEY_BYTES]) -> Self {
        Self(random)
    }

    /// Reads standard base64 with padding; white space around it is ignored.
    pub(crate) fn from_base64(text: &str) -> Result<Self, Problem> {
        let text = text.trim();
        if text.len() > TEXT_BYTES_MAX {
            return Err(Problem::WrongKeyLength);
        }
        let mut bytes = Zeroizing::new([0_u8; TEXT_BYTES_MAX]);
        let n = STANDARD.decode_slice(text, bytes.as_mut_slice()).map_err(|_| Problem::NotBase64)?;
        <[u8; KEY_BYTES]>::try_from(&bytes[..n]).map(Self).map_err(|_| Problem::WrongKeyLength)
    }

    pub(crate) fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0))
    }

    /// Whether two versions hold the same bits. Keys are compared when a keyring is built, never with a caller's input.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; KEY_BYTES]
    }

    pub(crate) fn cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new((&self.0).into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Sixteen hexadecimal digits by which two keys are told apart: of a value that is made of the key and used for nothing else.
    pub(crate) fn mark(&self) -> String {
        self.derive(&[b"mark"]).0[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Another key, made of this one and a label (HMAC-SHA256 as a pseudorandom function, NIST SP 800-108r1 section 4).
    pub(crate) fn derive(&self, label: &[&[u8]]) -> Self {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .expect("invariant: HMAC takes keys of any length");
        for part in label {
            mac.update(part);
        }
        Self(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_ids_are_safe_file_names() {
        for good in ["1", "v1", "2026-01_a.b", &"k".repeat(63)] {
            assert!(KeyId::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", ".hidden", "-a", "a/b", "a b", "ä", "a\0", &"k".repeat(64)] {
            assert!(KeyId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_reads_back_from_base64_with_white_space_around_it() {
        let key = Key::new([7; 32]);
        let read = Key::from_base64(&format!("  {}\n", key.to_base64().as_str())).expect("valid");
        assert!(read.is_same(&key));
    }

    #[test]
    fn keys_of_another_length_or_alphabet_are_refused() {
        assert_eq!(Key::from_base64(&STANDARD.encode([7; 16])).err(), Some(Problem::WrongKeyLength));
        assert_eq!(Key::from_base64(&STANDARD.encode([7; 33])).err(), Some(Problem::WrongKeyLength));
        assert_eq!(Key::from_base64(&STANDARD.encode([7; 500])).err(), Some(Problem::WrongKeyLength));
        assert_eq!(Key::from_base64("not base64 !").err(), Some(Problem::NotBase64));
        assert_eq!(Key::from_base64("").err(), Some(Problem::WrongKeyLength));
    }
}
