//! Data keys under key-encryption keys.

use portero_types::{TenantId, WrappedKey};

use crate::{DataKey, KEY_BYTES, KeyId, Keyring, NONCE_BYTES, OpenError};

/// The name that stands for no key at all: a data key "under" it is not encrypted. No key of a keyring may be called so.
pub const UNPROTECTED: &str = "none";

const FORMAT: u8 = 1;

impl Keyring {
    /// A keyring without a key, which leaves data keys as they are. Whoever reads the database reads everything.
    #[must_use]
    pub fn unprotected() -> Self {
        Self::without_keys(KeyId::reserved())
    }

    /// Whether data keys that it wraps lie open in the database.
    #[must_use]
    pub fn is_unprotected(&self) -> bool {
        self.active().as_str() == UNPROTECTED
    }

    /// Lets it open data keys that nothing encrypts, too: until they are wrapped again. Otherwise who can write to the database,
    /// and read it, could bring a key that he knows.
    #[must_use]
    pub const fn taking_unprotected(mut self) -> Self {
        self.set_taking_unprotected();
        self
    }

    /// Whether it can open what is wrapped under a key of this name.
    #[must_use]
    pub fn opens(&self, key_id: &str) -> bool {
        if key_id == UNPROTECTED {
            return self.takes_unprotected();
        }
        KeyId::new(key_id).is_ok_and(|id| self.contains(&id))
    }

    /// A fresh data key of a tenant, wrapped. Both randoms must come from a cryptographically secure source.
    #[must_use]
    pub fn new_data_key(
        &self,
        version: u16,
        tenant: &TenantId,
        key: [u8; KEY_BYTES],
        nonce: [u8; NONCE_BYTES],
    ) -> WrappedKey {
        self.wrap(&DataKey::new(version, key), tenant, nonce)
    }

    /// Encrypts a data key with the active key, bound to its tenant and version. `random` must be fresh for every call.
    #[must_use]
    pub fn wrap(&self, key: &DataKey, tenant: &TenantId, random: [u8; NONCE_BYTES]) -> WrappedKey {
        let version = key.version();
        if self.is_unprotected() {
            let bytes = [&[FORMAT], key.key().as_bytes().as_slice()].concat();
            return WrappedKey { version, key_id: UNPROTECTED.to_owned(), bytes };
        }
        let sealed = self.seal(key.key().as_bytes(), &aad(tenant, version), random);
        WrappedKey { version, key_id: sealed.key_id, bytes: sealed.bytes }
    }

    /// Opens a data key that was wrapped with any version of this keyring, for the same tenant.
    ///
    /// # Errors
    /// [`OpenError::UnknownKey`] when that version is not here, [`OpenError::Unprotected`] when nothing encrypts it and this
    /// keyring was not told to take such, [`OpenError::UnknownFormat`], or [`OpenError::Tampered`] for everything that is
    /// not as it was wrapped.
    pub fn unwrap(&self, wrapped: &WrappedKey, tenant: &TenantId) -> Result<DataKey, OpenError> {
        let WrappedKey { version, key_id, bytes } = wrapped;
        if key_id == UNPROTECTED {
            if !self.takes_unprotected() {
                return Err(OpenError::Unprotected);
            }
            let (format, key) = bytes.split_first().ok_or(OpenError::Tampered)?;
            if *format != FORMAT {
                return Err(OpenError::UnknownFormat);
            }
            return DataKey::read(*version, key);
        }
        DataKey::read(*version, &self.open(key_id, bytes, &aad(tenant, *version))?)
    }
}

fn aad(tenant: &TenantId, version: u16) -> Vec<u8> {
    format!("data-key/{tenant}/{version}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TenantKeys;

    const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];

    fn tenant(id: &str) -> TenantId {
        TenantId::new(id).expect("valid")
    }

    fn id(text: &str) -> KeyId {
        KeyId::new(text).expect("valid")
    }

    fn ring() -> Keyring {
        Keyring::generate(id("v1"), [1; 32]).expect("usable")
    }

    fn wrapped(ring: &Keyring) -> WrappedKey {
        ring.new_data_key(1, &tenant("acme"), [7; 32], NONCE)
    }

    /// Whether it is the data key that [`wrapped`] wraps.
    fn is_the_key(key: &DataKey) -> bool {
        let keys = |key: DataKey| TenantKeys::new(vec![key]).expect("a set");
        let sealed = keys(DataKey::new(1, [7; 32])).seal(b"", b"it", NONCE);
        keys(key.clone()).open(b"", &sealed).is_ok()
    }

    fn error(ring: &Keyring, wrapped: &WrappedKey, of: &str) -> OpenError {
        ring.unwrap(wrapped, &tenant(of)).expect_err("refused")
    }

    #[test]
    fn a_data_key_unwraps_for_its_tenant_and_version_only() {
        let mut wrapped = wrapped(&ring());
        assert!(is_the_key(&ring().unwrap(&wrapped, &tenant("acme")).expect("opens")));
        assert_eq!(error(&ring(), &wrapped, "evil"), OpenError::Tampered);
        wrapped.version = 2;
        assert_eq!(error(&ring(), &wrapped, "acme"), OpenError::Tampered);
    }

    #[test]
    fn damage_and_missing_versions_are_told_apart() {
        let whole = wrapped(&ring());
        for at in 0..whole.bytes.len() {
            let mut changed = whole.clone();
            changed.bytes[at] ^= 1;
            let expected = if at == 0 { OpenError::UnknownFormat } else { OpenError::Tampered };
            assert_eq!(error(&ring(), &changed, "acme"), expected, "byte {at}");
            let mut cut = whole.clone();
            cut.bytes.truncate(at);
            assert_eq!(error(&ring(), &cut, "acme"), OpenError::Tampered, "cut at {at}");
        }
        let other = Keyring::generate(id("v9"), [9; 32]).expect("usable");
        assert_eq!(error(&other, &whole, "acme"), OpenError::UnknownKey { id: Some(id("v1")) });
        assert!(ring().opens("v1") && !other.opens("v1") && !ring().opens("../x"));
    }

    #[test]
    fn after_a_rotation_old_ones_unwrap_and_new_ones_have_the_new_key() {
        let mut ring = ring();
        let old = wrapped(&ring);
        ring.rotate(id("v2"), [2; 32]).expect("a new name");
        let again = ring.wrap(&ring.unwrap(&old, &tenant("acme")).expect("opens"), &tenant("acme"), NONCE);
        assert_eq!((old.key_id.as_str(), again.key_id.as_str(), again.version), ("v1", "v2", 1));
        ring.remove(&id("v1")).expect("not active");
        assert!(is_the_key(&ring.unwrap(&again, &tenant("acme")).expect("opens")));
    }

    #[test]
    fn without_a_key_data_keys_lie_open_until_they_are_wrapped() {
        let open = Keyring::unprotected();
        let bare = wrapped(&open);
        assert!(open.is_unprotected() && bare.key_id == UNPROTECTED);
        assert!(is_the_key(&open.unwrap(&bare, &tenant("acme")).expect("opens")));
        assert_eq!(error(&ring(), &bare, "acme"), OpenError::Unprotected);
        assert!(!ring().opens(UNPROTECTED));
        let both = ring().taking_unprotected();
        let key = both.unwrap(&bare, &tenant("acme")).expect("opens");
        let protected = both.wrap(&key, &tenant("acme"), NONCE);
        assert_eq!(protected.key_id, "v1");
        assert!(is_the_key(&ring().unwrap(&protected, &tenant("acme")).expect("opens")));
        assert_eq!(error(&open, &protected, "acme"), OpenError::UnknownKey { id: Some(id("v1")) });
    }

    #[test]
    fn what_is_no_key_is_not_taken_for_one() {
        let open = Keyring::unprotected();
        for bytes in [vec![], vec![1], [&[1], &[7; 31][..]].concat(), [&[1], &[0; 32][..]].concat()] {
            let bare = WrappedKey { version: 1, key_id: UNPROTECTED.to_owned(), bytes };
            assert_eq!(error(&open, &bare, "acme"), OpenError::Tampered);
        }
        let newer = WrappedKey { version: 1, key_id: UNPROTECTED.to_owned(), bytes: vec![2; 33] };
        assert_eq!(error(&open, &newer, "acme"), OpenError::UnknownFormat);
    }

    #[test]
    fn no_key_may_have_the_name_that_stands_for_none() {
        assert!(Keyring::generate(id(UNPROTECTED), [1; 32]).is_err());
        assert!(ring().add(id(UNPROTECTED), [2; 32]).is_err());
        assert!(Keyring::unprotected().add(id("v1"), [2; 32]).is_ok());
    }

    /// The format is forever. Computed apart from this code.
    #[test]
    fn the_format_stays_as_it_is() {
        let hex: String = wrapped(&ring()).bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "01090909090909090909090909c30820c9c93701c678534d48a9da82109ec079fd339833e1305f374ee950f8fa9445e2c96b0fd435cd905ae577aecabc"
        );
    }
}
