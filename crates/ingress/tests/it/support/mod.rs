//! What these tests share: a gateway on a store of its own, the endpoints it has, and messages as they go over the wire.

mod endpoint;
mod gateway;
mod wire;

use std::sync::Arc;

use portero_keyring::{DataKey, KeyId, Keyring, TenantKeys};
use portero_types::Timestamp;

pub(crate) use endpoint::{Endpoint, create};
pub(crate) use gateway::Gateway;
pub(crate) use wire::{Answer, Message};

/// The moment at which the samples are signed, and at which every gateway starts.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

/// The keyring of every gateway here.
pub(crate) fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable"))
}

/// The data key of every tenant here.
fn data_key() -> DataKey {
    DataKey::new(1, [11; 32])
}

/// What every tenant here seals with.
pub(crate) fn tenant_keys() -> TenantKeys {
    TenantKeys::new(vec![data_key()]).expect("a set")
}

/// Distinct bits all over, which ids need: they overwrite some of them with version and variant.
fn scattered(n: u64) -> u128 {
    u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}
