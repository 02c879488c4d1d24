//! `portero tenant`.

use portero_client::v1;
use serde::Serialize;

use super::limits::{self, Limits};
use super::{list, name};
use crate::cli::{GivenLimits, TenantCommand};
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::present::{self, Record};

/// Tenants on a page.
const PAGE: i32 = 1_000;

/// Runs one of its commands.
pub(crate) async fn run(command: TenantCommand) -> anyhow::Result<()> {
    match command {
        TenantCommand::Create { tenant, display_name, limits, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let limits = limits::wanted(&limits);
            let wanted = v1::Tenant { display_name, limits, ..v1::Tenant::default() };
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
        TenantCommand::Update { tenant, display_name, limits, default_limits, common } => {
            let limits = if default_limits {
                Some(GivenLimits::default())
            } else {
                limits.is_given().then_some(limits)
            };
            if display_name.is_none() && limits.is_none() {
                return Err(
                    Failure::usage("nothing is to be changed: see `portero tenant update --help`").into()
                );
            }
            let api = AdminApi::open(&common.connect).await?;
            let updated = update(&api, name::tenant(&tenant), display_name, limits, default_limits).await?;
            present::one(common.output.output, &Tenant::from(updated))
        }
        TenantCommand::Delete { tenant, reason, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::tenant(&tenant);
            let request = v1::DeleteTenantRequest { name: name.clone(), reason: reason.reason };
            api.ask(api.calls().delete_tenant(request)).await.map_err(|error| error.about(&name))?;
            present::deleted(common.output.output, &name)
        }
        TenantCommand::Erase { tenant, confirm, reason, common } => {
            if confirm != tenant {
                return Err(Failure::usage("--confirm must repeat the tenant's id").into());
            }
            let api = AdminApi::open(&common.connect).await?;
            let name = name::tenant(&tenant);
            let request = v1::EraseTenantRequest { name: name.clone(), confirm, reason: reason.reason };
            api.ask(api.calls().erase_tenant(request)).await.map_err(|error| error.about(&name))?;
            present::erased(common.output.output, &name)
        }
    }
}

/// Changes what is given. Limits are read first, since an update replaces all of them.
async fn update(
    api: &AdminApi,
    name: String,
    display_name: Option<String>,
    limits: Option<GivenLimits>,
    from_nothing: bool,
) -> anyhow::Result<v1::Tenant> {
    let named = [("display_name", display_name.is_some()), ("limits", limits.is_some())];
    let paths = named.into_iter().filter(|(_, named)| *named).map(|(path, _)| path.to_owned()).collect();
    let known = if limits.is_some() && !from_nothing {
        api.ask(api.calls().get_tenant(v1::GetTenantRequest { name: name.clone() })).await?.limits
    } else {
        None
    };
    let tenant = v1::Tenant {
        name: name.clone(),
        display_name: display_name.unwrap_or_default(),
        limits: limits.map(|given| limits::merged(&given, known)),
        ..v1::Tenant::default()
    };
    let update_mask = Some(prost_types::FieldMask { paths });
    let request = v1::UpdateTenantRequest { tenant: Some(tenant), update_mask };
    Ok(api.ask(api.calls().update_tenant(request)).await.map_err(|error| error.about(&name))?)
}

/// A tenant as it is shown.
#[derive(Debug, Serialize)]
struct Tenant {
    name: String,
    tenant: String,
    display_name: String,
    limits: Limits,
    create_time: Option<String>,
}

impl From<v1::Tenant> for Tenant {
    fn from(tenant: v1::Tenant) -> Self {
        Self {
            tenant: name::id(&tenant.name, 0),
            name: tenant.name,
            display_name: tenant.display_name,
            limits: tenant.limits.into(),
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
        let mut details = vec![("tenant", self.tenant.clone()), ("name", self.display_name.clone())];
        details.extend(self.limits.details());
        details.push(("created", self.create_time.clone().unwrap_or_default()));
        details
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
            limits: Some(v1::Limits { events_per_second: Some(5), burst: None, bytes_per_second: Some(0) }),
        });
        assert_eq!(
            serde_json::to_string(&tenant).expect("serialises"),
            concat!(
                r#"{"name":"tenants/acme","tenant":"acme","display_name":"Acme","#,
                r#""limits":{"events_per_second":5,"burst":null,"bytes_per_second":0},"#,
                r#""create_time":"2025-06-15T15:06:40.000000Z"}"#
            )
        );
        assert_eq!(tenant.row().len(), Tenant::COLUMNS.len());
    }
}
