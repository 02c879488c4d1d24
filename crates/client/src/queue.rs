//! Deliveries between the stream and the application. Bounded by what may be in flight on one stream, because a stream that
//! ends takes its untouched deliveries with it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::delivery::Delivery;

/// One producer (the driver) and one consumer (the application).
#[derive(Clone, Default)]
pub(crate) struct Queue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Delivery>,
    /// The stream whose deliveries are good; older ones are over. 0 while there is none.
    stream: u64,
    closed: bool,
}

impl Queue {
    /// Adds a delivery.
    pub(crate) fn push(&self, delivery: Delivery) {
        self.lock().waiting.push_back(delivery);
        self.0.changed.notify_one();
    }

    /// The next delivery; `None` when the queue is closed. Cancel safe: nothing is taken without being returned.
    pub(crate) async fn next(&self) -> Option<Delivery> {
        loop {
            let changed = self.0.changed.notified();
            {
                let mut state = self.lock();
                if let Some(delivery) = state.waiting.pop_front() {
                    return Some(delivery);
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// A new stream begins (or none, with 0): what waits is of an older one and goes.
    pub(crate) fn begin(&self, stream: u64) {
        let mut state = self.lock();
        state.stream = stream;
        state.waiting.clear();
    }

    /// Whether the stream that brought this delivery still stands.
    pub(crate) fn is_current(&self, delivery: &Delivery) -> bool {
        self.lock().stream == delivery.stream()
    }

    /// Removes what waits of these.
    pub(crate) fn remove(&self, tokens: &HashSet<Bytes>) {
        self.lock().waiting.retain(|delivery| !tokens.contains(delivery.token()));
    }

    /// Takes all that waits.
    pub(crate) fn take_all(&self) -> Vec<Delivery> {
        self.lock().waiting.drain(..).collect()
    }

    /// Nothing will come any more.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.0.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs under this lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.lock().waiting.len()).finish_non_exhaustive()
    }
}
