//! Metric names of this crate, their help texts and their bounded labels.

use metrics::{counter, describe_counter};

const TOKENS: &str = "portero_auth_tokens_total";
const REFRESHES: &str = "portero_auth_key_refreshes_total";

/// Registers the help texts. Call once, after the recorder is installed.
pub fn describe() {
    describe_counter!(TOKENS, "Tokens checked, by outcome: ok, or the reason code of the refusal.");
    describe_counter!(REFRESHES, "Readings of issuers' keys, by outcome.");
}

/// Counts a checked token. `outcome` is `ok` or a code of [`crate::Reason`].
pub(crate) fn token(outcome: &'static str) {
    counter!(TOKENS, "outcome" => outcome).increment(1);
}

/// Counts a reading of keys. `outcome` is `ok` or a code of the failure.
pub(crate) fn refresh(outcome: &'static str) {
    counter!(REFRESHES, "outcome" => outcome).increment(1);
}
