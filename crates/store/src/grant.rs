//! Grants: what callers may do, by who vouches for them and who they are.

use portero_types::{GrantId, GrantNo, SubscriptionId, TenantId, Timestamp};

use crate::{Error, ErrorKind};

/// Longest issuer of a grant, bytes of UTF-8.
pub const GRANT_ISSUER_BYTES_MAX: usize = 1024;
/// Longest subject of a grant, bytes of UTF-8.
pub const GRANT_SUBJECT_BYTES_MAX: usize = 256;
/// Most subscriptions of a grant.
pub const GRANT_SUBSCRIPTIONS_MAX: usize = 100;
/// Most grants that are bound to no tenant. Every gateway holds all grants in memory.
pub const GRANTS_OF_PLATFORM_MAX: u64 = 10_000;
/// Most grants that are bound to one tenant. What others have takes nothing from it.
pub const GRANTS_PER_TENANT_MAX: u64 = 1_000;

/// What a caller may do, kept in the store. What its role allows is the permission table's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Row number.
    pub no: GrantNo,
    /// Name.
    pub id: GrantId,
    /// The issuer that vouches for the subject, exactly.
    pub issuer: String,
    /// The subject: exactly, or what it begins with when the last character is `*`.
    pub subject: String,
    /// The role's name.
    pub role: String,
    /// Only this tenant; `None` is the whole platform.
    pub tenant: Option<TenantId>,
    /// A consumer's subscriptions, in the order of names. Those deleted since are gone from it.
    pub subscriptions: Vec<SubscriptionId>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A grant to be created.
#[derive(Clone, Debug)]
pub struct NewGrant {
    /// Name.
    pub id: GrantId,
    /// See [`Grant::issuer`]. 1 to [`GRANT_ISSUER_BYTES_MAX`] bytes.
    pub issuer: String,
    /// See [`Grant::subject`]. 1 to [`GRANT_SUBJECT_BYTES_MAX`] bytes.
    pub subject: String,
    /// See [`Grant::role`].
    pub role: String,
    /// See [`Grant::tenant`].
    pub tenant: Option<TenantId>,
    /// See [`Grant::subscriptions`]. At most [`GRANT_SUBSCRIPTIONS_MAX`]; one given twice counts once.
    pub subscriptions: Vec<SubscriptionId>,
    /// Now.
    pub created_at: Timestamp,
}

impl NewGrant {
    /// Whether there is room for it beside so many that are bound to its tenant, or to none as it is. Implementations ask within
    /// the transaction that writes it.
    ///
    /// # Errors
    /// `Exhausted` says which bound is reached, and what to do.
    pub fn check_room(&self, kept: u64) -> crate::Result<()> {
        let (whose, max) = match &self.tenant {
            Some(tenant) => (format!("the tenant {tenant}"), GRANTS_PER_TENANT_MAX),
            None => ("the platform".to_owned(), GRANTS_OF_PLATFORM_MAX),
        };
        if kept < max {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Exhausted,
            format!(
                "{whose} has {max} grants, the most that it can have: delete those that nobody needs, or make one to a prefix \
                 (a subject that ends with '*') of many"
            ),
        ))
    }

    /// Whether every store keeps it. Implementations ask before they write.
    ///
    /// # Errors
    /// `Refused` when a bound is broken.
    pub fn check(&self) -> crate::Result<()> {
        let refused = |what: String| Err(Error::new(ErrorKind::Refused, what));
        let texts = [
            ("issuer", &self.issuer, GRANT_ISSUER_BYTES_MAX),
            ("subject", &self.subject, GRANT_SUBJECT_BYTES_MAX),
        ];
        for (name, text, max) in texts {
            if text.is_empty() || text.len() > max || text.chars().any(char::is_control) {
                return refused(format!(
                    "a grant's {name} must have 1 to {max} bytes, without control characters"
                ));
            }
        }
        if self.subscriptions.len() > GRANT_SUBSCRIPTIONS_MAX {
            return refused(format!("a grant names at most {GRANT_SUBSCRIPTIONS_MAX} subscriptions"));
        }
        Ok(())
    }
}
