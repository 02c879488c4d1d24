//! What is due by time.

use portero_types::{EntityHash, Timestamp};
use rand::Rng;

use super::Lane;
use super::fate::Failure;
use crate::entity::Place;
use crate::phase::Phase;
use crate::timers::Timer;
use crate::{Reason, RevokeReason, reason};

impl Lane {
    /// Does what is due: backoffs, deadlines, holds, ages.
    pub fn handle_timeout(&mut self, now: Timestamp, rng: &mut dyn Rng) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Entity(entity) => self.entity_is_due(now, rng, entity),
                Timer::Deadline(position) => self.deadline_is_due(now, position),
            }
        }
    }

    /// When to call [`Lane::handle_timeout`], or to poll an idle flush; may lie in the past.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let idle_flush_at = self.idle_flush_at.filter(|_| self.sent.is_none());
        self.timers.next().into_iter().chain(idle_flush_at).min()
    }

    fn entity_is_due(&mut self, now: Timestamp, rng: &mut dyn Rng, entity: EntityHash) {
        let state = self.entity_mut(entity);
        state.timer = None;
        match state.phase {
            Phase::Waiting { .. } => {
                let (position, _) = state.candidate().expect("what waits for its moment is a candidate");
                let turn = self.turn_of(position);
                self.enter(entity, Phase::Ready { turn });
            }
            Phase::InFlight(offer) if offer.hold_until <= now => {
                self.revoke(offer, RevokeReason::HoldExpired);
                let reason = Reason::new(reason::HOLD_EXPIRED, "");
                self.fail(now, rng, offer.token.position, Failure::Counted { delay: None, reason });
            }
            Phase::InFlight(offer) => {
                state.timer = Some(offer.hold_until);
                let is_parked = state.head.is_some();
                self.timers.set(offer.hold_until, Timer::Entity(entity));
                if !is_parked && offer.started_at.plus(self.config.window_age_max) <= now {
                    self.park(now, entity);
                    self.enforce_cap(now);
                }
            }
            Phase::Idle | Phase::Fetching | Phase::Ready { .. } | Phase::Settling { .. } => {}
        }
    }

    fn deadline_is_due(&mut self, now: Timestamp, position: u64) {
        // In flight it may still be acked, parked it has its attempts: both look at the deadline when it steps aside again.
        if self.event(position).place == Place::Deferred && self.offer_of(position).is_none() {
            self.die_deferred(now, position);
        }
    }
}
