//! Deliveries between the stream and the application. Bounded by what may be in flight on one stream, because what waits when
//! a stream ends goes on with the next one or goes.

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
    /// Whether there is a stream. Without one nothing is handed out: others may be working on it by then.
    live: bool,
    closed: bool,
}

impl Queue {
    /// Adds a delivery.
    pub(crate) fn push(&self, delivery: Delivery) {
        self.lock().waiting.push_back(delivery);
        self.0.changed.notify_one();
    }

    /// Takes deliveries back that the application could not begin with, to be handed out first.
    pub(crate) fn put_back(&self, deliveries: VecDeque<Delivery>) {
        let mut state = self.lock();
        for delivery in deliveries.into_iter().rev() {
            state.waiting.push_front(delivery);
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// The next delivery that still stands; `None` when the queue is closed. Cancel safe: nothing is taken without being
    /// returned.
    pub(crate) async fn next(&self) -> Option<Delivery> {
        loop {
            let changed = self.0.changed.notified();
            {
                let mut state = self.lock();
                while state.live {
                    match state.waiting.pop_front() {
                        Some(delivery) if delivery.revoked().is_cancelled() => {}
                        Some(delivery) => return Some(delivery),
                        None => break,
                    }
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// The stream is over. What waits is kept until the next one decides.
    pub(crate) fn pause(&self) {
        self.lock().live = false;
    }

    /// A new stream begins: what it did not resume is cancelled, and goes.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        state.live = true;
        state.waiting.retain(|delivery| !delivery.revoked().is_cancelled());
        drop(state);
        self.0.changed.notify_one();
    }

    /// Whether there is a stream.
    pub(crate) fn is_live(&self) -> bool {
        self.lock().live
    }

    /// Removes what waits of these, and says which that was.
    pub(crate) fn remove(&self, tokens: &HashSet<Bytes>) -> Vec<Bytes> {
        let mut removed = Vec::new();
        self.lock().waiting.retain(|delivery| {
            let goes = tokens.contains(delivery.token());
            if goes {
                removed.push(delivery.token().clone());
            }
            !goes
        });
        removed
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
