//! Metric names of the edge and the batcher, their help texts and their bounded labels.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const REQUESTS: &str = "portero_ingress_requests_total";
const REJECTIONS: &str = "portero_ingress_rejections_total";
const EVENTS: &str = "portero_ingress_events_total";
const ACCEPT_SECONDS: &str = "portero_ingress_accept_seconds";
const BODY_BYTES: &str = "portero_ingress_body_bytes";
const CONNECTIONS: &str = "portero_ingress_connections";
const BATCH_EVENTS: &str = "portero_accept_batch_events";
const COMMIT_SECONDS: &str = "portero_accept_commit_seconds";

/// Registers the help texts. Call once, after the recorder is installed.
pub fn describe() {
    describe_counter!(REQUESTS, "Requests answered by the edge, by outcome.");
    describe_counter!(REJECTIONS, "Requests that did not verify or could not be read, by reason.");
    describe_counter!(EVENTS, "Verified events, by what became of them.");
    describe_histogram!(ACCEPT_SECONDS, Unit::Seconds, "From the last byte of a body to its answer.");
    describe_histogram!(BODY_BYTES, Unit::Bytes, "Sizes of bodies that were read.");
    describe_gauge!(CONNECTIONS, "Open connections at the edge.");
    describe_histogram!(BATCH_EVENTS, "Events in one commit.");
    describe_histogram!(COMMIT_SECONDS, Unit::Seconds, "Time that one batch took to commit.");
}

/// Counts an answered request. `outcome` is one of the answer table's codes.
pub(crate) fn request(outcome: &'static str) {
    counter!(REQUESTS, "outcome" => outcome).increment(1);
}

/// Counts a rejection. `reason` is one of the recipe crate's codes.
pub(crate) fn rejection(reason: &'static str) {
    counter!(REJECTIONS, "reason" => reason).increment(1);
}

/// Counts an event. `outcome` is one of accepted, duplicate, conflict, failed.
pub(crate) fn event(outcome: &'static str) {
    counter!(EVENTS, "outcome" => outcome).increment(1);
}

/// Measures a body that was read.
#[expect(clippy::cast_precision_loss, reason = "bodies are far below 2^52 bytes")]
pub(crate) fn body(bytes: usize) {
    histogram!(BODY_BYTES).record(bytes as f64);
}

/// Measures the time from body to answer.
pub(crate) fn answered(after: Duration) {
    histogram!(ACCEPT_SECONDS).record(after.as_secs_f64());
}

/// Measures a batch.
#[expect(clippy::cast_precision_loss, reason = "batches are far below 2^52 events")]
pub(crate) fn batch(events: usize, took: Duration) {
    histogram!(BATCH_EVENTS).record(events as f64);
    histogram!(COMMIT_SECONDS).record(took.as_secs_f64());
}

/// One open connection, for as long as this lives.
pub(crate) struct OpenConnection(());

impl OpenConnection {
    /// Counts it.
    pub(crate) fn count() -> Self {
        gauge!(CONNECTIONS).increment(1);
        Self(())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        gauge!(CONNECTIONS).decrement(1);
    }
}
