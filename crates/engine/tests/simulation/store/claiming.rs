//! Who owns which lane: fence the expired owner, let its flushes end, take over with the next epoch, then read.

use portero_engine::{ParkedState, Restored};
use portero_types::{Epoch, LaneNo, Timestamp};

use super::{SimStore, Step};
use crate::planted::Planted;
use crate::words::{Answer, Claimed, Session};

impl SimStore {
    pub(super) fn roll(&mut self, now: u64, session: Session, weight: usize) -> Answer {
        if let Some(row) = self.sessions.get_mut(&session) {
            row.weight = weight;
        }
        let owned = self.rows.values().filter(|row| row.owner == Some(session)).count();
        let free = self.rows.values().filter(|row| !self.is_held(now, row.owner)).count();
        let heads = self.logs.iter().map(|log| log.len() as u64).collect();
        Answer::Rolled { heads, owned, free, target: self.target(now, session) }
    }

    fn is_held(&self, now: u64, owner: Option<Session>) -> bool {
        owner.is_some_and(|owner| self.is_alive(owner, now))
    }

    /// The lanes that a session should have: even shares among those with streams, the rest to the first ones.
    fn target(&self, now: u64, session: Session) -> usize {
        let wanting: Vec<Session> = self
            .sessions
            .iter()
            .filter(|(id, row)| row.weight > 0 && self.is_alive(**id, now))
            .map(|(id, _)| *id)
            .collect();
        let Some(place) = wanting.iter().position(|id| *id == session) else { return 0 };
        let lanes = usize::from(self.lanes.get());
        lanes / wanting.len() + usize::from(place < lanes % wanting.len())
    }

    pub(super) fn claim(&mut self, now: u64, session: Session) -> Step {
        for row in self.sessions.values_mut().filter(|row| row.expires_at <= now) {
            row.fenced = true;
        }
        if self.waits_for_a_flush() {
            return Step::Wait;
        }
        if !self.is_alive(session, now) {
            return Step::Answer(Answer::Fenced);
        }
        let owned = self.rows.values().filter(|row| row.owner == Some(session)).count();
        let wanted = self.target(now, session).saturating_sub(owned);
        let free: Vec<LaneNo> = self
            .rows
            .iter()
            .filter(|(_, row)| row.owner.is_none_or(|owner| self.is_fenced(owner)))
            .map(|(lane, _)| *lane)
            .take(wanted)
            .collect();
        Step::Answer(Answer::Claimed(free.into_iter().map(|lane| self.take(session, lane)).collect()))
    }

    fn take(&mut self, session: Session, lane: LaneNo) -> Claimed {
        let forgets_acks = self.has(Planted::ForgetsTheAckedList);
        let forgets_detours = self.has(Planted::ForgetsDetours);
        let unblocks = self.has(Planted::LetsABlockedEntityGoOn);
        let moves_deadlines = self.has(Planted::RestartsDeadlines);
        let row = self.row_mut(lane);
        row.owner = Some(session);
        row.epoch += 1;
        let mut restored = Restored {
            watermark: row.watermark,
            acked: row.acked.clone(),
            detours: row.detours.clone(),
            parked: row.parked.values().cloned().collect(),
            deferred: row.deferred.values().cloned().collect(),
        };
        if forgets_acks {
            restored.acked.clear();
        }
        if forgets_detours {
            restored.detours.clear();
        }
        if unblocks {
            restored.parked.retain(|row| !row.positions.is_empty() || row.overflow.is_some());
            for row in restored.parked.iter_mut().filter(|row| row.state == ParkedState::Blocked) {
                row.state = ParkedState::Draining;
                (row.attempts, row.interruptions) = (0, 0);
            }
        }
        if moves_deadlines {
            for row in &mut restored.deferred {
                row.deadline = Timestamp::from_micros(i64::MAX / 2);
            }
        }
        Claimed { lane, epoch: Epoch(row.epoch), restored }
    }

    /// Gives lanes up, once the flushes that hold them are committed.
    pub(super) fn release(&mut self, session: Session, lanes: Option<&[LaneNo]>) -> Step {
        let is_meant = |lane: &LaneNo| lanes.is_none_or(|lanes| lanes.contains(lane));
        let is_held = self
            .open
            .values()
            .any(|flush| flush.session == session && flush.flushes.iter().any(|flush| is_meant(&flush.lane)));
        if is_held {
            return Step::Wait;
        }
        for (lane, row) in &mut self.rows {
            if row.owner == Some(session) && is_meant(lane) {
                row.owner = None;
            }
        }
        Step::Answer(Answer::Done)
    }
}
