//! Secrets as they are shown: with their state, their uses and what these tell.

use std::time::Duration;

use portero_directory::Unreadable;
use portero_proto::v1;
use portero_recipe::Recipe;
use portero_store::{Day, Secret, SecretState, SecretUsage};
use portero_types::{SourceId, TenantId, Timestamp};
use tonic::Status;

use super::Admin;
use super::retirement::{Used, safe_to_retire, warnings};
use crate::error::from_store;
use crate::time;

/// For how long the provider sends an event again, where the recipe does not say it: most stop sooner.
pub(super) const REDELIVERY_UNKNOWN: Duration = Duration::from_hours(72);
/// How long the others go on at least when a secret is rotated and nobody says it: people and providers need time to change
/// over, however soon the provider gives up sending again.
const OVERLAP_MIN: Duration = Duration::from_hours(24);
/// Most secrets of one source that are looked at together.
pub(super) const SECRETS_MAX: u32 = 1_000;

/// All secrets of a source and how they were used.
pub(super) struct Secrets {
    tenant: TenantId,
    source: SourceId,
    secrets: Vec<Secret>,
    usage: Vec<SecretUsage>,
    unreadable: Vec<Unreadable>,
    redelivery: Duration,
    now: Timestamp,
}

impl Admin {
    /// A source's secrets. `recipe` is missing when this version cannot use it.
    pub(super) async fn secrets_of(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        recipe: Option<&Recipe>,
    ) -> Result<Secrets, Status> {
        let page = self.store.secrets(tenant, source, None, SECRETS_MAX).await;
        let secrets = page.map_err(|error| from_store(&error))?.items;
        let numbers: Vec<_> = secrets.iter().map(|secret| secret.no).collect();
        let usage = if numbers.is_empty() {
            Vec::new()
        } else {
            self.store.secret_usage(&numbers).await.map_err(|error| from_store(&error))?
        };
        let snapshot = self.directory.snapshot();
        let known = snapshot.sources_named(source).find(|known| known.tenant == *tenant);
        Ok(Secrets {
            tenant: tenant.clone(),
            source: source.clone(),
            secrets,
            usage,
            unreadable: known.map(|known| known.unreadable().to_vec()).unwrap_or_default(),
            redelivery: redelivery(recipe),
            now: self.now(),
        })
    }
}

/// For how long the provider sends an event again.
fn redelivery(recipe: Option<&Recipe>) -> Duration {
    recipe.and_then(|recipe| recipe.info().redelivery).unwrap_or(REDELIVERY_UNKNOWN)
}

/// How long the others go on when a secret is rotated.
pub(super) fn overlap(recipe: &Recipe) -> Duration {
    redelivery(Some(recipe)).max(OVERLAP_MIN)
}

impl Secrets {
    /// One of them in full, by its present row.
    pub(super) fn show(&self, secret: &Secret) -> v1::Secret {
        let mut shown = self.brief(secret);
        shown.days = self.usage(secret).map_or_else(Vec::new, |usage| usage.days.iter().map(day).collect());
        shown
    }

    /// One of them without its uses by day.
    pub(super) fn brief(&self, secret: &Secret) -> v1::Secret {
        let usage = self.usage(secret);
        let (of, others) = (self.used(secret), self.others(secret));
        v1::Secret {
            first_use_time: usage.map(|usage| time::to_proto(usage.first_used_at)),
            last_use_time: usage.map(|usage| time::to_proto(usage.last_used_at)),
            uses: usage.map_or(0, |usage| usage.uses),
            safe_to_retire: Some(safe_to_retire(&of, &others, self.redelivery, self.now)),
            warnings: warnings(&of, &others, self.now),
            ..to_proto(&self.tenant, &self.source, secret, self.now)
        }
    }

    /// Those that verify and have an end.
    pub(super) fn retiring(&self) -> Vec<v1::Secret> {
        let is_retiring = |secret: &&Secret| secret.state(self.now) == SecretState::Retiring;
        self.secrets.iter().filter(is_retiring).map(|secret| self.brief(secret)).collect()
    }

    /// What the source's owner should do.
    pub(super) fn warnings(&self) -> Vec<String> {
        let of = |secret| warnings(&self.used(secret), &self.others(secret), self.now);
        self.secrets.iter().flat_map(of).collect()
    }

    fn usage(&self, secret: &Secret) -> Option<&SecretUsage> {
        self.usage.iter().find(|usage| usage.secret_no == secret.no)
    }

    fn others(&self, of: &Secret) -> Vec<Used<'_>> {
        let others = self.secrets.iter().filter(|secret| secret.no != of.no);
        others.map(|secret| self.used(secret)).collect()
    }

    fn used<'a>(&'a self, secret: &'a Secret) -> Used<'a> {
        let unreadable = self.unreadable.iter().find(|unreadable| unreadable.no == secret.no);
        Used { secret, usage: self.usage(secret), fault: unreadable.map(|unreadable| unreadable.fault) }
    }
}

fn day((day, uses): &(Day, u64)) -> v1::SecretDay {
    v1::SecretDay { date: date(*day), uses: *uses }
}

/// The day as ISO 8601 writes it.
fn date(day: Day) -> String {
    // Days from 0000-03-01 on, in eras of 400 years: leap days come last in them.
    let days = i64::from(day.0) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_based = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_based + 2) / 5 + 1;
    let month = if march_based < 10 { march_based + 3 } else { march_based - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A secret by its row alone.
pub(super) fn to_proto(tenant: &TenantId, source: &SourceId, secret: &Secret, now: Timestamp) -> v1::Secret {
    let state = match secret.state(now) {
        SecretState::Planned => v1::SecretState::Planned,
        SecretState::Active => v1::SecretState::Active,
        SecretState::Retiring => v1::SecretState::Retiring,
        SecretState::Retired => v1::SecretState::Retired,
        SecretState::Revoked => v1::SecretState::Revoked,
    };
    v1::Secret {
        name: format!("tenants/{tenant}/sources/{source}/secrets/{}", secret.id),
        state: state.into(),
        not_before: Some(time::to_proto(secret.not_before)),
        not_after: secret.not_after.map(time::to_proto),
        create_time: Some(time::to_proto(secret.created_at)),
        unseen: secret.unseen,
        revoke_time: secret.revoked_at.map(time::to_proto),
        ..v1::Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_as_dates() {
        for (day, wanted) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_782, "2024-02-29"),
            (20_513, "2026-03-01"),
        ] {
            assert_eq!(date(Day(day)), wanted);
        }
    }
}
