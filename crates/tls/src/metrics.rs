//! Metric names of TLS, their help texts and their bounded labels.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use portero_types::Timestamp;

use crate::{Distrust, Purpose};

const HANDSHAKES: &str = "portero_tls_handshakes_total";
const EXPIRY: &str = "portero_tls_certificate_expiry_timestamp_seconds";
const LISTS_EXPIRY: &str = "portero_tls_revocation_list_expiry_timestamp_seconds";
const DISTRUSTED: &str = "portero_tls_distrusted_connections_total";
const RELOADS: &str = "portero_tls_reloads_total";
const FAILING: &str = "portero_tls_reload_failing";

/// Registers the help texts. Call once, after the recorder is installed.
pub fn describe() {
    describe_counter!(HANDSHAKES, "TLS handshakes, by listener and outcome.");
    describe_gauge!(EXPIRY, Unit::Seconds, "When the certificate in use ends, in Unix time, by listener.");
    describe_gauge!(
        LISTS_EXPIRY,
        Unit::Seconds,
        "When the first revocation list in use ends, in Unix time, by listener."
    );
    describe_counter!(
        DISTRUSTED,
        "Open connections that were asked to leave because their client is no longer trusted, by listener and reason."
    );
    describe_counter!(RELOADS, "New content of the TLS files, by listener and outcome.");
    describe_gauge!(FAILING, "1 while the TLS files hold what cannot be used, by listener.");
}

/// Counts a handshake. `outcome` is `done` or one of [`crate::Refused`]'s codes.
pub(crate) fn handshake(purpose: Purpose, outcome: &'static str) {
    counter!(HANDSHAKES, "listener" => purpose.name(), "outcome" => outcome).increment(1);
}

/// Sets when the certificate in use ends.
#[expect(clippy::cast_precision_loss, reason = "seconds of this millennium are far below 2^52")]
pub(crate) fn expiry(purpose: Purpose, not_after: Timestamp) {
    gauge!(EXPIRY, "listener" => purpose.name()).set(not_after.as_secs() as f64);
}

/// Sets when the first revocation list in use ends.
#[expect(clippy::cast_precision_loss, reason = "seconds of this millennium are far below 2^52")]
pub(crate) fn lists_expiry(purpose: Purpose, ends: Timestamp) {
    gauge!(LISTS_EXPIRY, "listener" => purpose.name()).set(ends.as_secs() as f64);
}

/// Counts a connection that is asked to leave.
pub(crate) fn distrusted(purpose: Purpose, why: Distrust) {
    counter!(DISTRUSTED, "listener" => purpose.name(), "reason" => why.code()).increment(1);
}

/// Counts new content. `outcome` is `used` or `refused`.
pub(crate) fn reload(purpose: Purpose, outcome: &'static str) {
    counter!(RELOADS, "listener" => purpose.name(), "outcome" => outcome).increment(1);
}

/// Sets whether the files hold what cannot be used.
pub(crate) fn failing(purpose: Purpose, failing: bool) {
    gauge!(FAILING, "listener" => purpose.name()).set(if failing { 1.0 } else { 0.0 });
}
