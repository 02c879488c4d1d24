//! One bounded queue of submissions and the count of workers that empty it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use portero_types::NewEvent;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{AcceptConfig, EventResult, Failure};

/// What a waiting event costs beside its texts and bytes.
const EVENT_OVERHEAD_BYTES: usize = 512;

/// Events that came together and get their answer together.
pub(super) struct Submission {
    pub(super) events: Vec<NewEvent>,
    pub(super) reply: oneshot::Sender<Vec<EventResult>>,
    bytes: usize,
    since: Instant,
}

impl Submission {
    pub(super) fn new(events: Vec<NewEvent>, reply: oneshot::Sender<Vec<EventResult>>) -> Self {
        let bytes = events.iter().map(cost_bytes).sum();
        Self { events, reply, bytes, since: Instant::now() }
    }
}

fn cost_bytes(event: &NewEvent) -> usize {
    let headers: usize = event.headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    EVENT_OVERHEAD_BYTES + event.body.len() + event.event_id.len() + event.ordering_key.len() + headers
}

/// Submissions in the order in which they came.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Submission>,
    events: usize,
    bytes: usize,
    workers: usize,
}

impl State {
    /// Since when the first in the queue has waited.
    fn waits_since(&self) -> Option<Instant> {
        self.waiting.front().map(|submission| submission.since)
    }
}

impl Queue {
    /// Adds a submission. True means that the caller must start a worker, which is already counted.
    pub(super) fn push(&self, submission: Submission, config: &AcceptConfig) -> Result<bool, Failure> {
        let mut state = self.lock();
        let full = state.events + submission.events.len() > config.queue_events_max
            || state.bytes + submission.bytes > config.queue_bytes_max;
        if full && !state.waiting.is_empty() {
            return Err(Failure::Overloaded);
        }
        state.events += submission.events.len();
        state.bytes += submission.bytes;
        state.waiting.push_back(submission);
        // A worker that is there comes back for what waits, so only the first one must begin at once.
        let enough = state.events >= state.workers.saturating_mul(config.further_commit_events_min);
        let needs_worker = state.workers < config.commits_in_flight_max.max(1)
            && (enough
                || state.waits_since().is_some_and(|since| since.elapsed() >= config.further_commit_wait));
        if needs_worker {
            state.workers += 1;
        }
        Ok(needs_worker)
    }

    /// The next batch: whole submissions up to the bounds, at least one. `None` tells the worker to end.
    pub(super) fn take(&self, config: &AcceptConfig) -> Option<Vec<Submission>> {
        let mut state = self.lock();
        let (mut events, mut bytes) = (0, 0);
        let mut batch = Vec::new();
        while let Some(next) = state.waiting.front() {
            let fits = events + next.events.len() <= config.batch_events_max
                && bytes + next.bytes <= config.batch_bytes_max;
            if !fits && !batch.is_empty() {
                break;
            }
            let next = state.waiting.pop_front()?;
            events += next.events.len();
            bytes += next.bytes;
            batch.push(next);
        }
        state.events -= events;
        state.bytes -= bytes;
        if batch.is_empty() {
            // Under the lock, so that a push either sees this worker or starts another.
            state.workers -= 1;
            return None;
        }
        Some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
