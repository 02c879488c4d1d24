//! A verified caller.

use portero_types::{SubscriptionId, TenantId, Timestamp};

/// Longest `sub` claim, bytes of UTF-8.
pub const SUBJECT_BYTES_MAX: usize = 256;
/// Most subscriptions in one grant.
pub const SUBSCRIPTIONS_PER_GRANT_MAX: usize = 100;

/// What a caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Manages tenants, sources, secrets and subscriptions: of the whole platform, or of one tenant. Reads no payload.
    Admin,
    /// Receives and settles the events of named subscriptions. Manages nothing.
    Consumer,
}

/// What a caller may do. In a token it is the claim `portero`: `{"role": "admin"}`, `{"role": "admin", "tenant": "acme"}`,
/// `{"role": "consumer", "subscriptions": ["billing"]}`. An unknown field refuses the grant.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// What the caller is.
    pub role: Role,
    /// Only this tenant; `None` is the whole platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// A consumer's subscriptions: 1 to [`SUBSCRIPTIONS_PER_GRANT_MAX`]. Empty for an admin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionId>,
}

/// Why a grant makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGrant {
    /// A consumer without subscriptions.
    #[error("a consumer's grant must name at least one subscription")]
    NoSubscriptions,
    /// Too many subscriptions.
    #[error("a grant names at most {SUBSCRIPTIONS_PER_GRANT_MAX} subscriptions")]
    TooManySubscriptions,
    /// An admin with subscriptions: it could not use them.
    #[error("an admin's grant names no subscriptions: only a consumer receives events")]
    AdminWithSubscriptions,
}

impl Grant {
    /// An admin of the whole platform.
    #[must_use]
    pub const fn platform_admin() -> Self {
        Self { role: Role::Admin, tenant: None, subscriptions: Vec::new() }
    }

    /// An admin of one tenant.
    #[must_use]
    pub const fn tenant_admin(tenant: TenantId) -> Self {
        Self { role: Role::Admin, tenant: Some(tenant), subscriptions: Vec::new() }
    }

    /// A consumer of these subscriptions.
    #[must_use]
    pub const fn consumer(subscriptions: Vec<SubscriptionId>) -> Self {
        Self { role: Role::Consumer, tenant: None, subscriptions }
    }

    /// Whether the parts fit together.
    ///
    /// # Errors
    /// [`InvalidGrant`] says which part does not.
    pub fn check(&self) -> Result<(), InvalidGrant> {
        match (self.role, self.subscriptions.len()) {
            (Role::Admin, 0) => Ok(()),
            (Role::Admin, _) => Err(InvalidGrant::AdminWithSubscriptions),
            (Role::Consumer, 0) => Err(InvalidGrant::NoSubscriptions),
            (Role::Consumer, n) if n > SUBSCRIPTIONS_PER_GRANT_MAX => Err(InvalidGrant::TooManySubscriptions),
            (Role::Consumer, _) => Ok(()),
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
    /// What the caller is.
    pub role: Role,
    /// Only this tenant; `None` is the whole platform.
    pub tenant: Option<TenantId>,
    /// A consumer's subscriptions.
    pub subscriptions: Vec<SubscriptionId>,
    /// When the token ends. A stream that lives longer is ended then.
    pub expires_at: Timestamp,
}
