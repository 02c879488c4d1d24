//! What the fuzzer `sealed` runs (see crates/recipe/fuzz). Hidden, and only there with the feature `fuzzing` or in tests, which
//! run its kept inputs through the same function.
//!
//! It takes any bytes and panics when something that must hold does not.

use portero_types::{ReceiptId, TenantId, Timestamp, WrappedKey};

use crate::{DataKey, KEY_BYTES, KeyId, Keyring, NONCE_BYTES, TenantKeys};

/// Values from a database that somebody has written to, and what is sealed and changed then.
///
/// # Panics
/// When bytes that nobody sealed open, when what was sealed does not open, or when one changed bit goes unnoticed.
pub fn sealed(data: &[u8]) {
    let keys = TenantKeys::new(vec![DataKey::new(1, [1; KEY_BYTES]), DataKey::new(2, [2; KEY_BYTES])]);
    let keys = keys.expect("two versions");
    let receipt = ReceiptId::new(Timestamp::EPOCH, 7);
    let tenant = TenantId::new("acme").expect("an id");
    let ring = Keyring::generate(KeyId::new("v1").expect("an id"), [3; KEY_BYTES]).expect("a keyring");

    assert!(keys.open(b"secret", data).is_err() && keys.open_event(receipt, data).is_err());
    let wrapped = WrappedKey { version: 1, key_id: "v1".to_owned(), bytes: data.to_vec() };
    assert!(ring.unwrap(&wrapped, &tenant).is_err(), "nobody wrapped it");
    let named = String::from_utf8_lossy(data).into_owned();
    assert!(named == "v1" || !ring.opens(&named), "the keyring has one key");

    let (aad, text) = data.split_at(data.len() / 2);
    let nonce = [4; NONCE_BYTES];
    let value = keys.seal(aad, text, nonce);
    assert_eq!(keys.open(aad, &value).expect("sealed here").as_slice(), text);
    let event = keys.seal_event(receipt, text, nonce);
    assert_eq!(keys.open_event(receipt, &event).expect("sealed here").as_slice(), text);
    let place = data.first().map_or(0, |byte| usize::from(*byte));
    for (sealed, is_event) in [(value, false), (event, true)] {
        let mut changed = sealed;
        let at = place % changed.len();
        changed[at] ^= 1 << (place % 8);
        let opened = if is_event { keys.open_event(receipt, &changed) } else { keys.open(aad, &changed) };
        assert!(opened.is_err(), "a changed bit is noticed");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn kept_values_of_a_database_are_opened_or_refused() {
        super::sealed(b"");
        for kind in ["seeds", "findings"] {
            let folder = format!("{}/../recipe/fuzz/{kind}/sealed", env!("CARGO_MANIFEST_DIR"));
            let Ok(files) = std::fs::read_dir(folder) else { continue };
            for file in files {
                super::sealed(&std::fs::read(file.expect("an entry").path()).expect("readable"));
            }
        }
    }
}
