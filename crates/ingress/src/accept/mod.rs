//! Accepting: many requests, few commits, one verdict each.
//!
//! Requests queue per shard. While earlier commits are in flight, what has queued up becomes the next batch; when nothing
//! is in flight, a request commits at once and alone. So there is no lingering, and the batch grows with the load. A
//! second commit beside one in flight begins only for a batch that is worth it, since what a commit costs by itself is
//! shared by its events and a store orders the commits of one shard one after the other anyway, or when the one in
//! flight takes unusually long.
//!
//! A submission is never torn: its events reach the store in one call, in order, except when the store refuses one of
//! them, which then fails alone. Tenants take turns in a queue that is backed up; a tenant's submissions enter batches in
//! the order in which they came. Batches that are in flight together have no order, so a caller that wants two events ordered submits the second after the first's answer.
//!
//! This module must never report an event as accepted that the store did not report as committed.

mod commit;
mod queue;
mod repeats;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portero_prefilter::Prefilter;
use portero_store::AcceptStore;
use portero_types::{NewEvent, ReceiptId, Shard, ShardCount, limits};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use self::queue::{Queue, Submission};

/// Told, after a commit, which shards have new entries. Must not block.
pub type Hint = Arc<dyn Fn(Shard) + Send + Sync>;

/// How submissions are spread over queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// One per shard, and one for submissions whose events span shards.
    PerShard,
    /// One for everything: for a store with a single writer, where a few large commits beat many small ones.
    One,
}

/// Bounds of the batcher.
#[derive(Clone, Debug)]
pub struct AcceptConfig {
    /// How many shards the log has.
    pub shards: ShardCount,
    /// How submissions are spread.
    pub queues: Queues,
    /// Most events waiting in one queue. Default 16,384: the largest request finds room beside others.
    pub queue_events_max: usize,
    /// Most bytes waiting in one queue. Default 64 MiB. A single submission above it is taken when the queue is empty.
    pub queue_bytes_max: usize,
    /// How much of a queue one tenant may fill, percent. Default 25.
    pub tenant_percent: usize,
    /// Most events in one commit. Default 256. A single submission above it is committed alone.
    pub batch_events_max: usize,
    /// Most bytes in one commit. Default 4 MiB. A single submission above it is committed alone.
    pub batch_bytes_max: usize,
    /// Most commits of one queue in flight. Default 2.
    pub commits_in_flight_max: usize,
    /// How many events wait before one more commit begins beside each that is in flight. Default 64.
    pub further_commit_events_min: usize,
    /// How long an event may have waited until one more commit begins all the same. Default 100 ms.
    pub further_commit_wait: Duration,
    /// How often a commit whose outcome is unknown is tried again. Default 2.
    pub unknown_outcome_retries: u32,
    /// For how long such retries may begin. Default 3 s.
    pub unknown_outcome_window: Duration,
}

impl Default for AcceptConfig {
    fn default() -> Self {
        Self {
            shards: ShardCount::DEFAULT,
            queues: Queues::PerShard,
            queue_events_max: 4 * limits::EVENTS_PER_REQUEST_MAX,
            queue_bytes_max: 64 * 1024 * 1024,
            tenant_percent: 25,
            batch_events_max: 256,
            batch_bytes_max: 4 * 1024 * 1024,
            commits_in_flight_max: 2,
            further_commit_events_min: 64,
            further_commit_wait: Duration::from_millis(100),
            unknown_outcome_retries: 2,
            unknown_outcome_window: Duration::from_secs(3),
        }
    }
}

impl AcceptConfig {
    /// The part of a queue that one tenant may fill. A submission above it is taken when the tenant has nothing else there.
    const fn tenant_part(&self, whole: usize) -> usize {
        whole.saturating_mul(self.tenant_percent) / 100
    }
}

/// What became of one event. In each case the event is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new, under the receipt id that it was submitted with.
    Accepted,
    /// It was there before, with the same bytes.
    Duplicate {
        /// The receipt of the first one.
        first: ReceiptId,
    },
    /// Its key was there before, with other bytes. The first one is kept.
    Conflict {
        /// The receipt of the first one.
        first: ReceiptId,
    },
}

/// Why one event has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// The queue is full. Nothing was written.
    #[error("too many events are waiting")]
    Overloaded,
    /// The gateway is shutting down. Nothing was written.
    #[error("the gateway is shutting down")]
    ShuttingDown,
    /// The store cannot commit now. Nothing was written.
    #[error("the store is unavailable")]
    Unavailable,
    /// It may or may not be committed. Submitting it again is safe.
    #[error("whether the event was stored is unknown")]
    OutcomeUnknown,
    /// The store refuses this very event; its neighbours are not affected. Submitting it again does not help.
    #[error("the store refuses the event")]
    Refused,
    /// The secret that verified the event is revoked, which this gateway has not heard of yet. Nothing of it was written; its
    /// neighbours are not affected.
    #[error("the secret that verified the event is revoked")]
    Revoked,
    /// The source that the event came to is deleted, which this gateway has not heard of yet. Nothing of it was written; its
    /// neighbours are not affected.
    #[error("the source that the event came to is deleted")]
    SourceDeleted,
    /// The store is in a state that needs a person. Nothing was written.
    #[error("the store needs attention")]
    Broken,
}

/// One event's fate.
pub type EventResult = Result<Outcome, Failure>;

/// Hands events to the batcher. Cheap to clone; all clones share the queues.
#[derive(Clone)]
pub struct AcceptHandle(Arc<Shared>);

/// What the handle, the workers and the commits share.
struct Shared {
    config: AcceptConfig,
    queues: Vec<Queue>,
    store: Arc<dyn AcceptStore>,
    prefilter: Arc<dyn Prefilter>,
    hint: Hint,
    /// Remembering in flight. It only saves work, so what finds no permit is skipped.
    remembering: Arc<Semaphore>,
    repeats: repeats::Repeats,
    tasks: TaskTracker,
    closed: AtomicBool,
}

const REMEMBERING_MAX: usize = 64;

impl std::fmt::Debug for AcceptHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceptHandle").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl AcceptHandle {
    /// A batcher over a store. It runs tasks on the present Tokio runtime, and only while there is work.
    #[must_use]
    pub fn new(
        config: AcceptConfig,
        store: Arc<dyn AcceptStore>,
        prefilter: Arc<dyn Prefilter>,
        hint: Hint,
    ) -> Self {
        let count = match config.queues {
            Queues::PerShard => usize::from(config.shards.get()) + 1,
            Queues::One => 1,
        };
        Self(Arc::new(Shared {
            queues: (0..count).map(|_| Queue::default()).collect(),
            config,
            store,
            prefilter,
            hint,
            remembering: Arc::new(Semaphore::new(REMEMBERING_MAX)),
            repeats: repeats::Repeats::default(),
            tasks: TaskTracker::new(),
            closed: AtomicBool::new(false),
        }))
    }

    /// Commits events together and says, in their order, what became of each.
    ///
    /// Cancel-safe in the sense that matters: once polled, dropping this future does not stop the commit.
    ///
    /// # Errors
    /// Per event; see [`Failure`]. Of one submission some events may have an outcome and others [`Failure::Refused`].
    pub async fn submit(&self, events: Vec<NewEvent>) -> Vec<EventResult> {
        let count = events.len();
        if count == 0 {
            return Vec::new();
        }
        match self.enqueue(events) {
            // A lost reply means that the worker ended without one; what it wrote is not known.
            Ok(reply) => reply.await.unwrap_or_else(|_| vec![Err(Failure::OutcomeUnknown); count]),
            Err(failure) => vec![Err(failure); count],
        }
    }

    /// Counts, a moment later, a repeat that was recognised without the store.
    pub fn count_repeat(&self, first: ReceiptId) {
        if self.0.repeats.add(first) {
            self.0.tasks.spawn(repeats::write(Arc::clone(&self.0)));
        }
    }

    /// Refuses new submissions and waits until those already taken have their answers.
    ///
    /// Cancel-safe; may be called more than once.
    pub async fn drain(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn enqueue(&self, events: Vec<NewEvent>) -> Result<oneshot::Receiver<Vec<EventResult>>, Failure> {
        let shared = &self.0;
        // Taken before the flag is read, so that a drain that begins now waits for this submission.
        let alive = shared.tasks.token();
        if shared.is_closed() {
            return Err(Failure::ShuttingDown);
        }
        let queue_no = shared.queue_of(&events);
        let (reply, receiver) = oneshot::channel();
        let submission = Submission::new(events, reply);
        let needs_worker = shared.queues[queue_no].push(submission, &shared.config)?;
        if needs_worker {
            let worker = Arc::clone(shared);
            shared.tasks.spawn(async move {
                while let Some(batch) = worker.queues[queue_no].take(&worker.config) {
                    commit::run(&worker, batch).await;
                }
            });
        }
        drop(alive);
        Ok(receiver)
    }
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The queue for a submission. `events` is not empty.
    fn queue_of(&self, events: &[NewEvent]) -> usize {
        match self.config.queues {
            Queues::One => 0,
            Queues::PerShard => {
                let first = events[0].shard(self.config.shards);
                let spans = events.iter().any(|event| event.shard(self.config.shards) != first);
                usize::from(if spans { self.config.shards.get() } else { u16::from(first.0) })
            }
        }
    }
}
