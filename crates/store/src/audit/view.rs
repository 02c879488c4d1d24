//! Resources as the audit log shows them: JSON with fields in a fixed order, without what only its owner may know.
//!
//! A secret's value is never in it, nor that of a secret setting, of which it says when it was given. Nor is an ingest key: whoever
//! knows that can send requests. The URLs of a source may hold one, so of each only the origin and a digest are kept, which tell
//! whether it changed.

use std::collections::BTreeMap;

use portero_types::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::VIEW_BYTES_MAX;
use crate::{Grant, Limits, Secret, Source, Subscription, Tenant};

/// A tenant.
#[must_use]
pub fn tenant(tenant: &Tenant) -> String {
    #[derive(Serialize)]
    struct View<'a> {
        display_name: &'a str,
        limits: LimitsView,
    }
    json(&View { display_name: &tenant.display_name, limits: tenant.limits.into() })
}

/// How much a tenant or a source may send; what is `null` is as the gateways' settings say.
#[derive(Serialize)]
struct LimitsView {
    events_per_second: Option<u32>,
    burst: Option<u32>,
    bytes_per_second: Option<u64>,
}

impl From<Limits> for LimitsView {
    fn from(limits: Limits) -> Self {
        let Limits { events_per_second, burst, bytes_per_second } = limits;
        Self { events_per_second, burst, bytes_per_second }
    }
}

/// A source.
#[must_use]
pub fn source(source: &Source) -> String {
    #[derive(Serialize)]
    struct View<'a> {
        provider: &'a str,
        preset: &'a str,
        recipe: &'a str,
        public_urls: Vec<String>,
        settings: &'a BTreeMap<String, String>,
        secret_settings_given_at: BTreeMap<&'a str, i64>,
        secret_expected_until: Option<i64>,
        limits: LimitsView,
    }
    json(&View {
        provider: source.provider.as_str(),
        preset: &source.preset,
        recipe: &source.recipe,
        public_urls: source.public_urls.iter().map(|url| shortened(url)).collect(),
        settings: &source.settings,
        secret_settings_given_at: (source.sealed_settings.0.iter())
            .map(|(name, setting)| (name.as_str(), setting.given_at.as_micros()))
            .collect(),
        secret_expected_until: source.secret_expected_until.map(Timestamp::as_micros),
        limits: source.limits.into(),
    })
}

/// A secret, without its value, sealed or not.
#[must_use]
pub fn secret(secret: &Secret) -> String {
    #[derive(Serialize)]
    struct View {
        not_before: i64,
        not_after: Option<i64>,
        revoked_at: Option<i64>,
        unseen: bool,
    }
    json(&View {
        not_before: secret.not_before.as_micros(),
        not_after: secret.not_after.map(Timestamp::as_micros),
        revoked_at: secret.revoked_at.map(Timestamp::as_micros),
        unseen: secret.unseen,
    })
}

/// A subscription.
#[must_use]
pub fn subscription(subscription: &Subscription) -> String {
    #[derive(Serialize)]
    struct View<'a> {
        tenant: Option<&'a str>,
        sources: Vec<&'a str>,
        event_types: &'a [String],
        lanes: u16,
        attempts_max: u32,
        defer_deadline_ms: u64,
        dead_letter_policy: &'static str,
        starts_after: &'a [u64],
    }
    json(&View {
        tenant: subscription.tenant.as_ref().map(|tenant| tenant.as_str()),
        sources: subscription.sources.iter().map(|source| source.as_str()).collect(),
        event_types: &subscription.event_types,
        lanes: subscription.lanes.get(),
        attempts_max: subscription.attempts_max,
        defer_deadline_ms: subscription.defer_deadline_ms,
        dead_letter_policy: subscription.dead_letter_policy.name(),
        starts_after: &subscription.starts_after,
    })
}

/// A grant.
#[must_use]
pub fn grant(grant: &Grant) -> String {
    #[derive(Serialize)]
    struct View<'a> {
        issuer: &'a str,
        subject: &'a str,
        role: &'a str,
        tenant: Option<&'a str>,
        subscriptions: Vec<&'a str>,
    }
    json(&View {
        issuer: &grant.issuer,
        subject: &grant.subject,
        role: &grant.role,
        tenant: grant.tenant.as_ref().map(|tenant| tenant.as_str()),
        subscriptions: grant.subscriptions.iter().map(|id| id.as_str()).collect(),
    })
}

/// A view within [`VIEW_BYTES_MAX`]: a longer one is replaced by its length and digest.
pub(super) fn bounded(view: String) -> String {
    #[derive(Serialize)]
    struct Digest {
        bytes: usize,
        sha256: String,
    }
    if view.len() <= VIEW_BYTES_MAX {
        return view;
    }
    json(&Digest { bytes: view.len(), sha256: hex(&Sha256::digest(view.as_bytes())) })
}

fn json(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("texts and numbers can be written as JSON")
}

/// `https://hooks.example.com/… (sha256 1f2e3d4c5b6a7988)`: the origin, and enough of a digest to see a change.
fn shortened(url: &str) -> String {
    let digest = hex(&Sha256::digest(url.as_bytes())[..8]);
    let origin = url.split_once("://").map(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        format!("{scheme}://{host}/")
    });
    format!("{}… (sha256 {digest})", origin.unwrap_or_default())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_only_its_origin_and_a_digest_are_kept() {
        let shown = shortened("https://user:word@hooks.example.com:8443/in/ik_5b2f?token=abc");
        assert!(shown.starts_with("https://hooks.example.com:8443/… (sha256 "), "{shown}");
        for hidden in ["user", "word", "ik_5b2f", "token", "abc"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
        assert_ne!(shortened("https://a.example/in/1"), shortened("https://a.example/in/2"));
        assert!(shortened("no url at all").starts_with("… (sha256 "));
    }

    #[test]
    fn a_view_beyond_its_bound_becomes_a_digest() {
        let short = "{}".to_owned();
        assert_eq!(bounded(short.clone()), short);
        let digest = bounded("x".repeat(VIEW_BYTES_MAX + 1));
        assert!(digest.starts_with("{\"bytes\":262145,\"sha256\":\"") && digest.len() < 128, "{digest}");
    }
}
