//! The one table of who may do what. Whatever it does not allow is denied.

use portero_types::{SubscriptionId, TenantId};

use crate::{Caller, Role};

/// Whose events a subscription carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionScope<'a> {
    /// Every tenant's. Also the scope of a subscription that does not exist, so that only callers of the whole platform
    /// learn that it does not.
    Platform,
    /// One tenant's.
    Tenant(&'a TenantId),
}

/// A subscription as a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionRef<'a> {
    /// Its name.
    pub id: &'a SubscriptionId,
    /// Whose events it carries: from the subscription itself, or from the request that creates it.
    pub scope: SubscriptionScope<'a>,
}

/// An RPC and the resource that it acts on. One variant per RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// `AdminService.CreateTenant`.
    CreateTenant,
    /// `AdminService.GetTenant`.
    GetTenant(&'a TenantId),
    /// `AdminService.ListTenants`.
    ListTenants,
    /// `AdminService.DeleteTenant`.
    DeleteTenant(&'a TenantId),
    /// `AdminService.ListPresets`. Presets are the same for everybody.
    ListPresets,
    /// `AdminService.GetPreset`.
    GetPreset,
    /// `AdminService.CreateSource` in a tenant.
    CreateSource(&'a TenantId),
    /// `AdminService.GetSource` of a tenant.
    GetSource(&'a TenantId),
    /// `AdminService.ListSources` of a tenant.
    ListSources(&'a TenantId),
    /// `AdminService.UpdateSource` of a tenant.
    UpdateSource(&'a TenantId),
    /// `AdminService.DeleteSource` of a tenant.
    DeleteSource(&'a TenantId),
    /// `AdminService.CreateSecret` in a tenant's source.
    CreateSecret(&'a TenantId),
    /// `AdminService.GetSecret` of a tenant's source.
    GetSecret(&'a TenantId),
    /// `AdminService.ListSecrets` of a tenant's source.
    ListSecrets(&'a TenantId),
    /// `AdminService.RevealSecret` of a tenant's source.
    RevealSecret(&'a TenantId),
    /// `AdminService.DeleteSecret` of a tenant's source.
    DeleteSecret(&'a TenantId),
    /// `AdminService.ListRejections` of a tenant's source.
    ListRejections(&'a TenantId),
    /// `AdminService.GetRejection` of a tenant's source.
    GetRejection(&'a TenantId),
    /// `AdminService.ExplainRequest` of a tenant's source.
    ExplainRequest(&'a TenantId),
    /// `AdminService.CreateSubscription`.
    CreateSubscription(SubscriptionRef<'a>),
    /// `AdminService.GetSubscription`.
    GetSubscription(SubscriptionRef<'a>),
    /// `AdminService.ListSubscriptions`. The list shows only those that the caller may get: whoever answers it asks the
    /// table once more for each.
    ListSubscriptions,
    /// `AdminService.UpdateSubscription`.
    UpdateSubscription(SubscriptionRef<'a>),
    /// `AdminService.DeleteSubscription`.
    DeleteSubscription(SubscriptionRef<'a>),
    /// `AdminService.ListDeadLetters` of a subscription.
    ListDeadLetters(SubscriptionRef<'a>),
    /// `AdminService.ListParkedEntities` of a subscription.
    ListParkedEntities(SubscriptionRef<'a>),
    /// `AdminService.RetryParkedEntity` of a subscription.
    RetryParkedEntity(SubscriptionRef<'a>),
    /// `AdminService.DeadLetterParkedEntity` of a subscription.
    DeadLetterParkedEntity(SubscriptionRef<'a>),
    /// `AdminService.GetReceipt` of a tenant.
    GetReceipt(&'a TenantId),
    /// `SubscriberService.Subscribe`.
    Subscribe(SubscriptionRef<'a>),
    /// `SubscriberService.Settle`.
    Settle(SubscriptionRef<'a>),
}

impl Action<'_> {
    /// The RPC's name, for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CreateTenant => "CreateTenant",
            Self::GetTenant(_) => "GetTenant",
            Self::ListTenants => "ListTenants",
            Self::DeleteTenant(_) => "DeleteTenant",
            Self::ListPresets => "ListPresets",
            Self::GetPreset => "GetPreset",
            Self::CreateSource(_) => "CreateSource",
            Self::GetSource(_) => "GetSource",
            Self::ListSources(_) => "ListSources",
            Self::UpdateSource(_) => "UpdateSource",
            Self::DeleteSource(_) => "DeleteSource",
            Self::CreateSecret(_) => "CreateSecret",
            Self::GetSecret(_) => "GetSecret",
            Self::ListSecrets(_) => "ListSecrets",
            Self::RevealSecret(_) => "RevealSecret",
            Self::DeleteSecret(_) => "DeleteSecret",
            Self::ListRejections(_) => "ListRejections",
            Self::GetRejection(_) => "GetRejection",
            Self::ExplainRequest(_) => "ExplainRequest",
            Self::CreateSubscription(_) => "CreateSubscription",
            Self::GetSubscription(_) => "GetSubscription",
            Self::ListSubscriptions => "ListSubscriptions",
            Self::UpdateSubscription(_) => "UpdateSubscription",
            Self::DeleteSubscription(_) => "DeleteSubscription",
            Self::ListDeadLetters(_) => "ListDeadLetters",
            Self::ListParkedEntities(_) => "ListParkedEntities",
            Self::RetryParkedEntity(_) => "RetryParkedEntity",
            Self::DeadLetterParkedEntity(_) => "DeadLetterParkedEntity",
            Self::GetReceipt(_) => "GetReceipt",
            Self::Subscribe(_) => "Subscribe",
            Self::Settle(_) => "Settle",
        }
    }
}

/// Whether this caller may do this. The token's expiry was checked when the caller was made; a long stream checks it again.
#[must_use]
pub fn allows(caller: &Caller, action: Action<'_>) -> bool {
    match action {
        Action::CreateTenant | Action::ListTenants | Action::DeleteTenant(_) => is_platform_admin(caller),
        Action::GetTenant(tenant)
        | Action::CreateSource(tenant)
        | Action::GetSource(tenant)
        | Action::ListSources(tenant)
        | Action::UpdateSource(tenant)
        | Action::DeleteSource(tenant)
        | Action::CreateSecret(tenant)
        | Action::GetSecret(tenant)
        | Action::ListSecrets(tenant)
        | Action::RevealSecret(tenant)
        | Action::DeleteSecret(tenant)
        | Action::ListRejections(tenant)
        | Action::GetRejection(tenant)
        | Action::ExplainRequest(tenant)
        | Action::GetReceipt(tenant) => is_admin_of(caller, tenant),
        Action::CreateSubscription(subscription)
        | Action::GetSubscription(subscription)
        | Action::UpdateSubscription(subscription)
        | Action::DeleteSubscription(subscription)
        | Action::ListDeadLetters(subscription)
        | Action::ListParkedEntities(subscription)
        | Action::RetryParkedEntity(subscription)
        | Action::DeadLetterParkedEntity(subscription) => match subscription.scope {
            SubscriptionScope::Platform => is_platform_admin(caller),
            SubscriptionScope::Tenant(tenant) => is_admin_of(caller, tenant),
        },
        Action::ListSubscriptions => is_admin(caller),
        Action::ListPresets | Action::GetPreset => true,
        Action::Subscribe(subscription) | Action::Settle(subscription) => consumes(caller, subscription),
    }
}

const fn is_admin(caller: &Caller) -> bool {
    matches!(caller.role, Role::Admin)
}

const fn is_platform_admin(caller: &Caller) -> bool {
    is_admin(caller) && caller.tenant.is_none()
}

fn is_admin_of(caller: &Caller, tenant: &TenantId) -> bool {
    is_admin(caller) && caller.tenant.as_ref().is_none_or(|own| own == tenant)
}

/// A consumer bound to a tenant never gets a subscription that carries other tenants' events, even when it is named.
fn consumes(caller: &Caller, subscription: SubscriptionRef<'_>) -> bool {
    let in_scope = match (&caller.tenant, subscription.scope) {
        (None, _) => true,
        (Some(own), SubscriptionScope::Tenant(tenant)) => own == tenant,
        (Some(_), SubscriptionScope::Platform) => false,
    };
    matches!(caller.role, Role::Consumer) && in_scope && caller.subscriptions.contains(subscription.id)
}

#[cfg(test)]
mod tests {
    use portero_types::Timestamp;

    use super::*;
    use crate::Grant;

    fn tenant(id: &str) -> TenantId {
        TenantId::new(id).expect("valid")
    }

    fn caller(grant: Grant) -> Caller {
        Caller {
            issuer: "i".into(),
            subject: "s".into(),
            role: grant.role,
            tenant: grant.tenant,
            subscriptions: grant.subscriptions,
            expires_at: Timestamp::EPOCH,
        }
    }

    /// Columns: platform admin · admin of acme · consumer of "mine" · consumer of "mine" bound to acme.
    /// Rows: each RPC on acme's resource, then on evil's (or on the other scopes of a subscription).
    #[test]
    fn every_cell_of_the_table_is_as_written() {
        let (acme, evil) = (tenant("acme"), tenant("evil"));
        let (mine, other) =
            (SubscriptionId::new("mine").expect("valid"), SubscriptionId::new("other").expect("valid"));
        let named = vec![mine.clone()];
        let callers = [
            caller(Grant::platform_admin()),
            caller(Grant::tenant_admin(acme.clone())),
            caller(Grant::consumer(named.clone())),
            caller(Grant { tenant: Some(acme.clone()), ..Grant::consumer(named) }),
        ];
        let platform = |id| SubscriptionRef { id, scope: SubscriptionScope::Platform };
        let of = |id, tenant| SubscriptionRef { id, scope: SubscriptionScope::Tenant(tenant) };
        let mut rows = vec![
            (Action::CreateTenant, "yes no no no"),
            (Action::ListTenants, "yes no no no"),
            (Action::DeleteTenant(&acme), "yes no no no"),
            (Action::DeleteTenant(&evil), "yes no no no"),
            (Action::ListSubscriptions, "yes yes no no"),
            (Action::ListPresets, "yes yes yes yes"),
            (Action::GetPreset, "yes yes yes yes"),
        ];
        let by_tenant: [fn(_) -> _; 15] = [
            Action::GetTenant,
            Action::CreateSource,
            Action::GetSource,
            Action::ListSources,
            Action::UpdateSource,
            Action::DeleteSource,
            Action::CreateSecret,
            Action::GetSecret,
            Action::ListSecrets,
            Action::RevealSecret,
            Action::DeleteSecret,
            Action::ListRejections,
            Action::GetRejection,
            Action::ExplainRequest,
            Action::GetReceipt,
        ];
        for action in by_tenant {
            rows.push((action(&acme), "yes yes no no"));
            rows.push((action(&evil), "yes no no no"));
        }
        let managing: [fn(_) -> _; 8] = [
            Action::CreateSubscription,
            Action::GetSubscription,
            Action::UpdateSubscription,
            Action::DeleteSubscription,
            Action::ListDeadLetters,
            Action::ListParkedEntities,
            Action::RetryParkedEntity,
            Action::DeadLetterParkedEntity,
        ];
        for action in managing {
            for id in [&mine, &other] {
                rows.push((action(platform(id)), "yes no no no"));
                rows.push((action(of(id, &acme)), "yes yes no no"));
                rows.push((action(of(id, &evil)), "yes no no no"));
            }
        }
        let consuming: [fn(_) -> _; 2] = [Action::Subscribe, Action::Settle];
        for action in consuming {
            rows.push((action(platform(&mine)), "no no yes no"));
            rows.push((action(of(&mine, &acme)), "no no yes yes"));
            rows.push((action(of(&mine, &evil)), "no no yes no"));
            for scope in [platform(&other), of(&other, &acme), of(&other, &evil)] {
                rows.push((action(scope), "no no no no"));
            }
        }
        for (action, expected) in &rows {
            let found = callers.each_ref().map(|c| if allows(c, *action) { "yes" } else { "no" }).join(" ");
            assert_eq!(found, *expected, "{action:?}");
        }
        assert_every_rpc_has_a_row(rows.iter().map(|(action, _)| action.name()).collect());
    }

    fn assert_every_rpc_has_a_row(mut tested: Vec<&str>) {
        let protos = [
            include_str!("../../../proto/portero/v1/admin_service.proto"),
            include_str!("../../../proto/portero/v1/subscriber_service.proto"),
        ];
        let mut rpcs: Vec<&str> = protos
            .iter()
            .flat_map(|proto| proto.lines())
            .filter_map(|line| line.trim().strip_prefix("rpc "))
            .filter_map(|rest| rest.split('(').next())
            .collect();
        rpcs.sort_unstable();
        tested.sort_unstable();
        tested.dedup();
        assert_eq!(tested, rpcs);
    }

    #[test]
    fn an_admin_whose_grant_names_subscriptions_still_receives_nothing() {
        let mine = SubscriptionId::new("mine").expect("valid");
        let odd = caller(Grant { subscriptions: vec![mine.clone()], ..Grant::platform_admin() });
        let subscription = SubscriptionRef { id: &mine, scope: SubscriptionScope::Platform };
        assert!(!allows(&odd, Action::Subscribe(subscription)));
    }
}
