//! A secret as it is shown.

use portero_client::v1;
use serde::Serialize;

use super::name;
use crate::commands::present::{self, Record};

/// A secret as it is shown.
#[derive(Serialize)]
pub(super) struct Secret {
    name: String,
    tenant: String,
    source: String,
    secret: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    state: &'static str,
    unseen: bool,
    not_before: Option<String>,
    not_after: Option<String>,
    revoke_time: Option<String>,
    create_time: Option<String>,
    first_use_time: Option<String>,
    last_use_time: Option<String>,
    uses: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    days: Vec<Day>,
    safe_to_retire: bool,
    safe_to_retire_reason: String,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Day {
    date: String,
    uses: u64,
}

impl Secret {
    /// With its value, which is shown once.
    pub(super) fn with_value(mut answer: v1::Secret) -> Self {
        let value = Some(std::mem::take(&mut answer.value)).filter(|value| !value.is_empty());
        Self { value, ..Self::from(answer) }
    }

    pub(super) fn id(&self) -> &str {
        &self.secret
    }

    pub(super) fn end(&self) -> &str {
        self.not_after.as_deref().unwrap_or("its end is set")
    }

    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl From<v1::Secret> for Secret {
    fn from(secret: v1::Secret) -> Self {
        let safe = secret.safe_to_retire.clone().unwrap_or_default();
        Self {
            tenant: name::id(&secret.name, 0),
            source: name::id(&secret.name, 1),
            secret: name::id(&secret.name, 2),
            value: None,
            state: match secret.state() {
                v1::SecretState::Planned => "planned",
                v1::SecretState::Active => "active",
                v1::SecretState::Retiring => "retiring",
                v1::SecretState::Retired => "retired",
                v1::SecretState::Revoked => "revoked",
                v1::SecretState::Unspecified => "unknown",
            },
            unseen: secret.unseen,
            not_before: present::time(secret.not_before.as_ref()),
            not_after: present::time(secret.not_after.as_ref()),
            revoke_time: present::time(secret.revoke_time.as_ref()),
            create_time: present::time(secret.create_time.as_ref()),
            first_use_time: present::time(secret.first_use_time.as_ref()),
            last_use_time: present::time(secret.last_use_time.as_ref()),
            uses: secret.uses,
            days: secret.days.into_iter().map(|day| Day { date: day.date, uses: day.uses }).collect(),
            safe_to_retire: safe.safe,
            safe_to_retire_reason: safe.reason,
            warnings: secret.warnings,
            name: secret.name,
        }
    }
}

impl Record for Secret {
    const COLUMNS: &'static [&'static str] =
        &["SECRET", "STATE", "FROM", "UNTIL", "LAST USE", "USES", "SAFE TO RETIRE", "UNSEEN"];

    fn row(&self) -> Vec<String> {
        vec![
            self.secret.clone(),
            self.state.to_owned(),
            self.not_before.clone().unwrap_or_default(),
            self.not_after.clone().unwrap_or_default(),
            self.last_use_time.clone().unwrap_or_default(),
            self.uses.to_string(),
            if self.safe_to_retire { "yes" } else { "no" }.to_owned(),
            if self.unseen { "unseen" } else { "" }.to_owned(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![
            ("tenant", self.tenant.clone()),
            ("source", self.source.clone()),
            ("secret", self.secret.clone()),
            ("state", self.state.to_owned()),
            ("verifies from", self.not_before.clone().unwrap_or_default()),
            ("verifies until", self.not_after.clone().unwrap_or_default()),
            ("created", self.create_time.clone().unwrap_or_default()),
            ("first use", self.first_use_time.clone().unwrap_or_default()),
            ("last use", self.last_use_time.clone().unwrap_or_default()),
            ("uses", self.uses.to_string()),
        ];
        details.extend(self.revoke_time.clone().map(|at| ("revoked", at)));
        let safe = if self.safe_to_retire { "yes" } else { "no" };
        details.push(("safe to retire", format!("{safe}: {}", self.safe_to_retire_reason)));
        // The last week; all of them are in the JSON.
        details.extend(
            self.days.iter().rev().take(7).map(|day| ("uses on", format!("{}  {}", day.date, day.uses))),
        );
        if self.unseen {
            let how = "`portero secret reveal` shows the value that a handshake brought, once";
            details.push(("unseen", how.to_owned()));
        }
        details.extend(self.value.clone().map(|value| ("value", value)));
        details
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> v1::Secret {
        v1::Secret {
            name: "tenants/acme/sources/pay/secrets/s1".to_owned(),
            value: "whsec_hush".to_owned(),
            state: v1::SecretState::Active.into(),
            uses: 7,
            days: (1..=9).map(|n| v1::SecretDay { date: format!("2026-03-{n:02}"), uses: n }).collect(),
            safe_to_retire: Some(v1::SafeToRetire { safe: true, reason: "it is quiet".to_owned() }),
            ..v1::Secret::default()
        }
    }

    #[test]
    fn the_value_is_shown_only_where_it_was_asked_for() {
        let json = serde_json::to_string(&Secret::from(answer())).expect("serialises");
        assert!(json.contains(r#""state":"active""#) && !json.contains("hush"), "{json}");
        let secret = Secret::with_value(answer());
        assert!(secret.details().iter().any(|(name, value)| *name == "value" && value == "whsec_hush"));
        assert!(!secret.row().join(" ").contains("hush"), "never in a list");
        assert_eq!(secret.row().len(), Secret::COLUMNS.len());
        let unseen = Secret::from(v1::Secret { unseen: true, ..answer() });
        assert_eq!(unseen.row().last().map(String::as_str), Some("unseen"));
        assert!(
            unseen.details().iter().any(|(name, how)| *name == "unseen" && how.contains("secret reveal"))
        );
    }

    #[test]
    fn the_last_week_of_uses_and_the_judgement_are_shown() {
        let details = Secret::from(answer()).details();
        assert!(details.contains(&("safe to retire", "yes: it is quiet".to_owned())), "{details:?}");
        let days: Vec<_> = details.iter().filter(|(name, _)| *name == "uses on").collect();
        assert_eq!((days.len(), days[0].1.as_str()), (7, "2026-03-09  9"));
    }
}
