//! Settlements come in, statuses go out.

use portero_types::Timestamp;
use rand::Rng;

use super::Lane;
use super::fate::{Failure, Fate};
use crate::batch::Effect;
use crate::entity::Place;
use crate::{Outcome, RevokeReason, Settled, Settlement, Status, Tag, Token, reason};

/// Statuses that may wait for a flush, for each event of the window.
const ANSWERS_PER_WINDOW_EVENT: usize = 4;

impl Lane {
    /// Takes an outcome. Its status comes by [`Lane::poll_settled`] under the same `tag`, exactly once: at once when
    /// there is nothing to write, otherwise after the flush that contains it.
    pub fn handle_settle(&mut self, now: Timestamp, rng: &mut dyn Rng, settlement: Settlement, tag: Tag) {
        match self.settle(now, rng, settlement) {
            Verdict::Now(status) => self.settled.push_back(Settled { tag, status }),
            Verdict::Written(status) => {
                self.counts.answers += 1;
                self.batch.effects.push(Effect::Answer { tag, status });
            }
        }
    }

    /// The next answered settlement.
    pub fn poll_settled(&mut self) -> Option<Settled> {
        self.settled.pop_front()
    }

    fn settle(&mut self, now: Timestamp, rng: &mut dyn Rng, settlement: Settlement) -> Verdict {
        let Settlement { token, outcome, reason } = settlement;
        let answers_max = self.config.window_events_max.saturating_mul(ANSWERS_PER_WINDOW_EVENT);
        if self.lost || token.epoch > self.epoch || self.counts.answers >= answers_max {
            return Verdict::Now(Status::TryAgain);
        }
        let Some(event) = self.events.get(&token.position) else {
            return Verdict::Now(self.status_of_absent(token));
        };
        let deliveries = event.deliveries;
        if token.epoch == self.epoch && !(1..=deliveries).contains(&token.delivery) {
            return Verdict::Now(Status::UnknownToken);
        }
        if event.place == Place::Done {
            return Verdict::Written(Status::Already);
        }
        if self.offer(token).is_none() {
            return self.settle_late(now, token, outcome, deliveries);
        }
        let position = token.position;
        match outcome {
            Outcome::Ack => self.conclude(now, position, Fate::Acked),
            Outcome::Retry { delay } => self.fail(now, rng, position, Failure::Counted { delay, reason }),
            Outcome::Release => {
                self.release(now, position);
                return Verdict::Now(Status::Durable);
            }
            Outcome::Reject => {
                let entity = self.event(position).entity;
                let mut tally = self.entity_mut(entity).tally(position, now);
                tally.attempts = tally.attempts.saturating_add(1);
                self.die(now, position, reason.or_code(reason::REJECTED), tally);
            }
            Outcome::Defer => self.defer(now, position, reason),
        }
        Verdict::Written(Status::Durable)
    }

    /// An outcome of a delivery that is over, of an event that is open. That it was processed stays true whoever held
    /// it; anything else does not.
    fn settle_late(&mut self, now: Timestamp, token: Token, outcome: Outcome, deliveries: u32) -> Verdict {
        if outcome != Outcome::Ack {
            return Verdict::Now(Status::Stale);
        }
        if let Some(offer) = self.offer_of(token.position) {
            self.revoke(offer, RevokeReason::SettledElsewhere);
        }
        self.conclude(now, token.position, Fate::Acked);
        let redelivered = token.epoch < self.epoch || deliveries > token.delivery;
        Verdict::Written(if redelivered { Status::DurableLate } else { Status::Durable })
    }

    /// The status of a position that the lane does not hold.
    fn status_of_absent(&self, token: Token) -> Status {
        let is_former = token.epoch < self.epoch;
        if is_former && self.detours.values().any(|detour| detour.has_before_it(token.position)) {
            // A former owner delivered it on a detour; this one may have still to read it.
            Status::TryAgain
        } else if is_former && self.may_overflow_with(token.position) {
            // A former owner had read it from an overflow that is as it was before.
            Status::TryAgain
        } else if self.journal.has_passed(token.position) {
            // Events leave the lane only when their end is written.
            Status::Already
        } else if token.position > self.journal.cursor() && is_former {
            // A former owner delivered it; this one has still to read it.
            Status::TryAgain
        } else {
            Status::UnknownToken
        }
    }
}

/// When a settlement gets which status.
enum Verdict {
    Now(Status),
    /// With the next flush.
    Written(Status),
}
