//! A consumer's observer that searches all reasons that the gateway gives for canaries, and passes everything on.

use std::sync::Arc;
use std::time::Duration;

use portero_client::{Delivery, Disconnect, Observer, Outcome, SettlementStatus};

use super::canaries;

/// Searches reasons, then passes them on.
pub(super) struct Attentive(pub(super) Arc<dyn Observer>);

impl Observer for Attentive {
    fn connected(&self, stream_id: &str, generation: i64, assigned_lanes: u32) {
        self.0.connected(stream_id, generation, assigned_lanes);
    }

    fn resumed(&self, kept: usize, stopped: usize) {
        self.0.resumed(kept, stopped);
    }

    fn idle(&self, subscription_lanes: u32) {
        self.0.idle(subscription_lanes);
    }

    fn disconnected(&self, why: &Disconnect<'_>, next_attempt_in: Option<Duration>) {
        if let Disconnect::Failed(error) = why {
            canaries::assert_none("the end of a stream", format!("{error} {error:?}"));
        }
        self.0.disconnected(why, next_attempt_in);
    }

    fn delivered(&self, delivery: &Delivery) {
        canaries::assert_none("a delivery in Debug", format!("{delivery:?}"));
        self.0.delivered(delivery);
    }

    fn handled(&self, delivery: &Delivery, outcome: &Outcome, took: Duration) {
        self.0.handled(delivery, outcome, took);
    }

    fn panicked(&self, delivery: &Delivery) {
        self.0.panicked(delivery);
    }

    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        self.0.settled(receipt_id, outcome, status);
    }

    fn resent(&self, count: usize) {
        self.0.resent(count);
    }

    fn lost(&self, receipt_id: &str, outcome: &Outcome) {
        self.0.lost(receipt_id, outcome);
    }

    fn revoked(&self, count: usize, reason: &str) {
        canaries::assert_none("the reason of a revocation", reason);
        self.0.revoked(count, reason);
    }

    fn draining(&self, reason: &str) {
        canaries::assert_none("the reason of a drain", reason);
        self.0.draining(reason);
    }

    fn lag(&self, head_lag: u64, oldest_unsettled_age: Option<Duration>) {
        self.0.lag(head_lag, oldest_unsettled_age);
    }
}
