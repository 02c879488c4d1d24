//! What can be done, and to what.

use portero_types::{SubscriptionId, TenantId};

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
    /// `AdminService.UpdateTenant`: what it is called, and how much it may send.
    UpdateTenant(&'a TenantId),
    /// `AdminService.DeleteTenant`.
    DeleteTenant(&'a TenantId),
    /// `AdminService.EraseTenant`.
    EraseTenant(&'a TenantId),
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
    /// `AdminService.RotateSecret` of a tenant's source.
    RotateSecret(&'a TenantId),
    /// `AdminService.RetireSecret` of a tenant's source.
    RetireSecret(&'a TenantId),
    /// `AdminService.RevokeSecret` of a tenant's source.
    RevokeSecret(&'a TenantId),
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
    /// `AdminService.CreateGrant` for one tenant, or for the whole installation.
    CreateGrant(Option<&'a TenantId>),
    /// `AdminService.GetGrant`. One that does not exist is of the whole installation, so that only its callers learn that.
    GetGrant(Option<&'a TenantId>),
    /// `AdminService.ListGrants`. The list shows only those that the caller may get: whoever answers it asks the table once
    /// more for each.
    ListGrants,
    /// `AdminService.DeleteGrant`.
    DeleteGrant(Option<&'a TenantId>),
    /// `AdminService.ListAuditEntries` of one tenant, or of the whole installation.
    ListAuditEntries(Option<&'a TenantId>),
    /// `AdminService.ListReplicas`.
    ListReplicas,
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
            Self::UpdateTenant(_) => "UpdateTenant",
            Self::DeleteTenant(_) => "DeleteTenant",
            Self::EraseTenant(_) => "EraseTenant",
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
            Self::RotateSecret(_) => "RotateSecret",
            Self::RetireSecret(_) => "RetireSecret",
            Self::RevokeSecret(_) => "RevokeSecret",
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
            Self::CreateGrant(_) => "CreateGrant",
            Self::GetGrant(_) => "GetGrant",
            Self::ListGrants => "ListGrants",
            Self::DeleteGrant(_) => "DeleteGrant",
            Self::ListAuditEntries(_) => "ListAuditEntries",
            Self::ListReplicas => "ListReplicas",
            Self::Subscribe(_) => "Subscribe",
            Self::Settle(_) => "Settle",
        }
    }
}
