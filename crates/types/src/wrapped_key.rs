//! A tenant's data key as databases hold it.

use std::fmt;

use zeroize::Zeroize;

/// A version of a tenant's data key, encrypted by a key-encryption key. Debug shows names only: where nothing encrypts data
/// keys, `bytes` hold the key itself.
#[derive(Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// Which of the tenant's data keys; 1 is the first. What it encrypted says so too.
    pub version: u16,
    /// The name of the key-encryption key.
    pub key_id: String,
    /// The encrypted data key, in the keyring's format.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for WrappedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedKey")
            .field("version", &self.version)
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

impl Drop for WrappedKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_only() {
        let key = WrappedKey { version: 3, key_id: "none".to_owned(), bytes: vec![171; 33] };
        assert_eq!(format!("{key:?}"), r#"WrappedKey { version: 3, key_id: "none", .. }"#);
    }
}
