//! Grants: what callers may do, by who vouches for them and who they are.

use portero_auth::{Action, Grant, Role, SUBSCRIPTIONS_PER_GRANT_MAX, allows};
use portero_proto::v1;
use portero_store::{GRANT_ISSUER_BYTES_MAX, NewGrant};
use portero_types::{GrantId, SubjectPattern};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

impl Admin {
    pub(super) async fn do_create_grant(
        &self,
        request: Request<v1::CreateGrantRequest>,
    ) -> Answer<v1::Grant> {
        let (metadata, message) = split(request);
        let (issuer, subject, grant) = from_proto(message.grant.unwrap_or_default())?;
        let id: GrantId = name::id(&message.grant_id, "grant_id")?;
        let caller = self.check(&metadata, Action::CreateGrant(grant.tenant.as_ref())).await?;
        self.require_named(&grant).await?;
        let new = NewGrant {
            id,
            issuer,
            subject: subject.to_string(),
            role: grant.role.name().to_owned(),
            tenant: grant.tenant,
            subscriptions: grant.subscriptions,
            created_at: self.now(),
        };
        let change = self.change(&caller, &metadata);
        let created = self.store.create_grant(new, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(self.grant_to_proto(&created)))
    }

    pub(super) async fn do_get_grant(&self, request: Request<v1::GetGrantRequest>) -> Answer<v1::Grant> {
        let (metadata, message) = split(request);
        let id = name::grant(&message.name, "name")?;
        let own = self.gate.own(&metadata).await?;
        let found = self.store.grant(&id).await.map_err(|error| from_store(&error))?;
        let tenant = found.as_ref().and_then(|found| found.tenant.as_ref());
        self.gate.allowed(&own, Action::GetGrant(tenant)).await?;
        Ok(Response::new(self.grant_to_proto(&found.ok_or_else(|| not_found(&message.name))?)))
    }

    pub(super) async fn do_list_grants(
        &self,
        request: Request<v1::ListGrantsRequest>,
    ) -> Answer<v1::ListGrantsResponse> {
        let (metadata, message) = split(request);
        let caller = self.check(&metadata, Action::ListGrants).await?;
        let (mut next, size) = (page::after::<GrantId>(&message.page_token)?, page::size(message.page_size)?);
        let mut gathering = page::Gathering::new(size);
        loop {
            let read = self.store.grants(next.as_ref(), page::READ_MAX).await;
            let read = read.map_err(|error| from_store(&error))?;
            next = read.items.last().map(|item| item.id.clone());
            let visible =
                read.items.into_iter().filter(|item| allows(&caller, Action::GetGrant(item.tenant.as_ref())));
            if !gathering.take(visible) || !read.more {
                break;
            }
        }
        let show = |grant: &portero_store::Grant| self.grant_to_proto(grant);
        let (grants, next_page_token) = page::shown(&gathering.page(), show, |grant| grant.id.to_string());
        Ok(Response::new(v1::ListGrantsResponse { grants, next_page_token }))
    }

    pub(super) async fn do_delete_grant(
        &self,
        request: Request<v1::DeleteGrantRequest>,
    ) -> Answer<v1::DeleteGrantResponse> {
        let (metadata, message) = split(request);
        let id = name::grant(&message.name, "name")?;
        let own = self.gate.own(&metadata).await?;
        let found = self.store.grant(&id).await.map_err(|error| from_store(&error))?;
        let tenant = found.as_ref().and_then(|found| found.tenant.as_ref());
        let caller = self.gate.allowed(&own, Action::DeleteGrant(tenant)).await?;
        let found = found.ok_or_else(|| not_found(&message.name))?;
        let change = self.change_because(&caller, &metadata, &message.reason)?.of(found.tenant);
        self.store.delete_grant(&id, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteGrantResponse {}))
    }

    /// What a grant names must be there. A subscription of somebody else is answered as one that does not exist: a tenant's
    /// admin must not learn here which names others use.
    async fn require_named(&self, grant: &Grant) -> Result<(), Status> {
        self.directory.refresh_now().await.map_err(|_| Status::unavailable("the store is away; retry"))?;
        let snapshot = self.directory.snapshot();
        if let Some(tenant) = grant.tenant.as_ref().filter(|tenant| snapshot.tenant(tenant).is_none()) {
            return Err(not_found(&format!("tenants/{tenant}")));
        }
        let is_there = |id| {
            snapshot
                .subscription(id)
                .is_some_and(|found| grant.tenant.is_none() || found.tenant == grant.tenant)
        };
        match (grant.subscriptions.iter().find(|id| !is_there(id)), &grant.tenant) {
            (None, _) => Ok(()),
            (Some(id), None) => Err(not_found(&format!("subscriptions/{id}"))),
            (Some(id), Some(tenant)) => {
                Err(Status::not_found(format!("tenants/{tenant} has no subscription of its own named {id}")))
            }
        }
    }

    fn grant_to_proto(&self, grant: &portero_store::Grant) -> v1::Grant {
        let is_trusted = self.gate.trusts(&grant.issuer);
        let warning = "no issuer of this name is trusted by this gateway, so the grant is nobody's: compare it with the 'iss' \
                       of the callers' tokens and with auth.issuers";
        v1::Grant {
            name: format!("grants/{}", grant.id),
            issuer: grant.issuer.clone(),
            subject: grant.subject.clone(),
            role: Role::from_name(&grant.role).map_or(v1::Role::Unspecified, role_to_proto).into(),
            tenant: grant.tenant.as_ref().map(|tenant| format!("tenants/{tenant}")).unwrap_or_default(),
            subscriptions: grant.subscriptions.iter().map(|id| format!("subscriptions/{id}")).collect(),
            create_time: Some(time::to_proto(grant.created_at)),
            warnings: if is_trusted { Vec::new() } else { vec![warning.to_owned()] },
        }
    }
}

fn from_proto(grant: v1::Grant) -> Result<(String, SubjectPattern, Grant), Status> {
    let issuer = grant.issuer;
    let is_good =
        (1..=GRANT_ISSUER_BYTES_MAX).contains(&issuer.len()) && !issuer.chars().any(char::is_control);
    if !is_good {
        return Err(invalid("grant.issuer", "must be 1 to 1024 bytes without control characters"));
    }
    let subject = SubjectPattern::new(grant.subject)
        .map_err(|error| invalid("grant.subject", format!("must be {}", error.rule)))?;
    let role = v1::Role::try_from(grant.role).ok().and_then(role_from_proto);
    let role = role.ok_or_else(|| invalid("grant.role", "must be given"))?;
    let tenant = match grant.tenant.as_str() {
        "" => None,
        tenant => Some(name::tenant(tenant, "grant.tenant")?),
    };
    if grant.subscriptions.len() > SUBSCRIPTIONS_PER_GRANT_MAX {
        return Err(invalid("grant.subscriptions", "must be at most 100"));
    }
    let names = grant.subscriptions.iter();
    let subscriptions =
        names.map(|it| name::subscription(it, "grant.subscriptions")).collect::<Result<_, _>>()?;
    let grant = Grant { role, tenant, subscriptions };
    grant.check().map_err(|error| invalid("grant.role", format!("does not fit the rest: {error}")))?;
    Ok((issuer, subject, grant))
}

const fn role_from_proto(role: v1::Role) -> Option<Role> {
    match role {
        v1::Role::Unspecified => None,
        v1::Role::PlatformAdmin => Some(Role::PlatformAdmin),
        v1::Role::TenantAdmin => Some(Role::TenantAdmin),
        v1::Role::Security => Some(Role::Security),
        v1::Role::Operator => Some(Role::Operator),
        v1::Role::Consumer => Some(Role::Consumer),
        v1::Role::Viewer => Some(Role::Viewer),
    }
}

const fn role_to_proto(role: Role) -> v1::Role {
    match role {
        Role::PlatformAdmin => v1::Role::PlatformAdmin,
        Role::TenantAdmin => v1::Role::TenantAdmin,
        Role::Security => v1::Role::Security,
        Role::Operator => v1::Role::Operator,
        Role::Consumer => v1::Role::Consumer,
        Role::Viewer => v1::Role::Viewer,
    }
}
