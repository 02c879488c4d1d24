//! Tenants.

use portero_auth::Action;
use portero_proto::v1;
use portero_store::NewTenant;
use portero_types::TenantId;
use tonic::{Request, Response};

use super::{Admin, Answer, split};
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
        let display_name = message.tenant.unwrap_or_default().display_name;
        if display_name.chars().count() > DISPLAY_NAME_CHARS_MAX || display_name.contains('\0') {
            return Err(invalid("tenant.display_name", "must be at most 200 characters, without NUL"));
        }
        let tenant = NewTenant { id, display_name, created_at: self.now() };
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
        Ok(Response::new(v1::ListTenantsResponse {
            next_page_token: page::next(&page, |tenant| tenant.id.to_string()),
            tenants: page.items.iter().map(to_proto).collect(),
        }))
    }

    pub(super) async fn do_delete_tenant(
        &self,
        request: Request<v1::DeleteTenantRequest>,
    ) -> Answer<v1::DeleteTenantResponse> {
        let (metadata, message) = split(request);
        let id = name::tenant(&message.name, "name")?;
        let caller = self.check(&metadata, Action::DeleteTenant(&id)).await?;
        let change = self.change(&caller, &metadata);
        self.store.delete_tenant(&id, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteTenantResponse {}))
    }
}

fn to_proto(tenant: &portero_store::Tenant) -> v1::Tenant {
    v1::Tenant {
        name: format!("tenants/{}", tenant.id),
        display_name: tenant.display_name.clone(),
        create_time: Some(time::to_proto(tenant.created_at)),
    }
}
