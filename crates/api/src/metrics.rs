//! Metric names of the gRPC port and their help texts.

use metrics::{counter, describe_counter, describe_gauge, gauge};
use tokio::sync::OwnedSemaphorePermit;

const CONNECTIONS: &str = "portero_api_connections";
const REFUSED: &str = "portero_api_connections_refused_total";

/// Registers the help texts. Call once, after the recorder is installed.
pub fn describe() {
    describe_gauge!(CONNECTIONS, "Open connections of the gRPC port.");
    describe_counter!(
        REFUSED,
        "Connections of the gRPC port that were closed because too many are open, in all or of one address without a token."
    );
}

/// Counts a connection that is one too many.
pub(crate) fn connection_refused() {
    counter!(REFUSED).increment(1);
}

/// One open connection and its place, for as long as this lives.
pub(crate) struct OpenConnection(#[expect(dead_code, reason = "it is held, not read")] OwnedSemaphorePermit);

impl OpenConnection {
    /// Counts it.
    pub(crate) fn count(slot: OwnedSemaphorePermit) -> Self {
        gauge!(CONNECTIONS).increment(1);
        Self(slot)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        gauge!(CONNECTIONS).decrement(1);
    }
}
