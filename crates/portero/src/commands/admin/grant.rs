//! `portero grant`.

use portero_client::v1;
use serde::Serialize;

use super::{list, name};
use crate::cli::{GrantCommand, RoleName};
use crate::commands::connection::AdminApi;
use crate::commands::present::{self, Record};
use crate::print;

/// Grants on a page: each may name a hundred subscriptions.
const PAGE: i32 = 100;

/// Runs one of its commands.
pub(crate) async fn run(command: GrantCommand) -> anyhow::Result<()> {
    match command {
        GrantCommand::Create { grant, issuer, subject, role, tenant, subscriptions, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let wanted = v1::Grant {
                issuer,
                subject,
                role: role_to_proto(role).into(),
                tenant: if tenant.is_empty() { tenant } else { name::tenant(&tenant) },
                subscriptions: subscriptions.iter().map(|id| name::subscription(id)).collect(),
                ..v1::Grant::default()
            };
            let name = name::grant(&grant);
            let request = v1::CreateGrantRequest { grant_id: grant, grant: Some(wanted) };
            let created = api.ask(api.calls().create_grant(request)).await;
            let created = Grant::from(created.map_err(|error| error.about(&name))?);
            created.warn();
            present::one(common.output.output, &created)
        }
        GrantCommand::List { common } => {
            let api = AdminApi::open(&common.connect).await?;
            list::show::<_, Grant>(&api, common.output.output, async |mut calls, page_token| {
                calls.list_grants(v1::ListGrantsRequest { page_size: PAGE, page_token }).await
            })
            .await
        }
        GrantCommand::Show { grant, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::GetGrantRequest { name: name::grant(&grant) };
            let found = Grant::from(api.ask(api.calls().get_grant(request)).await?);
            found.warn();
            present::one(common.output.output, &found)
        }
        GrantCommand::Delete { grant, reason, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::grant(&grant);
            let request = v1::DeleteGrantRequest { name: name.clone(), reason: reason.reason };
            api.ask(api.calls().delete_grant(request)).await?;
            present::deleted(common.output.output, &name)
        }
    }
}

/// A grant as it is shown.
#[derive(Debug, Serialize)]
struct Grant {
    name: String,
    grant: String,
    issuer: String,
    subject: String,
    role: &'static str,
    tenant: Option<String>,
    subscriptions: Vec<String>,
    create_time: Option<String>,
    warnings: Vec<String>,
}

impl From<v1::Grant> for Grant {
    fn from(grant: v1::Grant) -> Self {
        Self {
            role: role_name(grant.role()),
            grant: name::id(&grant.name, 0),
            name: grant.name,
            issuer: grant.issuer,
            subject: grant.subject,
            tenant: Some(name::id(&grant.tenant, 0)).filter(|tenant| !tenant.is_empty()),
            subscriptions: grant.subscriptions.iter().map(|it| name::id(it, 0)).collect(),
            create_time: present::time(grant.create_time.as_ref()),
            warnings: grant.warnings,
        }
    }
}

impl Grant {
    fn warn(&self) {
        for warning in &self.warnings {
            print::note(&format!("warning: {}", present::clean(warning)));
        }
    }

    fn scope(&self) -> String {
        self.tenant.clone().unwrap_or_else(|| "all".to_owned())
    }
}

const fn role_to_proto(role: RoleName) -> v1::Role {
    match role {
        RoleName::PlatformAdmin => v1::Role::PlatformAdmin,
        RoleName::TenantAdmin => v1::Role::TenantAdmin,
        RoleName::Security => v1::Role::Security,
        RoleName::Operator => v1::Role::Operator,
        RoleName::Consumer => v1::Role::Consumer,
        RoleName::Viewer => v1::Role::Viewer,
    }
}

const fn role_name(role: v1::Role) -> &'static str {
    match role {
        v1::Role::Unspecified => "unknown",
        v1::Role::PlatformAdmin => "platform-admin",
        v1::Role::TenantAdmin => "tenant-admin",
        v1::Role::Security => "security",
        v1::Role::Operator => "operator",
        v1::Role::Consumer => "consumer",
        v1::Role::Viewer => "viewer",
    }
}

impl Record for Grant {
    const COLUMNS: &'static [&'static str] =
        &["GRANT", "ROLE", "TENANT", "SUBSCRIPTIONS", "SUBJECT", "ISSUER", "CREATED"];

    fn row(&self) -> Vec<String> {
        vec![
            self.grant.clone(),
            self.role.to_owned(),
            self.scope(),
            self.subscriptions.join(", "),
            self.subject.clone(),
            self.issuer.clone(),
            self.create_time.clone().unwrap_or_default(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            ("grant", self.grant.clone()),
            ("issuer", self.issuer.clone()),
            ("subject", self.subject.clone()),
            ("role", self.role.to_owned()),
            ("tenant", self.scope()),
            ("subscriptions", self.subscriptions.join(", ")),
            ("created", self.create_time.clone().unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_stable() {
        let mut grant = v1::Grant {
            name: "grants/billing".to_owned(),
            issuer: "portero-local".to_owned(),
            subject: "billing*".to_owned(),
            tenant: "tenants/acme".to_owned(),
            subscriptions: vec!["subscriptions/billing".to_owned()],
            ..v1::Grant::default()
        };
        grant.set_role(v1::Role::Consumer);
        let shown = Grant::from(grant);
        let wanted = serde_json::json!({
            "name": "grants/billing", "grant": "billing", "issuer": "portero-local", "subject": "billing*",
            "role": "consumer", "tenant": "acme", "subscriptions": ["billing"], "create_time": null, "warnings": [],
        });
        assert_eq!(serde_json::to_value(&shown).expect("serialises"), wanted);
        assert_eq!(shown.row().len(), Grant::COLUMNS.len());
    }
}
