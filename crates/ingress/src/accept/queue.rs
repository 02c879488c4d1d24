//! One bounded queue of submissions, in which tenants take turns, and the count of workers that empty it.
//!
//! While it is backed up, each tenant that waits is served for about [`TURN`] in its turn, whatever it and the others have
//! queued: a tenant that sends little waits for one turn of each other one, not for all that a busy one has sent. Nor can one
//! tenant fill the queue: it has a part of the room.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portero_types::{NewEvent, TenantNo};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{AcceptConfig, EventResult, Failure};

/// What a waiting event costs beside its texts and bytes.
const EVENT_OVERHEAD_BYTES: usize = 512;
/// How much of a tenant is taken in one turn, in events of [`BYTES_PER_UNIT`]. What a large submission takes beyond it, the
/// tenant gives up in its next turns.
const TURN: i64 = 16;
/// Bytes that count like one event.
const BYTES_PER_UNIT: usize = 4 * 1024;

/// Events of one tenant that came together and get their answer together.
pub(super) struct Submission {
    pub(super) events: Vec<NewEvent>,
    pub(super) reply: oneshot::Sender<Vec<EventResult>>,
    tenant: TenantNo,
    bytes: usize,
    since: Instant,
}

impl Submission {
    /// `events` is not empty.
    pub(super) fn new(events: Vec<NewEvent>, reply: oneshot::Sender<Vec<EventResult>>) -> Self {
        let bytes = events.iter().map(cost_bytes).sum();
        let tenant = events.first().map_or(TenantNo(0), |event| event.tenant_no);
        Self { events, reply, tenant, bytes, since: Instant::now() }
    }

    /// What it costs its tenant of its turn.
    fn units(&self) -> i64 {
        i64::try_from(self.events.len().max(self.bytes / BYTES_PER_UNIT)).unwrap_or(i64::MAX)
    }
}

fn cost_bytes(event: &NewEvent) -> usize {
    EVENT_OVERHEAD_BYTES + event.content.len() + event.event_id.len() + event.ordering_key.len()
}

/// Submissions, each tenant's in the order in which they came.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    /// Only tenants that wait, or are in debt for what they took.
    tenants: HashMap<TenantNo, Waiting>,
    /// Tenants that wait, in the order of their turns; each once.
    turns: VecDeque<TenantNo>,
    events: usize,
    bytes: usize,
    workers: usize,
}

/// What one tenant has in the queue.
#[derive(Default)]
struct Waiting {
    submissions: VecDeque<Submission>,
    events: usize,
    bytes: usize,
    /// What is left of its turn; negative when it took more than a turn.
    credit: i64,
}

impl State {
    /// Since when the one who waits longest has waited.
    fn waits_since(&self) -> Option<Instant> {
        self.tenants.values().filter_map(|waiting| Some(waiting.submissions.front()?.since)).min()
    }

    fn add(&mut self, submission: Submission) {
        let tenant = submission.tenant;
        self.events += submission.events.len();
        self.bytes += submission.bytes;
        let waiting = self.tenants.entry(tenant).or_default();
        if waiting.submissions.is_empty() {
            waiting.credit += TURN;
            self.turns.push_back(tenant);
        }
        waiting.events += submission.events.len();
        waiting.bytes += submission.bytes;
        waiting.submissions.push_back(submission);
    }

    /// Whose turn it is. Those who have used theirs up go to the end, with a new one.
    fn next(&mut self) -> Option<TenantNo> {
        loop {
            let tenant = *self.turns.front()?;
            let waiting = self.tenants.get_mut(&tenant)?;
            if waiting.credit > 0 {
                return Some(tenant);
            }
            // Alone, nobody has to wait until its debt is paid.
            waiting.credit = if self.turns.len() == 1 { TURN } else { waiting.credit + TURN };
            self.turns.rotate_left(1);
        }
    }

    /// Takes a tenant's first submission if it fits.
    fn take(&mut self, tenant: TenantNo, fits: impl FnOnce(&Submission) -> bool) -> Option<Submission> {
        let waiting = self.tenants.get_mut(&tenant)?;
        waiting.submissions.front().filter(|first| fits(first))?;
        let taken = waiting.submissions.pop_front()?;
        waiting.events -= taken.events.len();
        waiting.bytes -= taken.bytes;
        waiting.credit = waiting.credit.saturating_sub(taken.units());
        if waiting.submissions.is_empty() {
            // What it did not use is not saved up; what it took too much is kept until it is even or nobody waits.
            waiting.credit = waiting.credit.min(0);
            self.turns.pop_front();
            if waiting.credit == 0 || self.turns.is_empty() {
                self.tenants.remove(&tenant);
            }
        }
        self.events -= taken.events.len();
        self.bytes -= taken.bytes;
        Some(taken)
    }
}

impl Queue {
    /// Adds a submission. True means that the caller must start a worker, which is already counted.
    pub(super) fn push(&self, submission: Submission, config: &AcceptConfig) -> Result<bool, Failure> {
        let mut state = self.lock();
        let (events, bytes) = (submission.events.len(), submission.bytes);
        let full =
            state.events + events > config.queue_events_max || state.bytes + bytes > config.queue_bytes_max;
        let of_tenant =
            state.tenants.get(&submission.tenant).filter(|waiting| !waiting.submissions.is_empty());
        let tenant_full = of_tenant.is_some_and(|waiting| {
            waiting.events + events > config.tenant_part(config.queue_events_max)
                || waiting.bytes + bytes > config.tenant_part(config.queue_bytes_max)
        });
        if (full && state.events > 0) || tenant_full {
            return Err(Failure::Overloaded);
        }
        state.add(submission);
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
        while let Some(tenant) = state.next() {
            let is_first = batch.is_empty();
            let taken = state.take(tenant, |next| {
                let fits = events + next.events.len() <= config.batch_events_max
                    && bytes + next.bytes <= config.batch_bytes_max;
                fits || is_first
            });
            let Some(taken) = taken else { break };
            events += taken.events.len();
            bytes += taken.bytes;
            batch.push(taken);
        }
        if batch.is_empty() {
            // Under the lock, so that a push either sees this worker or starts another.
            state.workers -= 1;
            // Nobody waits: debts are over.
            state.tenants.clear();
            return None;
        }
        Some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::testing::event;

    fn submission(tenant: i64, events: usize) -> Submission {
        let one = |n: usize| {
            let mut one = event(u128::try_from(n).expect("small"), &format!("evt_{n}"), "entity");
            one.tenant_no = TenantNo(tenant);
            one
        };
        Submission::new((0..events).map(one).collect(), oneshot::channel().0)
    }

    fn config() -> AcceptConfig {
        AcceptConfig { batch_events_max: 40, ..AcceptConfig::default() }
    }

    fn push(queue: &Queue, tenant: i64, events: usize) -> Result<bool, Failure> {
        queue.push(submission(tenant, events), &config())
    }

    /// Events of a batch by tenant.
    fn taken(queue: &Queue) -> Vec<(i64, usize)> {
        let mut sums: Vec<(i64, usize)> = Vec::new();
        for submission in queue.take(&config()).unwrap_or_default() {
            match sums.iter_mut().find(|(tenant, _)| *tenant == submission.tenant.0) {
                Some((_, events)) => *events += submission.events.len(),
                None => sums.push((submission.tenant.0, submission.events.len())),
            }
        }
        sums
    }

    #[test]
    fn who_sends_little_does_not_wait_for_all_that_another_has_queued() {
        let queue = Queue::default();
        for _ in 0..500 {
            push(&queue, 1, 1).expect("room");
        }
        for tenant in [2, 3] {
            push(&queue, tenant, 1).expect("room");
        }
        assert_eq!(taken(&queue), [(1, 38), (2, 1), (3, 1)], "all of the small ones in the first batch");
        assert_eq!(taken(&queue), [(1, 40)], "alone, a tenant has the whole batch");
    }

    #[test]
    fn busy_tenants_share_batches_also_where_one_sends_many_at_once() {
        let queue = Queue::default();
        for _ in 0..500 {
            push(&queue, 1, 1).expect("room");
        }
        for _ in 0..50 {
            push(&queue, 2, 20).expect("room");
        }
        let mut sums = [0, 0];
        for _ in 0..20 {
            for (tenant, events) in taken(&queue) {
                sums[usize::try_from(tenant).expect("small") - 1] += events;
            }
        }
        assert!(sums[0].abs_diff(sums[1]) <= 60, "{sums:?}");
    }

    #[test]
    fn a_tenants_own_submissions_keep_their_order_and_are_never_torn() {
        let queue = Queue::default();
        for events in [1, 30, 5, 90, 2] {
            push(&queue, 1, events).expect("room");
        }
        let mut sizes = Vec::new();
        while let Some(batch) = queue.take(&config()) {
            sizes.extend(batch.iter().map(|submission| submission.events.len()));
        }
        assert_eq!(sizes, [1, 30, 5, 90, 2]);
        let state = queue.lock();
        assert!(state.tenants.is_empty() && state.turns.is_empty() && state.events == 0 && state.bytes == 0);
    }

    #[test]
    fn one_tenant_cannot_fill_the_queue() {
        let queue = Queue::default();
        let part = config().queue_events_max / 4;
        push(&queue, 1, part).expect("its part");
        assert_eq!(push(&queue, 1, 1), Err(Failure::Overloaded));
        for tenant in 2..5 {
            push(&queue, tenant, part).expect("the parts of others");
        }
        assert_eq!(push(&queue, 5, 1), Err(Failure::Overloaded), "the queue is full");
    }

    #[test]
    fn large_bodies_count_for_more() {
        let queue = Queue::default();
        let small = AcceptConfig { batch_events_max: 24, ..config() };
        for tenant in [1, 2] {
            for _ in 0..100 {
                let mut large = submission(tenant, 1);
                if tenant == 1 {
                    large.events[0].content = Bytes::from(vec![0; 16 * BYTES_PER_UNIT]);
                    large.bytes = cost_bytes(&large.events[0]);
                }
                queue.push(large, &small).expect("room");
            }
        }
        let batch = queue.take(&small).expect("a batch");
        let large = batch.iter().filter(|submission| submission.tenant == TenantNo(1)).count();
        assert_eq!((large, batch.len()), (2, 24));
    }
}
