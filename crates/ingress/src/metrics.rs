//! Metric names of the edge and the batcher, their help texts and their bounded labels.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const REQUESTS: &str = "portero_ingress_requests_total";
const REJECTIONS: &str = "portero_ingress_rejections_total";
const EVENTS: &str = "portero_ingress_events_total";
const ACCEPT_SECONDS: &str = "portero_ingress_accept_seconds";
const BODY_BYTES: &str = "portero_ingress_body_bytes";
const LIMITED: &str = "portero_ingress_limited_total";
const CONNECTIONS: &str = "portero_ingress_connections";
const INFLATED_BYTES: &str = "portero_ingress_inflated_bytes";
const CONFIRMATIONS: &str = "portero_ingress_confirmations_total";
const HANDSHAKE_SECRETS: &str = "portero_ingress_handshake_secrets_total";
const KEPT_REJECTIONS: &str = "portero_ingress_kept_rejections_total";
const BATCH_EVENTS: &str = "portero_accept_batch_events";
const COMMIT_SECONDS: &str = "portero_accept_commit_seconds";

/// Registers the help texts. Call once, after the recorder is installed.
pub fn describe() {
    describe_counter!(REQUESTS, "Requests answered by the edge, by outcome.");
    describe_counter!(REJECTIONS, "Requests that did not verify or could not be read, by reason.");
    describe_counter!(EVENTS, "Verified events, by what became of them.");
    describe_histogram!(ACCEPT_SECONDS, Unit::Seconds, "From the last byte of a body to its answer.");
    describe_histogram!(BODY_BYTES, Unit::Bytes, "Sizes of bodies that were read.");
    describe_counter!(
        LIMITED,
        "Requests and connections refused because somebody has enough, by whose limit it is."
    );
    describe_gauge!(CONNECTIONS, "Open connections at the edge.");
    describe_histogram!(INFLATED_BYTES, Unit::Bytes, "Sizes that compressed bodies inflated to.");
    describe_counter!(CONFIRMATIONS, "Subscriptions that providers asked to confirm, by outcome.");
    describe_counter!(HANDSHAKE_SECRETS, "Secrets that handshakes brought, by outcome.");
    describe_counter!(KEPT_REJECTIONS, "Refused requests on their way to the store, by how far they came.");
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

/// Counts what a limit refused. `limit` is one of tenant, source, unverified_source, unverified_address, tenant_in_flight,
/// address_connections.
pub(crate) fn limited(limit: &'static str) {
    counter!(LIMITED, "limit" => limit).increment(1);
}

/// Measures a body that was read.
#[expect(clippy::cast_precision_loss, reason = "bodies are far below 2^52 bytes")]
pub(crate) fn body(bytes: usize) {
    histogram!(BODY_BYTES).record(bytes as f64);
}

/// Measures what a compressed body inflated to.
#[expect(clippy::cast_precision_loss, reason = "bodies are far below 2^52 bytes")]
pub(crate) fn inflated(bytes: usize) {
    histogram!(INFLATED_BYTES).record(bytes as f64);
}

/// Counts a confirmation. `outcome` is `confirmed` or one of the outbound crate's codes.
pub(crate) fn confirmation(outcome: &'static str) {
    counter!(CONFIRMATIONS, "outcome" => outcome).increment(1);
}

/// Counts a secret that a handshake brought. `outcome` is one of stored, not_expected, failed.
pub(crate) fn handshake_secret(outcome: &'static str) {
    counter!(HANDSHAKE_SECRETS, "outcome" => outcome).increment(1);
}

/// Counts a refused request. `stage` is one of queued, limited, queue_full, shutting_down.
pub(crate) fn kept_rejection(stage: &'static str) {
    kept_rejections(stage, 1);
}

/// Counts refused requests. `stage` is one of those of [`kept_rejection`], kept, store_failed.
pub(crate) fn kept_rejections(stage: &'static str, count: usize) {
    counter!(KEPT_REJECTIONS, "stage" => stage).increment(u64::try_from(count).unwrap_or(u64::MAX));
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
