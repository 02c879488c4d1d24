//! What is sealed for one tenant: secrets, secret settings, refused requests and the content of events.
//!
//! A sealed value is a format byte, the data key's version (two bytes, most significant first), nonce (12), ciphertext and tag
//! (16). All of it is authenticated, together with what the value is bound to.

use std::fmt;

use portero_types::{ReceiptId, RequestId, SecretId, SourceId, TenantId};
use zeroize::Zeroizing;

use crate::key::Key;
use crate::{DataKey, NONCE_BYTES, OpenError, cipher};

/// Most data keys of one tenant.
pub const DATA_KEYS_MAX: usize = 16;

const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 3;

/// What a source's secret is bound to: it opens only as this secret of this source of this tenant.
#[must_use]
pub fn secret_aad(tenant: &TenantId, source: &SourceId, secret: &SecretId) -> Vec<u8> {
    format!("secret/{tenant}/{source}/{secret}").into_bytes()
}

/// What a source's secret setting is bound to: it opens only as this setting of this source of this tenant.
#[must_use]
pub fn setting_aad(tenant: &TenantId, source: &SourceId, name: &str) -> Vec<u8> {
    format!("setting/{tenant}/{source}/{name}").into_bytes()
}

/// What a refused request that is kept is bound to: it opens only as this request to this source of this tenant.
#[must_use]
pub fn rejection_aad(tenant: &TenantId, source: &SourceId, request: RequestId) -> Vec<u8> {
    format!("rejection/{tenant}/{source}/{request}").into_bytes()
}

/// The versions of one tenant's data key, the newest of which seals. Never empty. Keys are wiped on drop; Debug shows
/// versions.
#[derive(Clone)]
pub struct TenantKeys {
    /// Oldest first.
    keys: Vec<DataKey>,
}

impl TenantKeys {
    /// The versions in any order.
    ///
    /// # Errors
    /// [`OpenError::NoKeySet`] when there is none, there are more than [`DATA_KEYS_MAX`], or a version is repeated.
    pub fn new(mut keys: Vec<DataKey>) -> Result<Self, OpenError> {
        keys.sort_by_key(DataKey::version);
        let repeats = keys.windows(2).any(|pair| pair[0].version() == pair[1].version());
        if repeats || !(1..=DATA_KEYS_MAX).contains(&keys.len()) {
            return Err(OpenError::NoKeySet);
        }
        Ok(Self { keys })
    }

    /// The version that seals.
    #[must_use]
    pub fn newest(&self) -> u16 {
        self.last().version()
    }

    /// All versions, ascending.
    pub fn versions(&self) -> impl Iterator<Item = u16> {
        self.keys.iter().map(DataKey::version)
    }

    /// The version that sealed a value, if it looks like one.
    #[must_use]
    pub fn version_of(sealed: &[u8]) -> Option<u16> {
        match sealed {
            [FORMAT, high, low, ..] => Some(u16::from_be_bytes([*high, *low])),
            _ => None,
        }
    }

    /// Encrypts a secret, a secret setting or a refused request, bound to `aad`. `random` must be fresh for every call.
    #[must_use]
    pub fn seal(&self, aad: &[u8], plaintext: &[u8], random: [u8; NONCE_BYTES]) -> Vec<u8> {
        seal(self.last(), &self.last().value_key(), aad, plaintext, random)
    }

    /// Decrypts what [`TenantKeys::seal`] made, with whichever version made it, for the same `aad`.
    ///
    /// # Errors
    /// [`OpenError::UnknownVersion`], [`OpenError::UnknownFormat`], or [`OpenError::Tampered`] for everything that is not as
    /// it was sealed.
    pub fn open(&self, aad: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let (data_key, rest) = self.of(sealed)?;
        open(data_key, &data_key.value_key(), aad, rest)
    }

    /// Encrypts the content of an event. It opens for the same receipt only. `random` must be fresh for every call.
    #[must_use]
    pub fn seal_event(&self, receipt: ReceiptId, content: &[u8], random: [u8; NONCE_BYTES]) -> Vec<u8> {
        seal(self.last(), &self.last().event_key(receipt), b"event", content, random)
    }

    /// Decrypts what [`TenantKeys::seal_event`] made.
    ///
    /// # Errors
    /// As [`TenantKeys::open`].
    pub fn open_event(&self, receipt: ReceiptId, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let (data_key, rest) = self.of(sealed)?;
        open(data_key, &data_key.event_key(receipt), b"event", rest)
    }

    fn last(&self) -> &DataKey {
        self.keys.last().expect("invariant: never empty")
    }

    /// The data key that sealed a value, and what follows its head.
    fn of<'s>(&self, sealed: &'s [u8]) -> Result<(&DataKey, &'s [u8]), OpenError> {
        match sealed {
            [FORMAT, high, low, rest @ ..] => {
                let version = u16::from_be_bytes([*high, *low]);
                let key = self.keys.iter().find(|key| key.version() == version);
                key.map(|key| (key, rest)).ok_or(OpenError::UnknownVersion { version })
            }
            [FORMAT, ..] | [] => Err(OpenError::Tampered),
            _ => Err(OpenError::UnknownFormat),
        }
    }
}

impl fmt::Debug for TenantKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantKeys")
            .field("versions", &self.versions().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

fn head(key: &DataKey) -> [u8; HEAD_BYTES] {
    let [high, low] = key.version().to_be_bytes();
    [FORMAT, high, low]
}

fn bound(head: [u8; HEAD_BYTES], aad: &[u8]) -> Vec<u8> {
    [&head[..], aad].concat()
}

fn seal(data_key: &DataKey, key: &Key, aad: &[u8], plaintext: &[u8], random: [u8; NONCE_BYTES]) -> Vec<u8> {
    let mut out = head(data_key).to_vec();
    cipher::seal_onto(&mut out, key, &bound(head(data_key), aad), plaintext, random);
    out
}

fn open(data_key: &DataKey, key: &Key, aad: &[u8], rest: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    cipher::open(key, &bound(head(data_key), aad), rest).ok_or(OpenError::Tampered)
}

#[cfg(test)]
mod tests {
    use portero_types::Timestamp;

    use super::*;

    const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];

    fn keys(versions: &[u16]) -> TenantKeys {
        let key = |version: &u16| DataKey::new(*version, [u8::try_from(*version).expect("small"); 32]);
        TenantKeys::new(versions.iter().map(key).collect()).expect("a set")
    }

    fn receipt(n: u128) -> ReceiptId {
        ReceiptId::new(Timestamp::from_secs(1_750_000_000), n)
    }

    fn opened(result: Result<Zeroizing<Vec<u8>>, OpenError>) -> Result<Vec<u8>, OpenError> {
        result.map(|plain| plain.to_vec())
    }

    #[test]
    fn what_was_sealed_opens_for_the_same_place_only() {
        let keys = keys(&[1]);
        let sealed = keys.seal(b"secret/acme/shop/a", b"whsec_1", NONCE);
        assert_eq!(opened(keys.open(b"secret/acme/shop/a", &sealed)), Ok(b"whsec_1".to_vec()));
        assert_eq!(opened(keys.open(b"secret/evil/shop/a", &sealed)), Err(OpenError::Tampered));
        let content = keys.seal_event(receipt(1), b"{}", NONCE);
        assert_eq!(opened(keys.open_event(receipt(1), &content)), Ok(b"{}".to_vec()));
        assert_eq!(opened(keys.open_event(receipt(2), &content)), Err(OpenError::Tampered));
        assert_eq!(opened(keys.open(b"event", &content)), Err(OpenError::Tampered), "another key");
    }

    #[test]
    fn a_setting_is_no_secret_and_no_other_setting() {
        let (keys, tenant) = (keys(&[1]), TenantId::new("acme").expect("valid"));
        let (source, other) =
            (SourceId::new("shop").expect("valid"), SourceId::new("shop-2").expect("valid"));
        let sealed = keys.seal(&setting_aad(&tenant, &source, "word"), b"s", NONCE);
        assert!(keys.open(&setting_aad(&tenant, &source, "word"), &sealed).is_ok());
        let secret = secret_aad(&tenant, &source, &SecretId::new("word").expect("valid"));
        for aad in [setting_aad(&tenant, &source, "token"), setting_aad(&tenant, &other, "word"), secret] {
            assert_eq!(opened(keys.open(&aad, &sealed)), Err(OpenError::Tampered));
        }
    }

    #[test]
    fn another_tenants_key_of_the_same_version_opens_nothing() {
        let sealed = keys(&[1]).seal(b"x", b"s", NONCE);
        let other = TenantKeys::new(vec![DataKey::new(1, [200; 32])]).expect("a set");
        assert_eq!(opened(other.open(b"x", &sealed)), Err(OpenError::Tampered));
    }

    #[test]
    fn the_newest_version_seals_and_every_one_opens() {
        let old = keys(&[1]).seal(b"x", b"old", NONCE);
        let keys = keys(&[3, 1, 2]);
        let new = keys.seal(b"x", b"new", NONCE);
        assert_eq!((keys.newest(), TenantKeys::version_of(&new)), (3, Some(3)));
        assert_eq!(opened(keys.open(b"x", &old)), Ok(b"old".to_vec()));
        assert_eq!(opened(keys.open(b"x", &new)), Ok(b"new".to_vec()));
        let mut claimed = old;
        claimed[2] = 2;
        assert_eq!(opened(keys.open(b"x", &claimed)), Err(OpenError::Tampered), "the version is bound");
        claimed[2] = 9;
        assert_eq!(opened(keys.open(b"x", &claimed)), Err(OpenError::UnknownVersion { version: 9 }));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let keys = keys(&[1]);
        let sealed = keys.seal_event(receipt(1), b"{\"id\":1}", NONCE);
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << bit;
                assert!(keys.open_event(receipt(1), &changed).is_err(), "bit {bit} of byte {at}");
            }
            assert!(keys.open_event(receipt(1), &sealed[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(opened(keys.open(b"", &[])), Err(OpenError::Tampered));
        assert_eq!(opened(keys.open(b"", &[1, 0])), Err(OpenError::Tampered));
        assert_eq!(opened(keys.open(b"", &[2, 0, 1])), Err(OpenError::UnknownFormat));
    }

    #[test]
    fn a_large_and_an_empty_content_read_back() {
        let keys = keys(&[1]);
        for content in [vec![], vec![7; 3 << 20]] {
            let sealed = keys.seal_event(receipt(1), &content, NONCE);
            assert_eq!(sealed.len(), content.len() + 3 + 12 + 16);
            assert!(opened(keys.open_event(receipt(1), &sealed)) == Ok(content));
        }
    }

    #[test]
    fn a_set_has_one_to_sixteen_different_versions() {
        let key = |version| DataKey::new(version, [1; 32]);
        for bad in [vec![], vec![key(1), key(1)], (1..=17).map(key).collect()] {
            assert_eq!(TenantKeys::new(bad).err(), Some(OpenError::NoKeySet));
        }
        assert!(TenantKeys::new((1..=16).map(key).collect()).is_ok());
    }

    #[test]
    fn debug_shows_versions_only() {
        assert_eq!(format!("{:?}", keys(&[1, 200])), "TenantKeys { versions: [1, 200], .. }");
        assert_eq!(format!("{:?}", DataKey::new(1, [0xAB; 32])), "DataKey { version: 1, .. }");
    }

    /// The format is forever: what this program sealed in the past must open. Computed apart from this code.
    #[test]
    fn the_format_stays_as_it_is() {
        let keys = TenantKeys::new(vec![DataKey::new(1, [7; 32])]).expect("a set");
        let id = ReceiptId("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b".parse().expect("a UUID"));
        let value = "010001090909090909090909090909eb016322f4b42852fffd7ce616e502a23c83be13fa3dfb";
        let event = "010001090909090909090909090909580360870eb0ce952668add26df8dd074d3f";
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&keys.seal(b"secret/acme/shop/a", b"whsec_1", NONCE)), value);
        assert_eq!(hex(&keys.seal_event(id, b"{}", NONCE)), event);
    }
}
