//! Where a subscription reports what it does: hooks for metrics and logs.

use std::time::Duration;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::outcome::{Outcome, SettlementStatus};

/// Why a stream ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Disconnect<'a> {
    /// It failed; the subscription reconnects, or ends when the error is fatal.
    Failed(&'a Error),
    /// The gateway asked for it; the subscription reconnects.
    Drained,
    /// The consumer shut down.
    Closed,
}

/// Hooks of a subscription; each does nothing unless it is implemented. They run on the subscription's own task: they must
/// return at once and must not panic.
pub trait Observer: Send + Sync + 'static {
    /// A stream is open.
    fn connected(&self, _stream_id: &str, _generation: i64, _assigned_lanes: u32) {}
    /// After a reconnect: so many deliveries go on on the new stream, and the work on so many others is to stop. Not called
    /// when there was nothing to resume.
    fn resumed(&self, _kept: usize, _stopped: usize) {}
    /// The stream serves no lane as it opens: its gateway is still claiming them, or there are as many streams as the
    /// subscription has lanes, and this one is a spare.
    fn idle(&self, _subscription_lanes: u32) {}
    /// A stream, or an attempt to open one, ended. `next_attempt_in` is `None` when there is none.
    fn disconnected(&self, _why: &Disconnect<'_>, _next_attempt_in: Option<Duration>) {}
    /// The stream ended, or cannot be opened, for a reason that did not come before since a stream was last open; the
    /// subscription tries again. Follows [`Self::disconnected`], which is called for each attempt: this one is for people, who want
    /// to read each reason once.
    fn failing(&self, _why: &Error) {}
    /// A delivery arrived.
    fn delivered(&self, _delivery: &Delivery) {}
    /// A handler is done with a delivery.
    fn handled(&self, _delivery: &Delivery, _outcome: &Outcome, _took: Duration) {}
    /// A handler panicked; the delivery is retried.
    fn panicked(&self, _delivery: &Delivery) {}
    /// The gateway gave its final word on an outcome.
    fn settled(&self, _receipt_id: &str, _outcome: &Outcome, _status: SettlementStatus) {}
    /// So many outcomes were not recorded and are sent again.
    fn resent(&self, _count: usize) {}
    /// An outcome could not be delivered before the subscription ended: its event will come again.
    fn lost(&self, _receipt_id: &str, _outcome: &Outcome) {}
    /// The gateway took so many deliveries back.
    fn revoked(&self, _count: usize, _reason: &str) {}
    /// The gateway asked the consumer to reconnect.
    fn draining(&self, _reason: &str) {}
    /// How far behind this consumer is: entries not yet read, and the age of the oldest unsettled event.
    fn lag(&self, _head_lag: u64, _oldest_unsettled_age: Option<Duration>) {}
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}
