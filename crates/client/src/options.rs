//! How to consume a subscription.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portero_proto::v1;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::observer::{Observer, Silent};

/// Most unsettled events of one stream that the protocol allows.
pub(crate) const INFLIGHT_EVENTS_MAX: u32 = 10_000;

/// How to consume a subscription. The limits are per stream: a subscription with three consumers has three times as much
/// in flight.
#[derive(Clone)]
pub struct SubscribeOptions {
    /// Unsettled events at a time, 1 to 10,000; 0 means the gateway's default (256).
    pub max_inflight_events: u32,
    /// Bytes of unsettled bodies at a time; 0 means the gateway's default (16 MiB). One event is always allowed.
    pub max_inflight_bytes: u64,
    /// Handlers at a time, each with an event of another entity; at least 1. Default 64.
    pub concurrency: usize,
    /// Stops the subscription: no new deliveries, then as [`shutdown_deadline`](Self::shutdown_deadline) says. Default: a
    /// token that nobody cancels.
    pub shutdown: CancellationToken,
    /// How long running handlers may take after the stop, before they are dropped and their events released uncounted.
    /// Default 30 s.
    pub shutdown_deadline: Duration,
    /// Where the subscription reports what it does. Default: nowhere.
    pub observer: Arc<dyn Observer>,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            max_inflight_events: 0,
            max_inflight_bytes: 0,
            concurrency: 64,
            shutdown: CancellationToken::new(),
            shutdown_deadline: Duration::from_secs(30),
            observer: Arc::new(Silent),
        }
    }
}

impl SubscribeOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.max_inflight_events > INFLIGHT_EVENTS_MAX {
            return Err(Error::Config { field: "max_inflight_events", rule: "at most 10,000" });
        }
        if self.concurrency == 0 {
            return Err(Error::Config { field: "concurrency", rule: "at least 1" });
        }
        Ok(())
    }

    pub(crate) fn flow(&self) -> v1::Flow {
        v1::Flow {
            max_inflight_events: self.max_inflight_events,
            max_inflight_bytes: self.max_inflight_bytes,
        }
    }
}

impl fmt::Debug for SubscribeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscribeOptions")
            .field("max_inflight_events", &self.max_inflight_events)
            .field("max_inflight_bytes", &self.max_inflight_bytes)
            .field("concurrency", &self.concurrency)
            .field("shutdown_deadline", &self.shutdown_deadline)
            .finish_non_exhaustive()
    }
}
