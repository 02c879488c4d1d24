//! Lanes are handed over one by one as they go quiet; a replica that ends as planned hands over all of them.

use portero_types::LaneNo;

use super::{Asked, SimReplica};
use crate::shared::Shared;
use crate::time::SEC;
use crate::words::{Ask, ServerFrame};

/// How long consumers have to settle what is in hand when a replica ends.
const GRACE: u64 = 3 * SEC;

impl SimReplica {
    pub(super) fn terminate(&mut self, shared: &mut Shared) {
        if self.draining.is_some() {
            return;
        }
        let me = self.me;
        shared.checker.trace(|| format!("replica {me:?} is to end"));
        self.draining = Some(shared.now);
        for stream in self.streams.values_mut() {
            stream.closing = true;
            shared.send_to_consumer(stream.conn, ServerFrame::Drain);
        }
        for hello in std::mem::take(&mut self.waiting) {
            shared.send_to_consumer(hello.conn, ServerFrame::End);
        }
        for no in self.lanes.keys() {
            self.leaving.insert(*no, shared.now + GRACE);
        }
        self.reassign(shared);
    }

    /// Takes back what is still in hand when its time is over, and gives up the lanes of which everything is written.
    pub(super) fn hand_over(&mut self, shared: &mut Shared) {
        let now = self.wall(shared);
        for (no, until) in &self.leaving {
            let Some(lane) = self.lanes.get_mut(no) else { continue };
            if *until <= shared.now {
                lane.handle_recalled(now);
            }
            lane.hurry_flush();
        }
        self.poll_outputs(shared);
        self.flush(shared);
        if self.releasing || self.claiming || self.flushing {
            return;
        }
        let ready: Vec<LaneNo> = self
            .leaving
            .keys()
            .filter(|no| self.lanes.get(no).is_some_and(|lane| lane.can_be_handed_over()))
            .copied()
            .collect();
        if ready.is_empty() {
            return;
        }
        for no in &ready {
            self.lanes.remove(no);
            self.leaving.remove(no);
        }
        self.reassign(shared);
        self.release(shared, Some(ready));
    }

    pub(super) fn end_when_drained(&mut self, shared: &mut Shared) {
        let Some(since) = self.draining else { return };
        let is_over_time = since + 3 * GRACE <= shared.now;
        let is_done = self.lanes.is_empty() && !self.releasing && since + GRACE <= shared.now;
        if self.closing || !(is_done || is_over_time) {
            return;
        }
        self.end_all(shared);
        self.closing = true;
        match self.session {
            Some(session) => {
                let number = shared.ask(self.me, Ask::Close { session });
                self.asks.insert(number, Asked::Close);
            }
            None => self.alive = false,
        }
    }
}
