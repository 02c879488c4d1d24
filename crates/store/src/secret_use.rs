//! How secrets are used: when first and last, and how often on which day. It says when an old one may end.

use async_trait::async_trait;
use portero_types::{SecretId, SecretNo, SourceId, TenantId, Timestamp};

/// For how many days the uses of a secret are kept by day.
pub const USE_DAYS_KEPT: i32 = 400;

/// A day of UTC: days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i32);

impl Day {
    /// The day of a moment.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self(i32::try_from(at.as_secs().div_euclid(86_400)).unwrap_or(i32::MAX))
    }

    /// When it begins.
    #[must_use]
    pub const fn begin(self) -> Timestamp {
        Timestamp::from_secs(self.0 as i64 * 86_400)
    }
}

/// Requests that one secret has verified on one day, as one gateway counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretUse {
    /// The secret.
    pub secret_no: SecretNo,
    /// The day of all of them.
    pub day: Day,
    /// How many; at least one.
    pub uses: u64,
    /// The first of them.
    pub first_at: Timestamp,
    /// The last of them.
    pub last_at: Timestamp,
}

/// How a secret was used. Counts of gateways that crashed may miss the last seconds before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUsage {
    /// The secret.
    pub secret_no: SecretNo,
    /// The first request that it verified.
    pub first_used_at: Timestamp,
    /// The last one.
    pub last_used_at: Timestamp,
    /// How many there were.
    pub uses: u64,
    /// How many on each day of the last [`USE_DAYS_KEPT`], oldest first; days without one are left out.
    pub days: Vec<(Day, u64)>,
}

/// A secret that ends soon although the provider still signs with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiringInUse {
    /// The tenant.
    pub tenant: TenantId,
    /// The source.
    pub source: SourceId,
    /// The secret.
    pub secret: SecretId,
    /// When it ends.
    pub not_after: Timestamp,
    /// The last request that it verified.
    pub last_used_at: Timestamp,
}

/// Counts what secrets verify. None of it is configuration: nothing here raises the revision.
#[async_trait]
pub trait SecretUseStore: Send + Sync + 'static {
    /// Adds to what is known. Secrets that are gone may be named.
    ///
    /// # Errors
    /// With `Unavailable` nothing was counted, with `OutcomeUnknown` all or nothing.
    async fn record_secret_uses(&self, uses: &[SecretUse]) -> crate::Result<()>;
    /// How each of these secrets was used, in the order of their numbers; those that never were are left out.
    async fn secret_usage(&self, secrets: &[SecretNo]) -> crate::Result<Vec<SecretUsage>>;
    /// Secrets that are neither revoked nor ended at `now`, end before `ends_before`, and have verified something since
    /// `used_since`; at most `limit`, those that end first. Spans tenants.
    async fn retiring_in_use(
        &self,
        now: Timestamp,
        ends_before: Timestamp,
        used_since: Timestamp,
        limit: u32,
    ) -> crate::Result<Vec<RetiringInUse>>;
    /// Forgets the counts of days before `day`, everything of secrets that were last used before it, and that those were
    /// revoked which were deleted or revoked before it and are gone: by then nothing that they verified is under way any more.
    async fn sweep_secret_uses(&self, day: Day) -> crate::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_utcs_and_begins_at_midnight() {
        let midnight = Timestamp::from_secs(1_750_032_000);
        assert_eq!(Day::of(midnight).begin(), midnight);
        assert_eq!(Day::of(Timestamp::from_micros(midnight.as_micros() - 1)).0, Day::of(midnight).0 - 1);
        assert_eq!(Day::of(Timestamp::from_secs(-1)), Day(-1));
    }
}
