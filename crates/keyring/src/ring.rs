//! The keys in memory: sealing and opening.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::key::Key;
use crate::{KEY_BYTES, KeyId, NONCE_BYTES, OpenError, Problem, RingError, UNPROTECTED, cipher};

/// Most key versions in one keyring.
pub const KEYS_MAX: usize = 64;
/// Longest value that is sealed, bytes: data keys are. Longer ones are a programming error.
const PLAINTEXT_BYTES_MAX: usize = 256;

/// First byte of every sealed value: format, nonce (12), ciphertext and tag (16).
const FORMAT: u8 = 1;
const TAG_BYTES: usize = 16;

/// An encrypted value and the name of the key that encrypted it, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    /// The key version.
    pub key_id: String,
    /// Format byte, nonce, ciphertext, tag.
    pub bytes: Vec<u8>,
}

/// Several versions of a key-encryption key, one of them active. Never empty. Keys are wiped on drop; Debug shows names.
#[derive(Clone)]
pub struct Keyring {
    active: KeyId,
    keys: BTreeMap<KeyId, Key>,
    takes_unprotected: bool,
}

impl Keyring {
    /// A keyring with one key, made from fresh random bytes of a cryptographically secure source.
    ///
    /// # Errors
    /// [`RingError::Unusable`] when the bytes are all zeros.
    pub fn generate(id: KeyId, random: [u8; KEY_BYTES]) -> Result<Self, RingError> {
        let mut ring = Self { active: id.clone(), keys: BTreeMap::new(), takes_unprotected: false };
        ring.insert(id, Key::new(random)).map_err(RingError::Unusable)?;
        Ok(ring)
    }

    pub(crate) const fn without_keys(active: KeyId) -> Self {
        Self { active, keys: BTreeMap::new(), takes_unprotected: true }
    }

    pub(crate) const fn takes_unprotected(&self) -> bool {
        self.takes_unprotected
    }

    pub(crate) const fn set_taking_unprotected(&mut self) {
        self.takes_unprotected = true;
    }

    /// From keys that were read. The caller has made sure that the active one is among them.
    pub(crate) fn from_keys(active: KeyId, read: Vec<(KeyId, Key)>) -> Result<Self, Problem> {
        if read.is_empty() {
            return Err(Problem::NoKeys);
        }
        let mut ring = Self { active, keys: BTreeMap::new(), takes_unprotected: false };
        for (id, key) in read {
            ring.insert(id, key)?;
        }
        Ok(ring)
    }

    fn insert(&mut self, id: KeyId, key: Key) -> Result<(), Problem> {
        if id.as_str() == UNPROTECTED {
            return Err(Problem::ReservedKeyId);
        }
        if key.is_zero() {
            return Err(Problem::ZeroKey);
        }
        if self.keys.len() >= KEYS_MAX {
            return Err(Problem::TooManyKeys);
        }
        if self.keys.values().any(|other| other.is_same(&key)) {
            return Err(Problem::RepeatedKey);
        }
        match self.keys.insert(id, key) {
            None => Ok(()),
            Some(_) => Err(Problem::RepeatedKeyId),
        }
    }

    /// The name of the key that seals.
    #[must_use]
    pub const fn active(&self) -> &KeyId {
        &self.active
    }

    /// The names of all versions, in order.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.keys()
    }

    /// Whether a version of this name is there.
    #[must_use]
    pub fn contains(&self, id: &KeyId) -> bool {
        self.keys.contains_key(id)
    }

    /// A version's name and a mark of its bits, such as `v2/1f2e3d4c5b6a7988`: what processes show each other, to see whether
    /// they have the same key under a name. It tells nothing of the key. The name alone for no key; `None` when no version
    /// of this name is there.
    #[must_use]
    pub fn mark_of(&self, id: &KeyId) -> Option<String> {
        if id.as_str() == UNPROTECTED {
            return self.keys.is_empty().then(|| UNPROTECTED.to_owned());
        }
        self.keys.get(id).map(|key| format!("{id}/{}", key.mark()))
    }

    /// The mark of the key that seals.
    #[must_use]
    pub fn active_mark(&self) -> String {
        self.mark_of(&self.active).unwrap_or_else(|| self.active.to_string())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (&KeyId, &Key)> {
        self.keys.iter()
    }

    /// Adds a version without activating it: first every replica gets it, then it may seal.
    ///
    /// # Errors
    /// When the name is taken, the keyring is full, or the bytes are all zeros or those of another version.
    pub fn add(&mut self, id: KeyId, random: [u8; KEY_BYTES]) -> Result<(), RingError> {
        if self.keys.contains_key(&id) {
            return Err(RingError::AlreadyExists { id });
        }
        self.insert(id, Key::new(random)).map_err(RingError::Unusable)
    }

    /// Makes a version that is there the one that seals.
    ///
    /// # Errors
    /// When no version of this name is there.
    pub fn activate(&mut self, id: &KeyId) -> Result<(), RingError> {
        if !self.keys.contains_key(id) {
            return Err(RingError::UnknownKey { id: id.clone() });
        }
        self.active = id.clone();
        Ok(())
    }

    /// Adds a version and activates it. With several replicas, [`Self::add`] it everywhere first.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn rotate(&mut self, id: KeyId, random: [u8; KEY_BYTES]) -> Result<(), RingError> {
        self.add(id.clone(), random)?;
        self.activate(&id)
    }

    /// Removes a version. What it sealed can no longer be opened: the caller has made sure that nothing is left.
    ///
    /// # Errors
    /// When no version of this name is there, or it is the active one.
    pub fn remove(&mut self, id: &KeyId) -> Result<(), RingError> {
        if *id == self.active {
            return Err(RingError::Active { id: id.clone() });
        }
        self.keys.remove(id).map(drop).ok_or_else(|| RingError::UnknownKey { id: id.clone() })
    }

    /// Encrypts a value with the active key (AES-256-GCM), bound to `aad`.
    ///
    /// `random` must be fresh from a cryptographically secure source for every call: a repeated nonce breaks AES-GCM. One
    /// key may seal 2^32 values at random nonces (NIST SP 800-38D section 8.3), far more than there are data keys.
    #[must_use]
    pub(crate) fn seal(&self, plaintext: &[u8], aad: &[u8], random: [u8; NONCE_BYTES]) -> Sealed {
        assert!(
            plaintext.len() <= PLAINTEXT_BYTES_MAX,
            "only data keys are sealed with a key-encryption key"
        );
        let key = self.keys.get(&self.active).expect("invariant: the active key is in the ring");
        let bound = bound_aad(&self.active, aad);
        let mut bytes = vec![FORMAT];
        cipher::seal_onto(&mut bytes, key, &bound, plaintext, random);
        Sealed { key_id: self.active.to_string(), bytes }
    }

    /// Decrypts a value that was sealed with any version of this keyring, for the same `aad`.
    pub(crate) fn open(
        &self,
        key_id: &str,
        sealed: &[u8],
        aad: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let id = KeyId::new(key_id).ok();
        let Some((id, key)) = id.as_ref().and_then(|id| self.keys.get_key_value(id)) else {
            return Err(OpenError::UnknownKey { id });
        };
        let (format, rest) = sealed.split_first().ok_or(OpenError::Tampered)?;
        if *format != FORMAT {
            return Err(OpenError::UnknownFormat);
        }
        if rest.len() > NONCE_BYTES + PLAINTEXT_BYTES_MAX + TAG_BYTES {
            return Err(OpenError::Tampered);
        }
        cipher::open(key, &bound_aad(id, aad), rest).ok_or(OpenError::Tampered)
    }
}

/// The format and the key's name are authenticated with the caller's data; the name holds no zero byte.
fn bound_aad(id: &KeyId, aad: &[u8]) -> Vec<u8> {
    let mut bound = Vec::with_capacity(2 + id.as_str().len() + aad.len());
    bound.push(FORMAT);
    bound.extend_from_slice(id.as_str().as_bytes());
    bound.push(0);
    bound.extend_from_slice(aad);
    bound
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("active", &self.active.as_str())
            .field("keys", &self.keys.keys().map(KeyId::as_str).collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> KeyId {
        KeyId::new(text).expect("valid")
    }

    fn ring() -> Keyring {
        Keyring::generate(id("v1"), [1; 32]).expect("valid")
    }

    const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];

    fn open(ring: &Keyring, sealed: &Sealed, aad: &[u8]) -> Result<Vec<u8>, OpenError> {
        ring.open(&sealed.key_id, &sealed.bytes, aad).map(|plain| plain.to_vec())
    }

    #[test]
    fn what_was_sealed_opens_with_the_same_words_only() {
        let sealed = ring().seal(b"whsec_1", b"secret/acme/stripe/a", NONCE);
        assert_eq!(open(&ring(), &sealed, b"secret/acme/stripe/a"), Ok(b"whsec_1".to_vec()));
        assert_eq!(open(&ring(), &sealed, b"secret/evil/stripe/a"), Err(OpenError::Tampered));
    }

    #[test]
    fn an_empty_value_can_be_sealed() {
        let sealed = ring().seal(b"", b"", NONCE);
        assert_eq!(open(&ring(), &sealed, b""), Ok(Vec::new()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let sealed = ring().seal(b"whsec_1", b"x", NONCE);
        for at in 1..sealed.bytes.len() {
            let mut changed = sealed.clone();
            changed.bytes[at] ^= 1;
            assert_eq!(open(&ring(), &changed, b"x"), Err(OpenError::Tampered), "byte {at}");
            let cut = Sealed { key_id: "v1".into(), bytes: sealed.bytes[..at].to_vec() };
            assert_eq!(open(&ring(), &cut, b"x"), Err(OpenError::Tampered), "cut at {at}");
        }
        let nothing = Sealed { key_id: "v1".into(), bytes: Vec::new() };
        assert_eq!(open(&ring(), &nothing, b"x"), Err(OpenError::Tampered));
    }

    #[test]
    fn a_newer_format_is_told_apart_from_tampering() {
        let mut sealed = ring().seal(b"whsec_1", b"x", NONCE);
        sealed.bytes[0] = 2;
        assert_eq!(open(&ring(), &sealed, b"x"), Err(OpenError::UnknownFormat));
    }

    #[test]
    fn a_missing_version_is_told_apart_from_tampering() {
        let sealed = Keyring::generate(id("v9"), [9; 32]).expect("valid").seal(b"s", b"x", NONCE);
        assert_eq!(open(&ring(), &sealed, b"x"), Err(OpenError::UnknownKey { id: Some(id("v9")) }));
        let odd = Sealed { key_id: "../x".into(), bytes: sealed.bytes };
        assert_eq!(open(&ring(), &odd, b"x"), Err(OpenError::UnknownKey { id: None }));
    }

    #[test]
    fn the_same_name_with_another_key_is_tampering() {
        let sealed = ring().seal(b"s", b"x", NONCE);
        let other = Keyring::generate(id("v1"), [2; 32]).expect("valid");
        assert_eq!(open(&other, &sealed, b"x"), Err(OpenError::Tampered));
    }

    #[test]
    fn old_values_open_after_a_rotation_and_new_ones_use_the_new_key() {
        let mut ring = ring();
        let old = ring.seal(b"old", b"x", NONCE);
        ring.rotate(id("v2"), [2; 32]).expect("new name");
        let new = ring.seal(b"new", b"x", NONCE);
        assert_eq!((old.key_id.as_str(), new.key_id.as_str()), ("v1", "v2"));
        assert_eq!(open(&ring, &old, b"x"), Ok(b"old".to_vec()));
        assert_eq!(open(&ring, &new, b"x"), Ok(b"new".to_vec()));
    }

    #[test]
    fn changes_that_would_lose_or_confuse_keys_are_refused() {
        let mut ring = ring();
        assert_eq!(ring.add(id("v1"), [2; 32]), Err(RingError::AlreadyExists { id: id("v1") }));
        assert_eq!(ring.add(id("v2"), [1; 32]), Err(RingError::Unusable(Problem::RepeatedKey)));
        assert_eq!(ring.add(id("v2"), [0; 32]), Err(RingError::Unusable(Problem::ZeroKey)));
        assert_eq!(ring.remove(&id("v1")), Err(RingError::Active { id: id("v1") }));
        assert_eq!(ring.remove(&id("v2")), Err(RingError::UnknownKey { id: id("v2") }));
        assert_eq!(ring.activate(&id("v2")), Err(RingError::UnknownKey { id: id("v2") }));
        assert!(Keyring::generate(id("v1"), [0; 32]).is_err());
    }

    #[test]
    fn marks_tell_keys_of_one_name_apart_and_nothing_of_them() {
        let other = Keyring::generate(id("v1"), [2; 32]).expect("valid");
        let [one, two] = [ring().active_mark(), other.active_mark()];
        assert!(one.starts_with("v1/") && one.len() == 3 + 16, "{one}");
        assert!(one != two && one == ring().active_mark());
        let mut both = ring();
        both.rotate(id("v2"), [2; 32]).expect("new name");
        assert_eq!(both.mark_of(&id("v1")), Some(one));
        assert_eq!(both.active_mark().strip_prefix("v2/"), two.strip_prefix("v1/"), "the bits alone");
        assert_eq!(
            (both.mark_of(&id("v9")), Keyring::unprotected().active_mark()),
            (None, "none".to_owned())
        );
    }

    #[test]
    fn debug_shows_names_only() {
        let text = format!("{:?}", Keyring::generate(id("v1"), [0xAB; 32]).expect("valid"));
        assert_eq!(text, r#"Keyring { active: "v1", keys: ["v1"] }"#);
    }
}
