//! A batch before and after the accept statement. Pure.
//!
//! Keys are sorted by their bytes, so that two batches with common keys wait for each other in one direction only, and the
//! first event of each key stands for it.

use std::collections::HashMap;

use portero_store::Verdict;
use portero_types::{NewEvent, Position, ReceiptId};

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

    /// Fills in the verdicts of those whose keys were there before.
    pub(super) fn judge_repeats(&self, verdicts: &mut [Option<Verdict>], known: &[Known]) {
        let known: HashMap<usize, &Known> = known.iter().map(|known| (known.leader, known)).collect();
        let leaders = self.leaders.iter().map(|leader| (*leader, *leader));
        for (index, leader) in leaders.chain(self.followers.iter().copied()) {
            if verdicts[index].is_none() {
                let first = known.get(&leader);
                verdicts[index] = first.map(|first| self.judge(index, first.receipt_id, &first.body_digest));
            }
        }
    }

    /// How often each receipt's event came again, in the order of keys.
    pub(super) fn counts(&self, verdicts: &[Verdict]) -> Vec<(ReceiptId, Count)> {
        let mut counts: HashMap<ReceiptId, Count> = HashMap::new();
        for verdict in verdicts {
            match verdict {
                Verdict::Accepted { .. } => {}
                Verdict::Duplicate { first } => counts.entry(*first).or_default().duplicates += 1,
                Verdict::Conflict { first } => counts.entry(*first).or_default().conflicts += 1,
            }
        }
        if counts.is_empty() {
            return Vec::new();
        }
        let first = |index: &usize| match verdicts[*index] {
            Verdict::Duplicate { first } | Verdict::Conflict { first } => first,
            Verdict::Accepted { .. } => self.events[*index].receipt_id,
        };
        self.leaders.iter().map(first).filter_map(|id| counts.get(&id).map(|count| (id, *count))).collect()
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
