//! Hashed keys, and the bytes of a value in Redis.

use portero_types::ReceiptId;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{Hit, Key};

/// One line of history of one database: a hash of the store's identity. What is remembered in one namespace is unknown in
/// every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace([u8; 16]);

impl Namespace {
    /// The namespace of a store's identity.
    #[must_use]
    pub fn of(identity: &str) -> Self {
        let hash = Sha256::new().chain_update(b"portero/namespace/").chain_update(identity).finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&hash[..16]);
        Self(first)
    }
}

/// A key hashed with its namespace. Collisions are those of SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest(pub(crate) [u8; 32]);

impl Digest {
    /// The parts cannot run into each other: the first two have a fixed length, a provider's name holds no zero byte.
    pub(crate) fn of(namespace: Namespace, key: &Key) -> Self {
        let hash = Sha256::new()
            .chain_update(namespace.0)
            .chain_update(key.tenant_no.0.to_be_bytes())
            .chain_update(key.provider.as_str())
            .chain_update([0])
            .chain_update(&key.event_id)
            .finalize();
        Self(hash.into())
    }

    /// The key in Redis: a prefix for people, the namespace in hexadecimal so that an old one can be found and deleted by
    /// pattern, and the hash as bytes.
    pub(crate) fn redis_key(&self, namespace: Namespace) -> Vec<u8> {
        use std::fmt::Write as _;
        let mut name = String::with_capacity(48);
        name.push_str("portero:");
        for byte in namespace.0 {
            write!(name, "{byte:02x}").expect("invariant: writing to a string succeeds");
        }
        name.push(':');
        let mut key = name.into_bytes();
        key.extend_from_slice(&self.0);
        key
    }
}

const FORMAT: u8 = 1;
/// Format, receipt, body's digest, checksum.
const VALUE_BYTES: usize = 1 + 16 + 32 + 8;

/// The value in Redis, with a checksum over the key too: a value under another key is no value.
pub(crate) fn to_value(digest: &Digest, hit: &Hit) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[0] = FORMAT;
    value[1..17].copy_from_slice(hit.receipt_id.0.as_bytes());
    value[17..49].copy_from_slice(&hit.body_digest);
    let sum = checksum(digest, &value[..49]);
    value[49..].copy_from_slice(&sum);
    value
}

/// `None` for anything that [`to_value`] did not make for this key.
pub(crate) fn from_value(digest: &Digest, value: &[u8]) -> Option<Hit> {
    let value: &[u8; VALUE_BYTES] = value.try_into().ok()?;
    if value[0] != FORMAT || value[49..] != checksum(digest, &value[..49]) {
        return None;
    }
    let receipt = Uuid::from_slice(&value[1..17]).ok()?;
    let mut body_digest = [0; 32];
    body_digest.copy_from_slice(&value[17..49]);
    Some(Hit { receipt_id: ReceiptId(receipt), body_digest })
}

fn checksum(digest: &Digest, value: &[u8]) -> [u8; 8] {
    let hash = Sha256::new().chain_update(digest.0).chain_update(value).finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    first
}

#[cfg(test)]
mod tests {
    use portero_types::{ProviderName, TenantNo, Timestamp};

    use super::*;

    fn key(tenant: i64, provider: &str, event_id: &str) -> Key {
        Key {
            tenant_no: TenantNo(tenant),
            provider: ProviderName::new(provider).expect("valid"),
            event_id: event_id.to_owned(),
        }
    }

    #[test]
    fn every_part_of_a_key_and_its_namespace_tells_it_apart() {
        let here = Namespace::of("db-1");
        let digests = [
            Digest::of(here, &key(1, "stripe", "evt_1")),
            Digest::of(here, &key(2, "stripe", "evt_1")),
            Digest::of(here, &key(1, "stripex", "evt_1")),
            Digest::of(here, &key(1, "stripe", "evt_2")),
            Digest::of(here, &key(1, "stripe", "")),
            Digest::of(Namespace::of("db-2"), &key(1, "stripe", "evt_1")),
        ];
        let distinct: std::collections::HashSet<_> = digests.into_iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }

    #[test]
    fn a_value_reads_back_under_its_own_key_and_undamaged_only() {
        let namespace = Namespace::of("db-1");
        let digest = Digest::of(namespace, &key(1, "stripe", "evt_1"));
        let hit = Hit { receipt_id: ReceiptId::new(Timestamp::from_secs(1), 7), body_digest: [9; 32] };
        let value = to_value(&digest, &hit);
        assert_eq!(from_value(&digest, &value), Some(hit));
        let other = Digest::of(namespace, &key(1, "stripe", "evt_2"));
        assert_eq!(from_value(&other, &value), None);
        for at in 0..value.len() {
            let mut damaged = value;
            damaged[at] ^= 1;
            assert_eq!(from_value(&digest, &damaged), None, "byte {at}");
            assert_eq!(from_value(&digest, &value[..at]), None, "cut at {at}");
        }
        assert_eq!(from_value(&digest, &[&value[..], b"x"].concat()), None);
    }

    #[test]
    fn no_event_id_is_readable_in_a_redis_key() {
        let namespace = Namespace::of("db-1");
        let name = Digest::of(namespace, &key(1, "stripe", "evt_secret")).redis_key(namespace);
        assert!(name.starts_with(b"portero:"));
        assert!(!String::from_utf8_lossy(&name).contains("evt_secret"));
        assert_eq!(name.len(), 8 + 32 + 1 + 32);
    }
}
