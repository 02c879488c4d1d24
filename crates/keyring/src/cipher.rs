//! The one way in which anything is encrypted: AES-256-GCM with a random nonce.

use aes_gcm::aead::{Aead, Nonce, Payload};
use zeroize::Zeroizing;

use crate::key::Key;

/// Length of the random bytes that sealing takes: the nonce of AES-GCM (96 bits, NIST SP 800-38D section 8.2.2).
pub const NONCE_BYTES: usize = 12;

/// Appends nonce, ciphertext and tag (16 bytes) to `out`.
///
/// `nonce` must be fresh from a cryptographically secure source: a repeated one under the same key breaks AES-GCM.
pub(crate) fn seal_onto(
    out: &mut Vec<u8>,
    key: &Key,
    aad: &[u8],
    plaintext: &[u8],
    nonce: [u8; NONCE_BYTES],
) {
    let sealed = key
        .cipher()
        .encrypt(&Nonce::<aes_gcm::Aes256Gcm>::from(nonce), Payload { msg: plaintext, aad })
        .expect("invariant: AES-GCM encrypts up to 64 GiB");
    out.reserve_exact(NONCE_BYTES + sealed.len());
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&sealed);
}

/// Opens nonce, ciphertext and tag. `None` when anything is not as it was sealed.
pub(crate) fn open(key: &Key, aad: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, ciphertext) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    key.cipher().decrypt(nonce.into(), Payload { msg: ciphertext, aad }).map(Zeroizing::new).ok()
}
