//! Metric names of outgoing fetches, their help texts and their bounded labels.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::FetchError;

const FETCHES: &str = "portero_outbound_fetches_total";
const FETCH_SECONDS: &str = "portero_outbound_fetch_seconds";
const LOOKUPS: &str = "portero_outbound_lookups_total";

/// Registers the help texts. Call once, after the recorder is installed.
pub fn describe() {
    describe_counter!(FETCHES, "Requests to providers for keys, certificates and confirmations, by outcome.");
    describe_histogram!(FETCH_SECONDS, Unit::Seconds, "Time that one request to a provider took.");
    describe_counter!(LOOKUPS, "What verification asked for, by where it came from.");
}

/// Counts and measures a request that went out.
pub(crate) fn fetched(error: Option<FetchError>, took: Duration) {
    counter!(FETCHES, "outcome" => error.map_or("ok", FetchError::code)).increment(1);
    histogram!(FETCH_SECONDS).record(took.as_secs_f64());
}

/// Counts a lookup. `from` is one of hit, failed_before, joined, fetched, busy.
pub(crate) fn lookup(from: &'static str) {
    counter!(LOOKUPS, "from" => from).increment(1);
}
