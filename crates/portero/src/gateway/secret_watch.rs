//! Watches secrets that end soon although the provider still signs with them, and forgets old counts of uses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Unit, describe_gauge, gauge};
use portero_store::{Day, DynStore, RetiringInUse, USE_DAYS_KEPT};
use portero_types::{Clock, Timestamp};
use tokio::time::MissedTickBehavior;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(60);
/// A secret that ends within this time ends soon.
const SOON: Duration = Duration::from_hours(24);
/// A secret that verified something within this time is in use.
const IN_USE: Duration = Duration::from_hours(1);
/// How often the same secret is told.
const TELL_EVERY: Duration = Duration::from_hours(1);
/// Most secrets that are looked at and counted.
const SECRETS_MAX: u32 = 1_000;
/// Most that are told by name at one time.
const TOLD_MAX: usize = 20;

const RETIRING_IN_USE: &str = "portero_secrets_retiring_in_use";

/// Says what is counted here.
pub(super) fn describe() {
    describe_gauge!(
        RETIRING_IN_USE,
        Unit::Count,
        "Secrets that end within 24 hours and verified something within the last hour (at most 1,000 are counted)"
    );
}

/// Runs until it is dropped.
pub(super) async fn run(store: DynStore, clock: Arc<dyn Clock>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = Told::default();
    let mut swept = None;
    loop {
        ticks.tick().await;
        let now = clock.now();
        match store.retiring_in_use(now, now.plus(SOON), now.minus(IN_USE), SECRETS_MAX).await {
            Ok(found) => {
                gauge!(RETIRING_IN_USE).set(f64::from(u32::try_from(found.len()).unwrap_or(u32::MAX)));
                told.due(found, now).iter().for_each(tell);
            }
            Err(error) => tracing::debug!(%error, "secrets that end soon cannot be looked up now"),
        }
        let day = Day::of(now);
        if swept != Some(day) {
            match store.sweep_secret_uses(Day(day.0.saturating_sub(USE_DAYS_KEPT))).await {
                Ok(()) => swept = Some(day),
                Err(error) => tracing::debug!(%error, "old uses of secrets cannot be forgotten now"),
            }
        }
    }
}

fn tell(secret: &RetiringInUse) {
    tracing::warn!(
        tenant.id = %secret.tenant, source.id = %secret.source, secret.id = %secret.secret,
        not_after_ms = secret.not_after.as_micros() / 1_000, last_use_ms = secret.last_used_at.as_micros() / 1_000,
        "a secret ends within a day and its provider still signs with it: switch the provider over, or let it end later"
    );
}

/// When each secret was told last.
#[derive(Default)]
struct Told(HashMap<(String, String, String), Timestamp>);

impl Told {
    /// Those that are to be told now.
    fn due(&mut self, found: Vec<RetiringInUse>, now: Timestamp) -> Vec<RetiringInUse> {
        self.0.retain(|_, at| now.since(*at) < TELL_EVERY);
        let mut due = Vec::new();
        for secret in found {
            let key = (secret.tenant.to_string(), secret.source.to_string(), secret.secret.to_string());
            if due.len() < TOLD_MAX && !self.0.contains_key(&key) {
                self.0.insert(key, now);
                due.push(secret);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use portero_types::{SecretId, SourceId, TenantId};

    use super::*;

    fn found(id: &str) -> RetiringInUse {
        RetiringInUse {
            tenant: TenantId::new("acme").expect("valid"),
            source: SourceId::new("pay").expect("valid"),
            secret: SecretId::new(id).expect("valid"),
            not_after: Timestamp::from_secs(9_000),
            last_used_at: Timestamp::EPOCH,
        }
    }

    #[test]
    fn a_secret_is_told_once_an_hour() {
        let at = Timestamp::from_secs;
        let mut told = Told::default();
        assert_eq!(told.due(vec![found("a"), found("b")], at(0)).len(), 2);
        assert_eq!(told.due(vec![found("a"), found("c")], at(60)), [found("c")]);
        assert_eq!(told.due(vec![found("a"), found("c")], at(3_600)), [found("a")]);
    }

    #[test]
    fn many_at_once_are_told_bit_by_bit() {
        let many = || (0..50).map(|n| found(&format!("s{n}"))).collect::<Vec<_>>();
        let mut told = Told::default();
        let counts = [0, 60, 120, 180].map(|secs| told.due(many(), Timestamp::from_secs(secs)).len());
        assert_eq!(counts, [20, 20, 10, 0]);
    }
}
