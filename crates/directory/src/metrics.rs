//! The names of this crate's metrics.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::Snapshot;

const CLOCK_SKEW: &str = "portero_clock_skew_seconds";
const REVISION: &str = "portero_config_revision";
const SECRETS_UNREADABLE: &str = "portero_secrets_unreadable";
const LOADS: &str = "portero_config_loads_total";

/// Says what each metric means. Call once after the recorder is installed.
pub fn describe() {
    describe_gauge!(
        CLOCK_SKEW,
        "How far this machine's clock is ahead of the database's; negative when it is behind."
    );
    describe_gauge!(REVISION, "The revision of the configuration that this process has applied.");
    describe_gauge!(
        SECRETS_UNREADABLE,
        "Secrets that are not revoked and cannot be read: each is in the log with its source. Add another one, and revoke it."
    );
    describe_counter!(
        LOADS,
        "Times that configuration was read, by kind: only the changes, everything, the data keys that could not be opened, or in vain."
    );
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of centuries fit")]
pub(crate) fn clock_skew(micros: i64) {
    gauge!(CLOCK_SKEW).set(micros as f64 / 1_000_000.0);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a revision or a count beyond 2^53 would take a million years"
)]
pub(crate) fn applied(snapshot: &Snapshot) {
    gauge!(REVISION).set(snapshot.revision().0 as f64);
    gauge!(SECRETS_UNREADABLE).set(snapshot.secrets_unreadable() as f64);
}

pub(crate) fn loaded(kind: &'static str) {
    counter!(LOADS, "kind" => kind).increment(1);
}
