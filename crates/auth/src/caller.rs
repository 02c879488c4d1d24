//! A verified caller, and what may be granted to one.

use portero_types::limits::SUBJECT_BYTES_MAX;
use portero_types::{SubscriptionId, TenantId, Timestamp};

use crate::Claimed;

/// Most subscriptions in one grant.
pub const SUBSCRIPTIONS_PER_GRANT_MAX: usize = 100;

/// What a caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Manages everything. Receives no events.
    PlatformAdmin,
    /// Manages one tenant: its sources, secrets and subscriptions, and grants for it. Receives no events.
    TenantAdmin,
    /// Looks after secrets, and sees grants and the audit log. Sees no payloads and no events.
    Security,
    /// Looks after what is stuck: dead letters, parked entities, receipts, refused requests.
    Operator,
    /// Receives and settles the events of named subscriptions. Manages nothing.
    Consumer,
    /// Sees what there is, without payloads and without what consumers say about events. Changes nothing.
    Viewer,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] = [
        Self::PlatformAdmin,
        Self::TenantAdmin,
        Self::Security,
        Self::Operator,
        Self::Consumer,
        Self::Viewer,
    ];

    /// Its name, as tokens, settings and databases hold it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlatformAdmin => "platform-admin",
            Self::TenantAdmin => "tenant-admin",
            Self::Security => "security",
            Self::Operator => "operator",
            Self::Consumer => "consumer",
            Self::Viewer => "viewer",
        }
    }

    /// The role of a name, in its exact spelling.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Role {
    type Err = UnknownRole;
    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        Self::from_name(name).ok_or(UnknownRole)
    }
}

/// There is no role of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a role must be one of platform-admin, tenant-admin, security, operator, consumer, viewer")]
pub struct UnknownRole;

/// What a caller may do. In a token it is the claim `portero`: `{"role": "platform-admin"}`,
/// `{"role": "tenant-admin", "tenant": "acme"}`, `{"role": "consumer", "subscriptions": ["billing"]}`. An unknown field
/// refuses the grant.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// What the caller is.
    pub role: Role,
    /// Only this tenant; `None` is the whole installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// A consumer's subscriptions: 1 to [`SUBSCRIPTIONS_PER_GRANT_MAX`]. Empty for every other role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionId>,
}

/// Why a grant makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGrant {
    /// A platform admin of a tenant.
    #[error("a platform-admin's grant names no tenant: one tenant's admin is a tenant-admin")]
    PlatformAdminWithTenant,
    /// A tenant admin without a tenant.
    #[error("a tenant-admin's grant must name its tenant")]
    NoTenant,
    /// A consumer without subscriptions.
    #[error("a consumer's grant must name at least one subscription")]
    NoSubscriptions,
    /// Too many subscriptions.
    #[error("a grant names at most {SUBSCRIPTIONS_PER_GRANT_MAX} subscriptions")]
    TooManySubscriptions,
    /// Another role with subscriptions: it could not use them.
    #[error("only a consumer's grant names subscriptions")]
    SubscriptionsWithoutConsumer,
}

impl Grant {
    /// An admin of the whole installation.
    #[must_use]
    pub const fn platform_admin() -> Self {
        Self { role: Role::PlatformAdmin, tenant: None, subscriptions: Vec::new() }
    }

    /// An admin of one tenant.
    #[must_use]
    pub const fn tenant_admin(tenant: TenantId) -> Self {
        Self { role: Role::TenantAdmin, tenant: Some(tenant), subscriptions: Vec::new() }
    }

    /// A consumer of these subscriptions.
    #[must_use]
    pub const fn consumer(subscriptions: Vec<SubscriptionId>) -> Self {
        Self { role: Role::Consumer, tenant: None, subscriptions }
    }

    /// One of the roles that need neither a tenant nor subscriptions, for one tenant or for the whole installation.
    #[must_use]
    pub const fn of(role: Role, tenant: Option<TenantId>) -> Self {
        Self { role, tenant, subscriptions: Vec::new() }
    }

    /// Whether the parts fit together.
    ///
    /// # Errors
    /// [`InvalidGrant`] says which part does not.
    pub fn check(&self) -> Result<(), InvalidGrant> {
        match (self.role, &self.tenant, self.subscriptions.len()) {
            (Role::PlatformAdmin, Some(_), _) => Err(InvalidGrant::PlatformAdminWithTenant),
            (Role::TenantAdmin, None, _) => Err(InvalidGrant::NoTenant),
            (Role::Consumer, _, 0) => Err(InvalidGrant::NoSubscriptions),
            (Role::Consumer, _, n) if n > SUBSCRIPTIONS_PER_GRANT_MAX => {
                Err(InvalidGrant::TooManySubscriptions)
            }
            (Role::Consumer, ..) | (_, _, 0) => Ok(()),
            _ => Err(InvalidGrant::SubscriptionsWithoutConsumer),
        }
    }
}

/// Who calls: made only by [`crate::Verifier`] outside of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The issuer that vouches for the subject.
    pub issuer: String,
    /// `sub` of the token; at most [`SUBJECT_BYTES_MAX`] bytes, without control characters.
    pub subject: String,
    /// When the token ends. A stream that lives longer is ended then.
    pub expires_at: Timestamp,
    /// What it may do: any one of them is enough. A caller without any is known, and may do nothing.
    pub grants: Vec<Grant>,
    /// What its token grants beside that. It is not among `grants` until somebody who knows which names were given up has put
    /// there what is current of it.
    pub claimed: Option<Claimed>,
}

/// Whether this may be a caller's name.
pub(crate) fn is_subject(text: &str) -> bool {
    (1..=SUBJECT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> Option<TenantId> {
        Some(TenantId::new("acme").expect("valid"))
    }

    fn subscriptions(count: usize) -> Vec<SubscriptionId> {
        (0..count).map(|n| SubscriptionId::new(format!("s{n}")).expect("valid")).collect()
    }

    #[test]
    fn each_role_has_the_parts_that_it_needs_and_no_others() {
        use InvalidGrant as Wrong;
        let rows = [
            (Role::PlatformAdmin, None, 0, Ok(())),
            (Role::PlatformAdmin, acme(), 0, Err(Wrong::PlatformAdminWithTenant)),
            (Role::PlatformAdmin, None, 1, Err(Wrong::SubscriptionsWithoutConsumer)),
            (Role::TenantAdmin, None, 0, Err(Wrong::NoTenant)),
            (Role::TenantAdmin, acme(), 0, Ok(())),
            (Role::TenantAdmin, acme(), 1, Err(Wrong::SubscriptionsWithoutConsumer)),
            (Role::Security, None, 0, Ok(())),
            (Role::Security, acme(), 0, Ok(())),
            (Role::Operator, acme(), 1, Err(Wrong::SubscriptionsWithoutConsumer)),
            (Role::Viewer, acme(), 0, Ok(())),
            (Role::Viewer, None, 101, Err(Wrong::SubscriptionsWithoutConsumer)),
            (Role::Consumer, None, 0, Err(Wrong::NoSubscriptions)),
            (Role::Consumer, None, 100, Ok(())),
            (Role::Consumer, acme(), 1, Ok(())),
            (Role::Consumer, acme(), 101, Err(Wrong::TooManySubscriptions)),
        ];
        for (role, tenant, count, expected) in rows {
            let grant = Grant { role, tenant, subscriptions: subscriptions(count) };
            assert_eq!(grant.check(), expected, "{grant:?}");
        }
    }

    #[test]
    fn a_role_has_one_name_everywhere() {
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.name()), Some(role));
            assert_eq!(serde_json::to_value(role).expect("text"), role.name());
        }
        for bad in ["admin", "Platform-Admin", "platform_admin", ""] {
            assert_eq!(bad.parse::<Role>(), Err(UnknownRole), "{bad}");
        }
    }
}
