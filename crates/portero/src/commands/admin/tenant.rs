//! `portero tenant`.

use portero_client::v1;
use serde::Serialize;

use super::{list, name};
use crate::cli::TenantCommand;
use crate::commands::connection::AdminApi;
use crate::commands::present::{self, Record};

/// Tenants on a page.
const PAGE: i32 = 1_000;

/// Runs one of its commands.
pub(crate) async fn run(command: TenantCommand) -> anyhow::Result<()> {
    match command {
        TenantCommand::Create { tenant, display_name, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let wanted = v1::Tenant { display_name, ..v1::Tenant::default() };
            let name = name::tenant(&tenant);
            let request = v1::CreateTenantRequest { tenant_id: tenant, tenant: Some(wanted) };
            let created =
                api.ask(api.calls().create_tenant(request)).await.map_err(|error| error.about(&name))?;
            present::one(common.output.output, &Tenant::from(created))
        }
        TenantCommand::Get { tenant, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::GetTenantRequest { name: name::tenant(&tenant) };
            let found = api.ask(api.calls().get_tenant(request)).await?;
            present::one(common.output.output, &Tenant::from(found))
        }
        TenantCommand::List { common } => {
            let api = AdminApi::open(&common.connect).await?;
            list::show::<_, Tenant>(&api, common.output.output, async |mut calls, page_token| {
                calls.list_tenants(v1::ListTenantsRequest { page_size: PAGE, page_token }).await
            })
            .await
        }
        TenantCommand::Delete { tenant, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::tenant(&tenant);
            let request = v1::DeleteTenantRequest { name: name.clone() };
            api.ask(api.calls().delete_tenant(request)).await.map_err(|error| error.about(&name))?;
            present::deleted(common.output.output, &name)
        }
    }
}

/// A tenant as it is shown.
#[derive(Debug, Serialize)]
struct Tenant {
    name: String,
    tenant: String,
    display_name: String,
    create_time: Option<String>,
}

impl From<v1::Tenant> for Tenant {
    fn from(tenant: v1::Tenant) -> Self {
        Self {
            tenant: name::id(&tenant.name, 0),
            name: tenant.name,
            display_name: tenant.display_name,
            create_time: present::time(tenant.create_time.as_ref()),
        }
    }
}

impl Record for Tenant {
    const COLUMNS: &'static [&'static str] = &["TENANT", "NAME", "CREATED"];

    fn row(&self) -> Vec<String> {
        vec![self.tenant.clone(), self.display_name.clone(), self.create_time.clone().unwrap_or_default()]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            ("tenant", self.tenant.clone()),
            ("name", self.display_name.clone()),
            ("created", self.create_time.clone().unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_stable() {
        let tenant = Tenant::from(v1::Tenant {
            name: "tenants/acme".to_owned(),
            display_name: "Acme".to_owned(),
            create_time: Some(prost_types::Timestamp { seconds: 1_750_000_000, nanos: 0 }),
        });
        assert_eq!(
            serde_json::to_string(&tenant).expect("serialises"),
            r#"{"name":"tenants/acme","tenant":"acme","display_name":"Acme","create_time":"2025-06-15T15:06:40.000000Z"}"#
        );
        assert_eq!(tenant.row().len(), Tenant::COLUMNS.len());
    }
}
