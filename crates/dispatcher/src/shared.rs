//! What the parts of one dispatcher have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use portero_directory::Directory;
use portero_store::DeliveryStore;
use portero_types::Clock;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::dispatcher::TraceHook;
use crate::generation::Incarnations;
use crate::metrics;
use crate::opening::Opener;
use crate::session::Standing;

/// The part of the store that deliveries need.
pub(crate) type DynDeliveryStore = Arc<dyn DeliveryStore>;

/// What actors and background tasks share.
pub(crate) struct Shared {
    pub(crate) store: DynDeliveryStore,
    pub(crate) directory: Directory,
    pub(crate) opener: Arc<Opener>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) heads: watch::Sender<Vec<u64>>,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) incarnations: Incarnations,
    pub(crate) stream_age: Duration,
    pub(crate) trace: Option<TraceHook>,
    pub(crate) stop: CancellationToken,
    /// New streams are refused.
    pub(crate) refusing: AtomicBool,
    /// Open streams; each is a [`StreamCount`].
    pub(crate) streams: AtomicUsize,
    /// Wakes the task that reads the heads.
    pub(crate) look_at_log: Notify,
    /// Wakes the task that reads the roll.
    pub(crate) look_at_roll: Notify,
    /// Asks for a hint to other gateways that the log grew.
    pub(crate) tell_of_log: Notify,
}

/// Counts one open stream as long as it exists, however its actor ends.
pub(crate) struct StreamCount(Arc<Shared>);

impl StreamCount {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.streams.fetch_add(1, Ordering::SeqCst);
        metrics::stream_opened();
        Self(Arc::clone(shared))
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
        metrics::stream_closed();
    }
}
