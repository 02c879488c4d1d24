//! One version of a tenant's data key.

use std::fmt;

use portero_types::ReceiptId;

use crate::key::Key;
use crate::{KEY_BYTES, OpenError};

/// One version of a tenant's data key. It encrypts nothing itself: the keys that do are derived from it. Wiped on drop; Debug
/// shows the version.
#[derive(Clone)]
pub struct DataKey {
    version: u16,
    key: Key,
}

impl DataKey {
    /// Takes fresh random bytes of a cryptographically secure source.
    #[must_use]
    pub const fn new(version: u16, random: [u8; KEY_BYTES]) -> Self {
        Self { version, key: Key::new(random) }
    }

    /// Reads an unwrapped one.
    pub(crate) fn read(version: u16, bytes: &[u8]) -> Result<Self, OpenError> {
        let key = Key::new(bytes.try_into().map_err(|_| OpenError::Tampered)?);
        if key.is_zero() { Err(OpenError::Tampered) } else { Ok(Self { version, key }) }
    }

    /// Which of the tenant's data keys it is.
    #[must_use]
    pub const fn version(&self) -> u16 {
        self.version
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// The key of secrets and refused requests. It may seal 2^32 values at random nonces (NIST SP 800-38D section 8.3), far
    /// more than a tenant ever has.
    pub(crate) fn value_key(&self) -> Key {
        self.key.derive(&[b"value"])
    }

    /// A key that seals the content of this event and nothing else, so that no number of events uses a key up.
    pub(crate) fn event_key(&self, receipt: ReceiptId) -> Key {
        self.key.derive(&[b"event/", receipt.0.as_bytes()])
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey").field("version", &self.version).finish_non_exhaustive()
    }
}
