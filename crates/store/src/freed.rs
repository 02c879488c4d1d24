//! Names that were given up. What was said of the former holder of a name must not count for the next one.

use portero_types::{SubscriptionId, TenantId, Timestamp};

/// A name that people and tokens use. Grants of the store name rows by number and need nothing of this.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// A tenant's.
    Tenant(TenantId),
    /// A subscription's.
    Subscription(SubscriptionId),
}

/// A name that a deleted or erased tenant, or a deleted subscription, had. There is one for each name that was ever given up, taken
/// again or not: such a row is smaller than the entry of the audit log that stays with it, and stays as long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreedName {
    /// The name.
    pub name: Name,
    /// When it was given up last. It never becomes earlier.
    pub at: Timestamp,
}

impl Name {
    /// What kind of name it is, as databases hold it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Subscription(_) => "subscription",
        }
    }

    /// The name itself.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Tenant(id) => id.as_str(),
            Self::Subscription(id) => id.as_str(),
        }
    }

    /// From what databases hold. `None` when that is neither.
    #[must_use]
    pub fn from_columns(kind: &str, text: &str) -> Option<Self> {
        match kind {
            "tenant" => TenantId::new(text).ok().map(Self::Tenant),
            "subscription" => SubscriptionId::new(text).ok().map(Self::Subscription),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_from_its_columns() {
        let tenant = Name::Tenant(TenantId::new("acme").expect("valid"));
        let subscription = Name::Subscription(SubscriptionId::new("acme").expect("valid"));
        for name in [&tenant, &subscription] {
            assert_eq!(Name::from_columns(name.kind(), name.text()).as_ref(), Some(name));
        }
        assert_eq!(Name::from_columns("source", "acme"), None);
        assert_eq!(Name::from_columns("tenant", "Not A Slug"), None);
    }
}
