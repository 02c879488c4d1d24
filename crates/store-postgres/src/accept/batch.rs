//! A batch before and after the accept statement. Pure.
//!
//! Keys are sorted by their bytes, so that two batches with common keys wait for each other in one direction only, and the
//! first event of each key stands for it. What came under a revoked secret or to a deleted source is judged by that alone: of a
//! key whose standing event is refused so, the others are left for another batch.

use std::collections::{BTreeSet, HashMap, HashSet};

use portero_store::Verdict;
use portero_types::{NewEvent, Position, ReceiptId, SecretNo, SourceNo};

/// What the accept statement placed: receipt and position.
pub(super) type Placed = HashMap<ReceiptId, Position>;

/// A stored receipt that a repeat met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Which event of the batch stands for the key.
    pub(super) leader: usize,
    /// The receipt.
    pub(super) receipt_id: ReceiptId,
    /// What tells a repeat from a conflict.
    pub(super) body_digest: [u8; 32],
}

/// What was found out about events that were not placed.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Receipts that hold their keys.
    pub(super) known: Vec<Known>,
    /// Those of the batch's secrets that are revoked.
    pub(super) revoked: HashSet<SecretNo>,
    /// Those of the batch's sources that are deleted.
    pub(super) deleted: HashSet<SourceNo>,
}

/// How often a receipt's event came again in this batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) duplicates: i64,
    pub(super) conflicts: i64,
}

/// A batch with its keys sorted.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    events: &'a [NewEvent],
    /// One event per key, in the order of keys, as an index into `events`.
    leaders: Vec<usize>,
    /// The others, with the event that stands for their key.
    followers: Vec<(usize, usize)>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(events: &'a [NewEvent]) -> Self {
        let mut order: Vec<usize> = (0..events.len()).collect();
        order.sort_by(|a, b| key(&events[*a]).cmp(&key(&events[*b])).then(a.cmp(b)));
        let mut leaders: Vec<usize> = Vec::with_capacity(events.len());
        let mut followers = Vec::new();
        for index in order {
            match leaders.last() {
                Some(leader) if key(&events[*leader]) == key(&events[index]) => {
                    followers.push((index, *leader));
                }
                _ => leaders.push(index),
            }
        }
        Self { events, leaders, followers }
    }

    /// The events that ask for a receipt, in the order of keys, each with its place in the batch.
    pub(super) fn leaders(&self) -> impl ExactSizeIterator<Item = (usize, &'a NewEvent)> + Clone {
        self.leaders.iter().map(|index| (*index, &self.events[*index]))
    }

    /// The secrets that verified it, each once.
    pub(super) fn secrets(&self) -> Vec<i64> {
        let distinct: BTreeSet<i64> =
            self.events.iter().filter_map(|event| event.secret_no).map(|no| no.0).collect();
        distinct.into_iter().collect()
    }

    /// The sources that it came to, each once.
    pub(super) fn sources(&self) -> Vec<i64> {
        let distinct: BTreeSet<i64> = self.events.iter().map(|event| event.source_no.0).collect();
        distinct.into_iter().collect()
    }

    /// Whether no event repeats the key of another.
    pub(super) fn has_each_key_once(&self) -> bool {
        self.followers.is_empty()
    }

    /// An event by its place in the batch.
    pub(super) fn event(&self, index: usize) -> &'a NewEvent {
        &self.events[index]
    }

    /// The verdicts of those that were placed, and of those that repeat one of them.
    pub(super) fn verdicts(&self, placed: &Placed) -> Vec<Option<Verdict>> {
        let mut verdicts = vec![None; self.events.len()];
        for (index, event) in self.leaders() {
            verdicts[index] =
                placed.get(&event.receipt_id).map(|position| Verdict::Accepted { position: *position });
        }
        for (index, leader) in &self.followers {
            let first = &self.events[*leader];
            if placed.contains_key(&first.receipt_id) {
                verdicts[*index] = Some(self.judge(*index, first.receipt_id, &first.body_digest));
            }
        }
        verdicts
    }

    /// The events whose keys were there before, one per key, in the order of keys.
    pub(super) fn repeated(&self, placed: &Placed) -> Vec<usize> {
        if placed.len() == self.leaders.len() {
            return Vec::new();
        }
        let is_placed = |index: &usize| placed.contains_key(&self.events[*index].receipt_id);
        self.leaders.iter().copied().filter(|index| !is_placed(index)).collect()
    }

    /// Fills in the verdicts of those that were not placed: refused for their sources or secrets, or their keys were there before.
    pub(super) fn judge_repeats(&self, verdicts: &mut [Option<Verdict>], found: &Found) {
        let is_revoked =
            |index: usize| self.events[index].secret_no.is_some_and(|no| found.revoked.contains(&no));
        let known: HashMap<usize, &Known> = found.known.iter().map(|known| (known.leader, known)).collect();
        let leaders = self.leaders.iter().map(|leader| (*leader, *leader));
        for (index, leader) in leaders.chain(self.followers.iter().copied()) {
            let verdict = &mut verdicts[index];
            if matches!(verdict, Some(Verdict::Accepted { .. })) {
                continue;
            }
            if found.deleted.contains(&self.events[index].source_no) {
                *verdict = Some(Verdict::SourceDeleted);
            } else if is_revoked(index) {
                *verdict = Some(Verdict::Revoked);
            } else if verdict.is_none()
                && let Some(first) = known.get(&leader)
            {
                *verdict = Some(self.judge(index, first.receipt_id, &first.body_digest));
            }
        }
    }

    /// Whether an event that stands for its key has no verdict. Its receipt was removed between two statements.
    pub(super) fn is_lost(&self, verdicts: &[Option<Verdict>]) -> bool {
        self.leaders.iter().any(|leader| verdicts[*leader].is_none())
    }

    /// How often each receipt's event came again, in the order of keys.
    pub(super) fn counts(&self, verdicts: &[Option<Verdict>]) -> Vec<(ReceiptId, Count)> {
        let mut counts: HashMap<ReceiptId, Count> = HashMap::new();
        for verdict in verdicts.iter().flatten() {
            match verdict {
                Verdict::Accepted { .. } | Verdict::Revoked | Verdict::SourceDeleted => {}
                Verdict::Duplicate { first } => counts.entry(*first).or_default().duplicates += 1,
                Verdict::Conflict { first } => counts.entry(*first).or_default().conflicts += 1,
            }
        }
        if counts.is_empty() {
            return Vec::new();
        }
        // The key's receipt, whichever of its events met it.
        let mut order = Vec::with_capacity(counts.len());
        for index in self.leaders.iter().chain(self.followers.iter().map(|(index, _)| index)) {
            if let Some(Verdict::Duplicate { first } | Verdict::Conflict { first }) = verdicts[*index]
                && let Some(count) = counts.remove(&first)
            {
                order.push((key(&self.events[*index]), first, count));
            }
        }
        order.sort_by_key(|(key, ..)| *key);
        order.into_iter().map(|(_, first, count)| (first, count)).collect()
    }

    fn judge(&self, index: usize, first: ReceiptId, digest: &[u8; 32]) -> Verdict {
        if self.events[index].body_digest == *digest {
            Verdict::Duplicate { first }
        } else {
            Verdict::Conflict { first }
        }
    }
}

fn key(event: &NewEvent) -> (i64, &str, &str) {
    (event.tenant_no.0, event.provider.as_str(), &event.event_id)
}
