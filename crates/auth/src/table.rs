//! The one table of who may do what. Whatever it does not allow is denied.

use portero_types::TenantId;

use crate::{Action, Caller, Claimed, Grant, Role, SubscriptionRef, SubscriptionScope};

/// Whether this caller may do this: one of its grants is enough. The token's expiry was checked when the caller was made; a
/// long stream checks it again.
#[must_use]
pub fn allows(caller: &Caller, action: Action<'_>) -> bool {
    let (roles, scope) = row(action);
    caller.grants.iter().any(|grant| roles.contains(&grant.role) && scope.is_within(grant))
}

/// Whether a caller who was refused this may be so because not all that its token grants is [current](Claimed::current). What the
/// action names decides by its name alone, so that the answer does not tell whose it is, or whether it is there.
#[must_use]
pub fn is_outdated(caller: &Caller, action: Action<'_>) -> bool {
    let (roles, scope) = row(action);
    caller.claimed.as_ref().is_some_and(|Claimed { grant, .. }| {
        let is_named = match scope {
            Scope::Events(subscription) => grant.subscriptions.contains(subscription.id),
            Scope::Anything | Scope::Installation | Scope::Tenant(_) => true,
        };
        roles.contains(&grant.role) && is_named && !caller.grants.contains(grant)
    })
}

/// What of the installation an action touches.
enum Scope<'a> {
    /// Nothing that anybody owns, or a list that is asked about once more for each of its items.
    Anything,
    /// Everything.
    Installation,
    /// One tenant.
    Tenant(&'a TenantId),
    /// The events of one subscription.
    Events(SubscriptionRef<'a>),
}

impl Scope<'_> {
    fn is_within(&self, grant: &Grant) -> bool {
        // Such a grant is never made. Should one appear, it is not taken for one of the whole installation.
        if grant.role == Role::TenantAdmin && grant.tenant.is_none() {
            return false;
        }
        match self {
            Self::Anything => true,
            Self::Installation => grant.tenant.is_none(),
            Self::Tenant(tenant) => grant.tenant.as_ref().is_none_or(|own| own == *tenant),
            // A consumer bound to a tenant never gets a subscription that carries other tenants' events, even when it is named.
            Self::Events(subscription) => {
                Self::of(subscription.scope).is_within(grant) && grant.subscriptions.contains(subscription.id)
            }
        }
    }

    const fn of(scope: SubscriptionScope<'_>) -> Scope<'_> {
        match scope {
            SubscriptionScope::Platform => Scope::Installation,
            SubscriptionScope::Tenant(tenant) => Scope::Tenant(tenant),
        }
    }

    fn tenant_or_all(tenant: Option<&TenantId>) -> Scope<'_> {
        tenant.map_or(Scope::Installation, Scope::Tenant)
    }
}

const PLATFORM: &[Role] = &[Role::PlatformAdmin];
const ADMINS: &[Role] = &[Role::PlatformAdmin, Role::TenantAdmin];
/// Who looks after secrets and those who may use them.
const SECRETS: &[Role] = &[Role::PlatformAdmin, Role::TenantAdmin, Role::Security];
/// Who looks after what is stuck.
const WORK: &[Role] = &[Role::PlatformAdmin, Role::TenantAdmin, Role::Operator];
const CONSUMERS: &[Role] = &[Role::Consumer];
/// Who sees what there is in the places that it looks after.
const SECRETS_SEEN: &[Role] = &[Role::PlatformAdmin, Role::TenantAdmin, Role::Security, Role::Viewer];
const WORK_SEEN: &[Role] = &[Role::PlatformAdmin, Role::TenantAdmin, Role::Operator, Role::Viewer];
const PLACES_SEEN: &[Role] =
    &[Role::PlatformAdmin, Role::TenantAdmin, Role::Security, Role::Operator, Role::Viewer];

/// The roles that may, and how far a grant must reach.
fn row(action: Action<'_>) -> (&'static [Role], Scope<'_>) {
    match action {
        Action::ListPresets | Action::GetPreset => (&Role::ALL, Scope::Anything),
        Action::CreateTenant | Action::UpdateTenant(_) | Action::DeleteTenant(_) | Action::EraseTenant(_) => {
            (PLATFORM, Scope::Installation)
        }
        Action::ListTenants | Action::ListReplicas => (PLACES_SEEN, Scope::Installation),
        Action::GetTenant(tenant) | Action::GetSource(tenant) | Action::ListSources(tenant) => {
            (PLACES_SEEN, Scope::Tenant(tenant))
        }
        Action::CreateSource(tenant) | Action::UpdateSource(tenant) | Action::DeleteSource(tenant) => {
            (ADMINS, Scope::Tenant(tenant))
        }
        Action::CreateSecret(tenant)
        | Action::RevealSecret(tenant)
        | Action::RotateSecret(tenant)
        | Action::RetireSecret(tenant)
        | Action::RevokeSecret(tenant)
        | Action::DeleteSecret(tenant) => (SECRETS, Scope::Tenant(tenant)),
        Action::GetSecret(tenant) | Action::ListSecrets(tenant) => (SECRETS_SEEN, Scope::Tenant(tenant)),
        Action::ListRejections(tenant) | Action::GetRejection(tenant) | Action::GetReceipt(tenant) => {
            (WORK_SEEN, Scope::Tenant(tenant))
        }
        Action::ExplainRequest(tenant) => (WORK, Scope::Tenant(tenant)),
        Action::CreateSubscription(it) | Action::UpdateSubscription(it) | Action::DeleteSubscription(it) => {
            (ADMINS, Scope::of(it.scope))
        }
        Action::GetSubscription(it) => (WORK_SEEN, Scope::of(it.scope)),
        Action::ListSubscriptions => (WORK_SEEN, Scope::Anything),
        // What consumers say about an event may repeat parts of it, and an entity may be a person: nothing for viewers.
        Action::ListDeadLetters(it)
        | Action::ListParkedEntities(it)
        | Action::RetryParkedEntity(it)
        | Action::DeadLetterParkedEntity(it) => (WORK, Scope::of(it.scope)),
        Action::Subscribe(it) | Action::Settle(it) => (CONSUMERS, Scope::Events(it)),
        Action::CreateGrant(tenant) | Action::DeleteGrant(tenant) => (ADMINS, Scope::tenant_or_all(tenant)),
        Action::GetGrant(tenant) | Action::ListAuditEntries(tenant) => {
            (SECRETS, Scope::tenant_or_all(tenant))
        }
        Action::ListGrants => (SECRETS, Scope::Anything),
    }
}

#[cfg(test)]
mod tests;
