//! Lanes come, and are lost.

use portero_engine::Lane;

use super::{Asked, PACE, SimReplica, roll_every};
use crate::planted::Planted;
use crate::shared::Shared;
use crate::time::SEC;
use crate::words::{Answer, Ask};

impl SimReplica {
    /// For how many streams lanes are wanted here.
    fn weight(&self) -> usize {
        if self.draining.is_some() { 0 } else { self.streams.len() + self.waiting.len() }
    }

    pub(super) fn roll(&mut self, shared: &mut Shared) {
        let Some(session) = self.session.filter(|_| !self.rolling && shared.now >= self.roll_at) else {
            return;
        };
        self.rolling = true;
        let number = shared.ask(self.me, Ask::Roll { session, weight: self.weight() });
        self.asks.insert(number, Asked::Roll);
    }

    pub(super) fn rolled(&mut self, shared: &mut Shared, answer: Answer) {
        self.rolling = false;
        self.roll_at = shared.now + roll_every(shared);
        let Answer::Rolled { heads, owned, free, target } = answer else { return };
        self.heads = heads;
        if self.claiming || self.releasing || !self.is_trusted(shared) {
            self.orphans_seen = 0;
            return;
        }
        let held = self.lanes.len();
        self.orphans_seen = if owned > held { self.orphans_seen + 1 } else { 0 };
        if self.orphans_seen >= 3 {
            self.orphans_seen = 0;
            self.lose_lanes(shared);
            self.release(shared, None);
            return;
        }
        let staying = held - self.leaving.len();
        for no in self.lanes.keys().rev().take(staying.saturating_sub(target)) {
            self.leaving.entry(*no).or_insert(shared.now + 2 * SEC);
        }
        self.reassign(shared);
        if self.weight() > 0 && held < target && free > 0 && self.leaving.is_empty() {
            self.claim(shared);
        }
    }

    fn claim(&mut self, shared: &mut Shared) {
        let Some(session) = self.session else { return };
        self.claiming = true;
        let number = shared.ask(self.me, Ask::Claim { session });
        self.asks.insert(number, Asked::Claim);
    }

    pub(super) fn release(&mut self, shared: &mut Shared, lanes: Option<Vec<portero_types::LaneNo>>) {
        let Some(session) = self.session else { return };
        self.releasing = true;
        let number = shared.ask(self.me, Ask::Release { session, lanes });
        self.asks.insert(number, Asked::Release);
    }

    pub(super) fn claimed(&mut self, shared: &mut Shared, answer: Answer) {
        self.claiming = false;
        let claimed = match answer {
            Answer::Claimed(claimed) => claimed,
            Answer::Unknown => {
                // Some may have become this session's all the same: begin anew with all of them.
                self.lose_lanes(shared);
                self.release(shared, None);
                return;
            }
            Answer::Fenced => {
                self.lose_session(shared);
                return;
            }
            _ => {
                self.roll_at = shared.now + PACE;
                return;
            }
        };
        let now = self.wall(shared);
        for mut lane in claimed {
            if shared.has(Planted::DispatchesBeforeItLoadsWhatIsParked) {
                lane.restored.parked.clear();
            }
            match Lane::new(shared.profile.config.clone(), lane.epoch, lane.restored, now) {
                Ok(restored) => {
                    self.lanes.insert(lane.lane, restored);
                }
                Err(error) => {
                    let text = format!("lane {} cannot be restored: {error}", lane.lane);
                    shared.checker.broken(crate::checker::Promise::S4, text);
                }
            }
        }
        self.reassign(shared);
    }

    /// Forgets all lanes: what is open is answered with `TryAgain`, what is delivered is revoked.
    pub(super) fn lose_lanes(&mut self, shared: &mut Shared) {
        for lane in self.lanes.values_mut() {
            lane.handle_lost();
        }
        self.poll_outputs(shared);
        self.drop_lost(shared);
    }

    pub(super) fn drop_lost(&mut self, shared: &mut Shared) {
        self.lanes.retain(|_, lane| !lane.is_lost());
        self.leaving.retain(|no, _| self.lanes.contains_key(no));
        self.reassign(shared);
    }
}
