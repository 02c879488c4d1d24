//! Tenants' data keys, for what the admin service seals and opens itself, and their end.

use portero_auth::Action;
use portero_directory::open_tenant_keys;
use portero_keyring::{NONCE_BYTES, TenantKeys};
use portero_proto::v1;
use portero_types::TenantId;
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found};
use crate::name;

impl Admin {
    pub(super) async fn do_erase_tenant(
        &self,
        request: Request<v1::EraseTenantRequest>,
    ) -> Answer<v1::EraseTenantResponse> {
        let (metadata, message) = split(request);
        let id = name::tenant(&message.name, "name")?;
        let caller = self.check(&metadata, Action::EraseTenant(&id)).await?;
        if message.confirm != id.as_str() {
            return Err(invalid("confirm", "must be the tenant's id: what is erased is gone for good"));
        }
        let change = self.change_because(&caller, &metadata, &message.reason)?;
        self.store.erase_tenant(&id, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        tracing::warn!(tenant.id = %id, subject = %caller.subject, "a tenant was erased: its data keys are destroyed");
        Ok(Response::new(v1::EraseTenantResponse {}))
    }

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
