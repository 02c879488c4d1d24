//! Outcomes on their way through one stream: gathered into frames, and kept until each has its status. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use portero_proto::v1;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::outcome::{Outcome, SettlementStatus};

/// Items that make a frame go at once.
const ITEMS_MAX: usize = 64;
/// How long the first item of a frame waits for others.
const LINGER: Duration = Duration::from_millis(5);
/// First and longest wait before items that were not recorded go again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// One outcome without a final status.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) token: Bytes,
    pub(crate) receipt_id: String,
    pub(crate) outcome: Outcome,
    /// Who waits for the status; dropped unsent when the outcome is lost.
    pub(crate) reply: Option<oneshot::Sender<SettlementStatus>>,
}

/// The outcomes of one stream.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pending: VecDeque<Item>,
    /// When the pending items go.
    due: Option<Instant>,
    sent: HashMap<u64, Vec<Item>>,
    last_frame: u64,
    /// Answers in a row that asked to try again.
    refusals: u32,
}

impl Batch {
    /// Adds an outcome.
    pub(crate) fn push(&mut self, item: Item, now: Instant) {
        self.pending.push_back(item);
        let linger = now + LINGER;
        self.due = match self.due {
            // While the gateway cannot record, everything waits for the same moment.
            Some(due) if self.refusals > 0 => Some(due),
            _ if self.pending.len() >= ITEMS_MAX => Some(now),
            due => Some(due.unwrap_or(linger)),
        };
    }

    /// When the next frame is due; `None` when nothing is pending.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Makes what is pending due now.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// A frame of pending items, which then wait for their statuses; `None` when none is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<v1::Settle> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let items: Vec<Item> = self.pending.drain(..self.pending.len().min(ITEMS_MAX)).collect();
        self.due = (!self.pending.is_empty()).then_some(now);
        self.last_frame += 1;
        let frame = v1::Settle {
            frame_no: self.last_frame,
            items: items.iter().map(|item| item.outcome.to_settlement(item.token.clone())).collect(),
        };
        self.sent.insert(self.last_frame, items);
        Some(frame)
    }

    /// The statuses of one frame: gives back the items that are final, and how many go again.
    pub(crate) fn settled(
        &mut self,
        settled: v1::Settled,
        now: Instant,
    ) -> (Vec<(Item, SettlementStatus)>, usize) {
        let items = self.sent.remove(&settled.frame_no).unwrap_or_default();
        let (done, again) = apply(items, settled.results);
        let count = again.len();
        if again.is_empty() {
            self.refusals = 0;
        } else {
            let wait = AGAIN.0.saturating_mul(1 << self.refusals.min(10)).min(AGAIN.1);
            self.refusals += 1;
            for item in again.into_iter().rev() {
                self.pending.push_front(item);
            }
            self.due = Some(now + wait);
        }
        (done, count)
    }

    /// Whether every outcome has its status.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.sent.is_empty()
    }

    /// The stream is over: all outcomes without a status, in the order of their frames.
    pub(crate) fn take_all(&mut self) -> Vec<Item> {
        let mut frames: Vec<_> = self.sent.drain().collect();
        frames.sort_unstable_by_key(|(frame_no, _)| *frame_no);
        let mut items: Vec<Item> = frames.into_iter().flat_map(|(_, items)| items).collect();
        items.extend(self.pending.drain(..));
        self.due = None;
        self.refusals = 0;
        items
    }
}

/// Splits items into those with a final status and those to send again. An item without an answer goes again.
pub(crate) fn apply(
    items: Vec<Item>,
    results: Vec<v1::SettlementResult>,
) -> (Vec<(Item, SettlementStatus)>, Vec<Item>) {
    let statuses: HashMap<Bytes, i32> =
        results.into_iter().map(|result| (result.token, result.status)).collect();
    let (mut done, mut again) = (Vec::with_capacity(items.len()), Vec::new());
    for item in items {
        match statuses.get(&item.token).copied().and_then(SettlementStatus::from_proto) {
            Some(status) => done.push((item, status)),
            None => again.push(item),
        }
    }
    (done, again)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: usize) -> Item {
        Item {
            token: Bytes::from(format!("token-{n}")),
            receipt_id: format!("rcpt_{n}"),
            outcome: Outcome::Ack,
            reply: None,
        }
    }

    fn answer(frame: &v1::Settle, status: v1::SettlementStatus) -> v1::Settled {
        let results = frame
            .items
            .iter()
            .map(|item| v1::SettlementResult {
                token: item.token.clone(),
                status: status.into(),
                detail: String::new(),
            })
            .collect();
        v1::Settled { frame_no: frame.frame_no, results }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_outcome_waits_five_milliseconds_for_company() {
        let (mut batch, now) = (Batch::default(), Instant::now());
        batch.push(item(0), now);
        assert_eq!(batch.take(now), None);
        assert_eq!(batch.due(), Some(now + LINGER));
        batch.push(item(1), now + LINGER / 2);
        assert_eq!(batch.take(now + LINGER).map(|frame| frame.items.len()), Some(2));
        assert!(batch.due().is_none() && !batch.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn sixty_four_outcomes_go_at_once_and_no_frame_holds_more() {
        let (mut batch, now) = (Batch::default(), Instant::now());
        for n in 0..130 {
            batch.push(item(n), now);
        }
        let mut sizes = Vec::new();
        while let Some(frame) = batch.take(now) {
            sizes.push(frame.items.len());
        }
        assert_eq!(sizes, [64, 64, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_recorded_goes_again_first_and_ever_later() {
        let (mut batch, mut now) = (Batch::default(), Instant::now());
        batch.push(item(0), now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            now = batch.due().expect("pending");
            let frame = batch.take(now).expect("due");
            let (done, again) = batch.settled(answer(&frame, v1::SettlementStatus::TryAgain), now);
            assert!(done.is_empty());
            assert_eq!(again, 1);
            batch.push(item(1), now);
            waits.push(batch.due().expect("pending") - now);
            batch.pending.truncate(1);
        }
        assert_eq!(waits.first().copied(), Some(AGAIN.0));
        assert_eq!(waits.last().copied(), Some(AGAIN.1));
        now = batch.due().expect("pending");
        let frame = batch.take(now).expect("due");
        assert_eq!(frame.items[0].token, "token-0");
        let (done, again) = batch.settled(answer(&frame, v1::SettlementStatus::Durable), now);
        assert_eq!((done.len(), again), (1, 0));
        assert!(batch.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_forgets_an_item_leaves_it_to_be_sent_again() {
        let (mut batch, now) = (Batch::default(), Instant::now());
        batch.push(item(0), now);
        batch.push(item(1), now);
        batch.hurry(now);
        let frame = batch.take(now).expect("due");
        let mut settled = answer(&frame, v1::SettlementStatus::Durable);
        settled.results.remove(0);
        let (done, again) = batch.settled(settled, now);
        assert_eq!(done[0].0.token, "token-1");
        assert_eq!(again, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_stream_gives_back_all_that_has_no_status() {
        let (mut batch, now) = (Batch::default(), Instant::now());
        for n in 0..70 {
            batch.push(item(n), now);
        }
        assert!(batch.take(now).is_some());
        let items = batch.take_all();
        assert_eq!(items.len(), 70);
        assert_eq!(items[0].token, "token-0");
        assert!(batch.is_empty() && batch.due().is_none());
    }

    #[test]
    fn a_status_for_an_unknown_frame_changes_nothing() {
        let mut batch = Batch::default();
        let settled = v1::Settled { frame_no: 9, results: Vec::new() };
        // The clock does not matter here: nothing is pending.
        let (done, again) = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("runtime")
            .block_on(async { batch.settled(settled, Instant::now()) });
        assert!(done.is_empty() && again == 0 && batch.is_empty());
    }
}
