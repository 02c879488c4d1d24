//! Tenants' data keys, for what the admin service seals and opens itself.

use portero_directory::open_tenant_keys;
use portero_keyring::{NONCE_BYTES, TenantKeys};
use portero_types::TenantId;
use tonic::Status;

use super::Admin;
use crate::error::{from_store, not_found};

impl Admin {
    /// Fresh random bytes for one sealing.
    pub(super) fn nonce(&self) -> [u8; NONCE_BYTES] {
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&(self.entropy)()[..NONCE_BYTES]);
        nonce
    }

    /// What a live tenant's secrets and rejections are sealed with, as the store has it now.
    pub(super) async fn keys_of(&self, tenant: &TenantId) -> Result<TenantKeys, Status> {
        let rows = self.store.tenant_keys(tenant).await.map_err(|error| from_store(&error))?;
        if rows.is_empty() {
            return Err(not_found(&format!("tenants/{tenant}")));
        }
        open_tenant_keys(&rows, &self.keyring).map_err(|fault| {
            tracing::error!(tenant.id = %tenant, %fault, "a tenant's data key cannot be opened");
            Status::failed_precondition("the tenant's data key cannot be opened with this gateway's keyring")
        })
    }
}
