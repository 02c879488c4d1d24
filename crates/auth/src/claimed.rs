//! What a token grants by itself, and what becomes of that when names change hands.

use portero_types::{SubscriptionId, TenantId, Timestamp};

use crate::{Grant, Role};

/// A grant by claim. It uses names, and a name may have another holder than when the token was issued: a tenant that was erased,
/// and one that was created under its name for somebody else. So it counts only by way of [`Self::current`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// As the token says it.
    pub grant: Grant,
    /// The token's `iat`, in whole seconds; `None` when it has none.
    pub issued_at: Option<Timestamp>,
}

impl Claimed {
    /// What of it is about those who have the names now, by when each name was last given up. A token that was issued before that,
    /// or does not say when it was issued, grants nothing under that name, whether somebody has it again or not: so the answer
    /// does not tell who is there. A name that nobody gave up yet may be named before anybody has it.
    #[must_use]
    pub fn current(
        &self,
        tenant_freed_at: impl Fn(&TenantId) -> Option<Timestamp>,
        subscription_freed_at: impl Fn(&SubscriptionId) -> Option<Timestamp>,
    ) -> Option<Grant> {
        if self.grant.tenant.as_ref().is_some_and(|tenant| self.is_before(tenant_freed_at(tenant))) {
            return None;
        }
        let mut grant = self.grant.clone();
        grant.subscriptions.retain(|id| !self.is_before(subscription_freed_at(id)));
        let is_of_nothing = grant.role == Role::Consumer && grant.subscriptions.is_empty();
        (!is_of_nothing).then_some(grant)
    }

    /// `iat` is cut to seconds, so a token of the very second of the deletion counts as older.
    fn is_before(&self, freed_at: Option<Timestamp>) -> bool {
        freed_at.is_some_and(|freed| self.issued_at.is_none_or(|issued| issued <= freed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUED: i64 = 1_000;

    fn acme() -> TenantId {
        TenantId::new("acme").expect("valid")
    }

    fn named(id: &str) -> SubscriptionId {
        SubscriptionId::new(id).expect("valid")
    }

    fn claimed(grant: Grant) -> Claimed {
        Claimed { grant, issued_at: Some(Timestamp::from_secs(ISSUED)) }
    }

    /// What is left when acme and billing were given up at these moments, in seconds.
    fn left(claimed: &Claimed, tenant: Option<i64>, subscription: Option<i64>) -> Option<Grant> {
        claimed.current(
            |id| tenant.filter(|_| *id == acme()).map(Timestamp::from_secs),
            |id| subscription.filter(|_| *id == named("billing")).map(Timestamp::from_secs),
        )
    }

    #[test]
    fn a_grant_by_name_counts_unless_the_name_was_given_up_since() {
        let admin = claimed(Grant::tenant_admin(acme()));
        let viewer = claimed(Grant::of(Role::Viewer, Some(acme())));
        let consumer = claimed(Grant::consumer(vec![named("billing")]));
        for (it, tenant, subscription, counts) in [
            (&admin, None, None, true),
            (&admin, Some(ISSUED - 1), None, true),
            (&admin, Some(ISSUED), None, false),
            (&admin, Some(ISSUED + 1), None, false),
            (&admin, None, Some(ISSUED + 1), true),
            (&viewer, Some(ISSUED + 1), None, false),
            (&consumer, Some(ISSUED + 1), None, true),
            (&consumer, None, Some(ISSUED - 1), true),
            (&consumer, None, Some(ISSUED), false),
        ] {
            let expected = counts.then(|| it.grant.clone());
            assert_eq!(left(it, tenant, subscription), expected, "{it:?} {tenant:?} {subscription:?}");
        }
    }

    #[test]
    fn a_token_that_does_not_say_when_it_was_issued_counts_while_no_name_was_given_up() {
        let undated = Claimed { grant: Grant::tenant_admin(acme()), issued_at: None };
        assert_eq!(left(&undated, None, None), Some(undated.grant.clone()));
        assert_eq!(left(&undated, Some(1), None), None);
    }

    #[test]
    fn of_several_subscriptions_those_go_whose_names_were_given_up() {
        let both = claimed(Grant::consumer(vec![named("billing"), named("audit")]));
        assert_eq!(left(&both, None, Some(ISSUED)), Some(Grant::consumer(vec![named("audit")])));
    }

    #[test]
    fn a_grant_of_the_whole_installation_names_nobody() {
        for grant in [Grant::platform_admin(), Grant::of(Role::Security, None)] {
            assert_eq!(left(&claimed(grant.clone()), Some(ISSUED), Some(ISSUED)), Some(grant));
        }
    }
}
