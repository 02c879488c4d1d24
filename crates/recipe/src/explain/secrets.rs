//! The source's secrets: which are active, which fit, which match.

use portero_types::Timestamp;
use portero_types::limits::ACTIVE_SECRETS_MAX;

use super::steps::{Steps, count};
use super::{Outcome, is_good};
use crate::verify::newest_first;
use crate::{Reason, Recipe, Request, Secret, verify};

/// Says how many there are in each state.
pub(super) fn describe(scheme: usize, secrets: &[Secret], now: Timestamp, steps: &mut Steps) {
    let states = |wanted: &str| secrets.iter().filter(|secret| state(secret, now) == wanted).count();
    let (active, planned, ended) = (states("active"), states("planned"), states("ended"));
    let mut text = format!("{active} active, {planned} planned, {ended} ended");
    let revoked = states("revoked");
    if revoked > 0 {
        text += &format!(", {revoked} revoked");
    }
    let unreadable = secrets.iter().filter(|secret| secret.is_active(now) && !secret.is_readable()).count();
    let fitting =
        secrets.iter().filter(|secret| secret.is_active(now) && !secret.keys(scheme).is_empty()).count();
    if active == 0 {
        steps.failed("secrets", text);
    } else if unreadable > 0 {
        let text = format!("{text}; {unreadable} of the active ones cannot be read");
        if fitting == 0 { steps.failed("secrets", text) } else { steps.noted("secrets", text) }
    } else if fitting == 0 {
        steps.failed("secrets", format!("{text}; none has the form that this way of signing needs"));
    } else if fitting > ACTIVE_SECRETS_MAX {
        steps.noted("secrets", format!("{text}; only the newest {ACTIVE_SECRETS_MAX} are tried"));
    } else {
        steps.passed("secrets", text);
    }
}

/// Tries each secret alone.
pub(super) fn compare(
    recipe: &Recipe,
    scheme: usize,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
    steps: &mut Steps,
) {
    let mut tried = 0;
    let is_accepted = verify(recipe, request, secrets, now).is_ok();
    let mut secrets: Vec<&Secret> = secrets.iter().collect();
    secrets.sort_by_key(|secret| newest_first(secret));
    for secret in secrets {
        let state = state(secret, now);
        let (outcome, detail) = if state != "active" {
            let alone = verify(recipe, request, std::slice::from_ref(secret), now);
            match alone.map_err(|rejection| rejection.reason()) {
                Err(Reason::SecretRevoked | Reason::SecretRetired | Reason::SecretPlanned) => {
                    (Outcome::Failed, format!("{state}: its key matches, but it does not count"))
                }
                _ => (Outcome::Noted, format!("{state}: it does not count")),
            }
        } else if !secret.is_readable() {
            let outcome = if is_accepted { Outcome::Noted } else { Outcome::Failed };
            (outcome, "active: it cannot be read, so nothing is compared with it".to_owned())
        } else if secret.keys(scheme).is_empty() {
            (Outcome::Noted, "active: not of the form that this way of signing needs".to_owned())
        } else if tried == ACTIVE_SECRETS_MAX {
            (Outcome::Noted, format!("active: not tried, {} come before it", count(tried, "secret")))
        } else {
            tried += 1;
            let alone = verify(recipe, request, std::slice::from_ref(secret), now);
            match alone {
                result if is_good(&result) => (Outcome::Passed, "active: its key matches".to_owned()),
                Err(rejection) if rejection.reason() == Reason::SignatureMismatch => {
                    let outcome = if is_accepted { Outcome::Noted } else { Outcome::Failed };
                    (outcome, "active: its key does not match".to_owned())
                }
                _ => (Outcome::Noted, "active: nothing to compare with".to_owned()),
            }
        };
        steps.of_secret(secret.no(), outcome, detail);
    }
}

fn state(secret: &Secret, now: Timestamp) -> &'static str {
    if secret.revoked_at().is_some() {
        "revoked"
    } else if secret.is_active(now) {
        "active"
    } else if now < secret.not_before() {
        "planned"
    } else {
        "ended"
    }
}
