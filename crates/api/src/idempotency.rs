//! The key that a consumer gives to what it calls: the same for every delivery of an event, on any gateway.

use sha2::{Digest as _, Sha256};

/// 128 bits of SHA-256 over tenant, provider and event id, which are what the unique key holds.
pub(crate) fn idempotency_key(tenant: &str, provider: &str, event_id: &str) -> String {
    let mut hash = Sha256::new();
    for part in [tenant, provider, event_id] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    format!("idem_{}", hex::encode(&hash.finalize()[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_depends_on_each_part_and_on_where_it_ends() {
        assert_eq!(idempotency_key("a", "b", "c"), idempotency_key("a", "b", "c"));
        assert_ne!(idempotency_key("ab", "c", "d"), idempotency_key("a", "bc", "d"));
    }
}
