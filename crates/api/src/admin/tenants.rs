//! Tenants.

use portero_auth::Action;
use portero_proto::v1;
use portero_store::{NewTenant, TenantUpdate};
use portero_types::TenantId;
use tonic::{Request, Response, Status};

use super::{Admin, Answer, limits_form, split};
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

const DISPLAY_NAME_CHARS_MAX: usize = 200;

impl Admin {
    pub(super) async fn do_create_tenant(
        &self,
        request: Request<v1::CreateTenantRequest>,
    ) -> Answer<v1::Tenant> {
        let (metadata, message) = split(request);
        let caller = self.check(&metadata, Action::CreateTenant).await?;
        let id: TenantId = name::id(&message.tenant_id, "tenant_id")?;
        let wanted = message.tenant.unwrap_or_default();
        let display_name = checked_name(wanted.display_name)?;
        let limits = limits_form::from_proto(wanted.limits, "tenant.limits")?;
        let key = self.keyring.new_data_key(1, &id, (self.entropy)(), self.nonce());
        let tenant = NewTenant { id, display_name, key, limits, created_at: self.now() };
        let tenant = self
            .store
            .create_tenant(tenant, &self.change(&caller, &metadata))
            .await
            .map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(to_proto(&tenant)))
    }

    pub(super) async fn do_get_tenant(&self, request: Request<v1::GetTenantRequest>) -> Answer<v1::Tenant> {
        let (metadata, message) = split(request);
        let id = name::tenant(&message.name, "name")?;
        self.check(&metadata, Action::GetTenant(&id)).await?;
        let tenant = self.store.tenant(&id).await.map_err(|error| from_store(&error))?;
        Ok(Response::new(to_proto(&tenant.ok_or_else(|| not_found(&message.name))?)))
    }

    pub(super) async fn do_list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Answer<v1::ListTenantsResponse> {
        let (metadata, message) = split(request);
        self.check(&metadata, Action::ListTenants).await?;
        let (after, size) = (page::after::<TenantId>(&message.page_token)?, page::size(message.page_size)?);
        let page = self.store.tenants(after.as_ref(), size).await.map_err(|error| from_store(&error))?;
        let (tenants, next_page_token) = page::shown(&page, to_proto, |tenant| tenant.id.to_string());
        Ok(Response::new(v1::ListTenantsResponse { tenants, next_page_token }))
    }

    pub(super) async fn do_update_tenant(
        &self,
        request: Request<v1::UpdateTenantRequest>,
    ) -> Answer<v1::Tenant> {
        let (metadata, message) = split(request);
        let wanted = message.tenant.unwrap_or_default();
        let id = name::tenant(&wanted.name, "tenant.name")?;
        let caller = self.check(&metadata, Action::UpdateTenant(&id)).await?;
        let paths = message.update_mask.unwrap_or_default().paths;
        if paths.is_empty() || paths.iter().any(|path| path != "display_name" && path != "limits") {
            return Err(invalid("update_mask", "must name what changes: display_name, limits"));
        }
        let mut update = TenantUpdate { id, display_name: None, limits: None };
        if paths.iter().any(|path| path == "display_name") {
            update.display_name = Some(checked_name(wanted.display_name)?);
        }
        if paths.iter().any(|path| path == "limits") {
            update.limits = Some(limits_form::from_proto(wanted.limits, "tenant.limits")?);
        }
        let change = self.change(&caller, &metadata);
        let tenant = self.store.update_tenant(update, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        tracing::info!(tenant.id = %tenant.id, "a tenant was changed");
        Ok(Response::new(to_proto(&tenant)))
    }

    pub(super) async fn do_delete_tenant(
        &self,
        request: Request<v1::DeleteTenantRequest>,
    ) -> Answer<v1::DeleteTenantResponse> {
        let (metadata, message) = split(request);
        let id = name::tenant(&message.name, "name")?;
        let caller = self.check(&metadata, Action::DeleteTenant(&id)).await?;
        let change = self.change_because(&caller, &metadata, &message.reason)?;
        self.store.delete_tenant(&id, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteTenantResponse {}))
    }
}

fn checked_name(name: String) -> Result<String, Status> {
    if name.chars().count() > DISPLAY_NAME_CHARS_MAX || name.contains('\0') {
        return Err(invalid("tenant.display_name", "must be at most 200 characters, without NUL"));
    }
    Ok(name)
}

fn to_proto(tenant: &portero_store::Tenant) -> v1::Tenant {
    v1::Tenant {
        name: format!("tenants/{}", tenant.id),
        display_name: tenant.display_name.clone(),
        create_time: Some(time::to_proto(tenant.created_at)),
        limits: limits_form::to_proto(&tenant.limits),
    }
}
