//! Tenants' data keys, opened.

use std::sync::Arc;

use portero_keyring::{Keyring, OpenError, TenantKeys};
use portero_store::TenantKey;
use portero_types::WrappedKey;

use crate::Fault;

/// What one tenant seals with and opens with.
#[derive(Debug)]
pub(crate) struct Held {
    /// Those that the store has.
    versions: Vec<u16>,
    /// As the store had them when they were opened, by version.
    wrapped: Vec<WrappedKey>,
    /// Whether all of them could be opened.
    complete: bool,
    pub(crate) keys: Result<Arc<TenantKeys>, Fault>,
}

impl Held {
    /// Opens one tenant's stored keys. What a version is never changes, so what was opened before is taken over, and rows that
    /// became worse are not asked.
    pub(crate) fn open(rows: &[TenantKey], keyring: &Keyring, former: Option<&Arc<Self>>) -> Arc<Self> {
        let mut versions: Vec<u16> = rows.iter().map(|row| row.key.version).collect();
        versions.sort_unstable();
        if let Some(former) = former
            && former.complete
            && former.versions == versions
        {
            return Arc::clone(former);
        }
        let (keys, failed) = unwrap(rows, keyring);
        let complete = failed.is_empty();
        if let Some(former) = former
            && former.versions == versions
            && former.has_all_of(keys.as_ref())
        {
            // As bad as before, or worse: what is known is kept, and told once.
            return Arc::clone(former);
        }
        for (row, error) in failed {
            tracing::error!(
                tenant.id = %row.tenant, key.version = row.key.version, key.id = row.key.key_id, %error,
                "a tenant's data key cannot be opened: what it sealed waits, and its sources answer 503 if it is the newest"
            );
        }
        Arc::new(Self { versions, wrapped: wrapped(rows), complete, keys: keys.map(Arc::new) })
    }

    /// Whether these very rows were opened.
    pub(crate) fn is_of(&self, rows: &[TenantKey]) -> bool {
        self.wrapped == wrapped(rows)
    }

    /// Whether these keys, or their fault, are nothing new.
    fn has_all_of(&self, keys: Result<&TenantKeys, &Fault>) -> bool {
        match (&self.keys, keys) {
            (Ok(mine), Ok(keys)) => keys.versions().all(|version| mine.versions().any(|own| own == version)),
            (Ok(_), Err(_)) => true,
            (Err(_), Ok(_)) => false,
            (Err(fault), Err(now)) => fault == now,
        }
    }

    /// Whether every stored key was opened. What could not be may be mended another time.
    pub(crate) const fn is_complete(&self) -> bool {
        self.complete
    }
}

/// By version.
fn wrapped(rows: &[TenantKey]) -> Vec<WrappedKey> {
    let mut keys: Vec<WrappedKey> = rows.iter().map(|row| row.key.clone()).collect();
    keys.sort_unstable_by_key(|key| key.version);
    keys
}

/// Opens one tenant's stored keys. Older ones that cannot be opened are left out: what they sealed is unreadable, and no more.
///
/// # Errors
/// [`Fault::DataKey`] when there is none, or when the newest cannot be opened.
pub fn open_tenant_keys(rows: &[TenantKey], keyring: &Keyring) -> Result<TenantKeys, Fault> {
    unwrap(rows, keyring).0
}

fn unwrap<'r>(
    rows: &'r [TenantKey],
    keyring: &Keyring,
) -> (Result<TenantKeys, Fault>, Vec<(&'r TenantKey, OpenError)>) {
    let newest = rows.iter().map(|row| row.key.version).max();
    let (mut keys, mut failed, mut fault) = (Vec::with_capacity(rows.len()), Vec::new(), None);
    for row in rows {
        match keyring.unwrap(&row.key, &row.tenant) {
            Ok(key) => keys.push(key),
            Err(error) => {
                if Some(row.key.version) == newest {
                    fault = Some(error.clone());
                }
                failed.push((row, error));
            }
        }
    }
    let keys = match fault {
        Some(error) => Err(error),
        None => TenantKeys::new(keys),
    };
    (keys.map_err(Fault::DataKey), failed)
}

#[cfg(test)]
mod tests {
    use portero_keyring::{DataKey, KeyId};
    use portero_types::{TenantId, TenantNo, Timestamp};

    use super::*;

    fn keyring(byte: u8) -> Keyring {
        Keyring::generate(KeyId::new("k1").expect("valid"), [byte; 32]).expect("usable")
    }

    fn row(no: i64, version: u16) -> TenantKey {
        let tenant = TenantId::new(format!("t{no}")).expect("valid");
        let byte = u8::try_from(version).expect("small");
        let key = keyring(7).wrap(&DataKey::new(version, [byte; 32]), &tenant, [byte; 12]);
        TenantKey { tenant_no: TenantNo(no), tenant, key, created_at: Timestamp::EPOCH }
    }

    fn damaged(mut row: TenantKey) -> TenantKey {
        let mut bytes = row.key.bytes.clone();
        bytes[20] ^= 1;
        row.key = WrappedKey { version: row.key.version, key_id: row.key.key_id.clone(), bytes };
        row
    }

    fn versions(held: &Held) -> Option<Vec<u16>> {
        held.keys.as_ref().ok().map(|keys| keys.versions().collect())
    }

    fn open(rows: &[TenantKey], former: Option<&Arc<Held>>) -> Arc<Held> {
        Held::open(rows, &keyring(7), former)
    }

    #[test]
    fn a_damaged_key_is_a_fault_that_says_so() {
        let held = open(&[damaged(row(2, 1))], None);
        assert_eq!(held.keys.as_ref().err(), Some(&Fault::DataKey(OpenError::Tampered)));
        assert!(!held.is_complete());
        assert!(open_tenant_keys(&[], &keyring(7)).is_err());
        assert!(open_tenant_keys(&[row(1, 1)], &keyring(8)).is_err());
    }

    #[test]
    fn an_old_version_that_is_lost_leaves_the_newer_ones_usable() {
        let held = open(&[damaged(row(1, 1)), row(1, 2)], None);
        assert_eq!(versions(&held), Some(vec![2]));
        assert!(!held.is_complete(), "it is tried again");
        let held = open(&[row(1, 1), damaged(row(1, 2))], None);
        assert_eq!(versions(&held), None, "nothing may be sealed with an old version");
    }

    #[test]
    fn opened_keys_are_kept_as_long_as_the_versions_are_the_same() {
        let first = open(&[row(1, 1)], None);
        let again = open(&[damaged(row(1, 1))], Some(&first));
        assert!(Arc::ptr_eq(&first, &again), "a version never becomes another key");
        assert_eq!(versions(&open(&[row(1, 1), row(1, 2)], Some(&again))), Some(vec![1, 2]));
    }

    #[test]
    fn a_row_that_became_worse_takes_nothing_away() {
        let first = open(&[damaged(row(1, 1)), row(1, 2)], None);
        let worse = open(&[damaged(row(1, 1)), damaged(row(1, 2))], Some(&first));
        assert!(Arc::ptr_eq(&first, &worse), "what was opened is still the key");
        let mended = open(&[row(1, 1), row(1, 2)], Some(&worse));
        assert_eq!(versions(&mended), Some(vec![1, 2]));
    }

    #[test]
    fn what_could_not_be_opened_is_tried_again_and_mended() {
        let first = open(&[damaged(row(1, 1))], None);
        let same = open(&[damaged(row(1, 1))], Some(&first));
        assert!(Arc::ptr_eq(&first, &same), "nothing is new");
        let mended = open(&[row(1, 1)], Some(&same));
        assert_eq!(versions(&mended), Some(vec![1]));
        assert!(mended.is_complete());
    }
}
