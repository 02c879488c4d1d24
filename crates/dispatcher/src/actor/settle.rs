//! Settlements on their way: each call gets one status per item, in order, once all of them are known.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use portero_engine::{Tag, Token};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Actor, LATE_INTEREST, LATE_REST};
use crate::metrics;
use crate::stream::{Settlement, Status};

/// Most items of one call; the tag's low bits name the item.
pub(crate) const ITEMS_MAX: usize = 1 << ITEM_BITS;
const ITEM_BITS: u32 = 16;

/// Calls that still miss a status.
#[derive(Default)]
pub(super) struct Settling {
    next: u64,
    calls: HashMap<u64, Call>,
}

struct Call {
    statuses: Vec<Status>,
    missing: usize,
    reply: oneshot::Sender<Vec<Status>>,
}

impl Settling {
    fn open(&mut self, items: usize, reply: oneshot::Sender<Vec<Status>>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.calls.insert(number, Call { statuses: vec![Status::TryAgain; items], missing: items, reply });
        number
    }

    fn answer(&mut self, number: u64, item: usize, status: Status) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        metrics::settled(status);
        call.statuses[item] = status;
        call.missing -= 1;
        if call.missing == 0
            && let Some(call) = self.calls.remove(&number)
        {
            // The asker may have gone; what was settled is settled all the same.
            let _ = call.reply.send(call.statuses);
        }
    }
}

impl Actor {
    pub(super) fn settle(
        &mut self,
        items: Vec<Settlement>,
        from_stream: bool,
        reply: oneshot::Sender<Vec<Status>>,
    ) {
        if items.is_empty() || items.len() >= ITEMS_MAX {
            let _ = reply.send(vec![Status::UnknownToken; items.len()]);
            return;
        }
        let now = self.now();
        let number = self.settling.open(items.len(), reply);
        for (item, settlement) in items.into_iter().enumerate() {
            let Some(token) = settlement.token else {
                self.settling.answer(number, item, Status::UnknownToken);
                continue;
            };
            self.watch_outcome(now, &token, settlement.outcome);
            self.give_back(&token);
            match self.lanes.get_mut(&token.lane) {
                Some(lane) => {
                    let tag = Tag((number << ITEM_BITS) | item as u64);
                    let settlement = portero_engine::Settlement {
                        token: Token { ..token.token },
                        outcome: settlement.outcome,
                        reason: settlement.reason,
                    };
                    lane.handle_settle(now, &mut self.rng, settlement, tag);
                }
                None if u16::from(token.lane.0) < self.subscription.lanes.get() => {
                    let status = self.status_elsewhere(from_stream);
                    self.settling.answer(number, item, status);
                }
                None => self.settling.answer(number, item, Status::UnknownToken),
            }
        }
    }

    /// What is said of a delivery whose lane is not here. On a stream that goes on it was taken back before its lane went to
    /// another gateway, and nobody may wait for it; otherwise the lane may come here, or the asker may find its gateway.
    fn status_elsewhere(&mut self, from_stream: bool) -> Status {
        if from_stream && self.drain.is_none() && self.has_interest() && !self.sharing.is_claiming() {
            return Status::Stale;
        }
        self.want_lanes();
        Status::TryAgain
    }

    /// Work may be finished just as the only stream breaks, or its gateway: the lanes are fetched to write that down. For a
    /// while only, and not at once again: outcomes may keep coming to a gateway without consumers, and lanes that balance moved
    /// there would be nobody's.
    fn want_lanes(&mut self) {
        let now = Instant::now();
        if self.drain.is_some() || self.shared.refusing.load(Ordering::SeqCst) || now < self.late_again_at {
            return;
        }
        if !self.has_interest() {
            self.sharing.want();
        }
        self.late_until = now + LATE_INTEREST;
        self.late_again_at = self.late_until + LATE_REST;
    }

    pub(super) fn poll_statuses(&mut self) {
        for lane in self.lanes.values_mut() {
            while let Some(settled) = lane.poll_settled() {
                let item = usize::try_from(settled.tag.0 & (ITEMS_MAX as u64 - 1)).unwrap_or(0);
                self.settling.answer(settled.tag.0 >> ITEM_BITS, item, settled.status);
            }
        }
    }
}
