//! What can become of an event: it ends, fails for now, steps aside, or comes back.

use std::time::Duration;

use portero_types::{EntityHash, Timestamp};
use rand::Rng;

use super::Lane;
use crate::batch::{Effect, End};
use crate::entity::{DeferNote, Head, Place, Tally};
use crate::phase::Phase;
use crate::timers::Timer;
use crate::{DeadLetter, DeadLetterPolicy, ParkedState, Reason, reason};

/// How an event ends.
pub(super) enum Fate {
    Acked,
    /// With a reason whose code is not empty.
    Dead(Reason, Tally),
    Expired,
}

/// How a delivery failed.
pub(super) enum Failure {
    /// An attempt; `None` takes the backoff's delay.
    Counted {
        delay: Option<Duration>,
        reason: Reason,
    },
    Interrupted,
}

impl Lane {
    /// Ends an event, wherever it stands. Its entity waits for the flush, unless another event of it is in flight.
    pub(super) fn conclude(&mut self, now: Timestamp, position: u64, fate: Fate) {
        let event = self.events.get_mut(&position).expect("only open events are concluded");
        let (entity, place, entry) = (event.entity, event.place, event.entry);
        debug_assert!(place != Place::Done);
        event.place = Place::Done;
        let note = event.note.take();
        self.counts.done += 1;
        self.unknown.remove(&position);
        if place == Place::Deferred {
            self.counts.deferred -= 1;
        }
        if let Some(note) = note {
            self.timers.cancel(note.deadline, Timer::Deadline(position));
            self.batch.defers.insert(position);
        }
        self.take_from_entity(now, entity, position, place);
        let end = match fate {
            Fate::Acked => End::Acked,
            Fate::Expired => End::Expired,
            Fate::Dead(reason, tally) => {
                self.batch.dead.push(DeadLetter {
                    position,
                    receipt_id: entry.expect("only known events die").receipt_id,
                    entity,
                    attempts: tally.attempts,
                    interruptions: tally.interruptions,
                    reason_code: reason.code().to_owned(),
                    reason_text: reason.text().to_owned(),
                    first_failed_at: tally.first_failed_at,
                    died_at: now,
                });
                End::Dead
            }
        };
        self.batch.effects.push(Effect::Concluded { position, end });
        self.settle_entity(entity, position);
        self.enforce_cap(now);
    }

    /// Ends an event that failed for good, and blocks its entity where that is the policy.
    pub(super) fn die(&mut self, now: Timestamp, position: u64, reason: Reason, tally: Tally) {
        let entity = self.event(position).entity;
        self.conclude(now, position, Fate::Dead(reason.clone(), tally));
        if self.config.dead_letter_policy == DeadLetterPolicy::ParkEntity {
            self.block(now, entity, reason, tally);
        }
    }

    /// Keeps everything of an entity back until an operator acts. Its row tells of the event that died.
    fn block(&mut self, now: Timestamp, entity: EntityHash, reason: Reason, tally: Tally) {
        self.park(now, entity);
        let head = Head {
            state: ParkedState::Blocked,
            attempts: tally.attempts,
            interruptions: tally.interruptions,
            due_at: now,
            first_failed_at: tally.first_failed_at,
            reason,
        };
        let was = self.entity_mut(entity).head.replace(Box::new(head));
        self.counts.parked_entities += usize::from(was.is_none());
        self.counts.blocked += 1;
        self.batch.parks.insert(entity);
        self.trim(entity);
        self.enforce_cap(now);
    }

    /// Lets failures count no attempts from now on, or count them again: when nearly everything fails it is not the events.
    /// They wait for their next attempt all the same.
    pub const fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// Takes over a subscription's changed attempts, deadline and dead-letter policy, for what happens from now on: deferred
    /// events keep their deadlines, and blocked entities stay so.
    pub const fn set_limits(
        &mut self,
        attempts_max: u32,
        defer_deadline: Duration,
        policy: DeadLetterPolicy,
    ) {
        self.config.attempts_max = attempts_max;
        self.config.defer_deadline = defer_deadline;
        self.config.dead_letter_policy = policy;
    }

    /// Counts a failure and parks the entity behind the event, or ends the event when it was one too many.
    pub(super) fn fail(&mut self, now: Timestamp, rng: &mut dyn Rng, position: u64, failure: Failure) {
        let entity = self.event(position).entity;
        let mut tally = self.entity_mut(entity).tally(position, now);
        let (delay, reason, is_last) = match failure {
            Failure::Counted { delay, reason } => {
                let failures = tally.attempts.saturating_add(1);
                let delay = delay.map_or_else(
                    || self.config.backoff.draw(failures, rng),
                    |asked| asked.min(self.config.retry_delay_max),
                );
                if !self.frozen {
                    tally.attempts = failures;
                }
                (delay, reason, tally.attempts >= self.config.attempts_max)
            }
            Failure::Interrupted => {
                tally.interruptions = tally.interruptions.saturating_add(1);
                let delay = self.config.backoff.draw(1, rng);
                let is_last = tally.interruptions >= self.config.interruptions_max;
                (delay, Reason::new(reason::INTERRUPTED, ""), is_last)
            }
        };
        if is_last {
            let reason = reason.or_code(reason::ATTEMPTS_EXHAUSTED);
            self.die(now, position, reason, tally);
            return;
        }
        self.postpone(now, position, tally, delay, reason);
    }

    /// Parks the entity behind the event until it is due again.
    pub(super) fn postpone(
        &mut self,
        now: Timestamp,
        position: u64,
        tally: Tally,
        delay: Duration,
        reason: Reason,
    ) {
        let entity = self.event(position).entity;
        if self.event(position).place == Place::Deferred {
            // It was on its second chance; now it blocks its entity like any other.
            self.event_mut(position).place = Place::Parked;
            self.counts.deferred -= 1;
            let state = self.entity_mut(entity);
            state.due.remove(&position);
            state.resting.remove(&position);
            state.queue.push_front(position);
        }
        self.park(now, entity);
        let head = Head {
            state: ParkedState::Retry,
            attempts: tally.attempts,
            interruptions: tally.interruptions,
            due_at: now.plus(delay),
            first_failed_at: tally.first_failed_at,
            reason,
        };
        self.entity_mut(entity).head = Some(Box::new(head));
        self.settle_entity(entity, position);
        self.enforce_cap(now);
    }

    /// Lets an event step aside without blocking its entity, or ends it when its deadline has passed.
    pub(super) fn defer(&mut self, now: Timestamp, position: u64, reason: Reason) {
        let default_deadline = now.plus(self.config.defer_deadline);
        let event = self.events.get_mut(&position).expect("only open events are deferred");
        let (entity, place) = (event.entity, event.place);
        let deadline = event.note.as_deref().map_or(default_deadline, |note| note.deadline);
        event.note = Some(Box::new(DeferNote { deadline, reason }));
        if deadline <= now {
            self.die_deferred(now, position);
            return;
        }
        self.timers.set(deadline, Timer::Deadline(position));
        self.batch.defers.insert(position);
        if place != Place::Deferred {
            self.take_from_entity(now, entity, position, place);
            self.event_mut(position).place = Place::Deferred;
            self.outside.insert(position);
            self.counts.deferred += 1;
            self.entity_mut(entity).resting.insert(position);
        }
        // When an ack was written while it was in flight it is due again already.
        self.settle_entity(entity, position);
        self.enforce_cap(now);
    }

    /// Ends a deferred event at its deadline.
    pub(super) fn die_deferred(&mut self, now: Timestamp, position: u64) {
        let note = self.event(position).note.as_deref().expect("a deferred event has its note");
        let last = note.reason.in_words();
        let first_failed_at = note.deadline.minus(self.config.defer_deadline);
        let tally = Tally { attempts: 0, interruptions: 0, first_failed_at };
        self.conclude(now, position, Fate::Dead(Reason::new(reason::DEFER_DEADLINE, &last), tally));
    }

    /// Offers an event in flight again at once, uncounted.
    pub(super) fn release(&mut self, now: Timestamp, position: u64) {
        let event = self.event(position);
        let entity = event.entity;
        if event.place == Place::Deferred {
            if event.note.as_deref().is_some_and(|note| note.deadline <= now) {
                self.die_deferred(now, position);
                return;
            }
            let state = self.entity_mut(entity);
            state.resting.remove(&position);
            state.due.insert(position);
        }
        // Only an adopted one may be in flight while something of its entity is unwritten.
        match self.entity_mut(entity).unwritten {
            Some(serial) => self.enter(entity, Phase::Settling { serial }),
            None => self.offer_at_once(entity),
        }
    }

    /// Takes an event out of its place and marks what has to be written for that.
    fn take_from_entity(&mut self, now: Timestamp, entity: EntityHash, position: u64, place: Place) {
        let state = self.entity_mut(entity);
        let was_parked = state.head.is_some();
        state.remove(position, now);
        let is_parked = state.head.is_some();
        self.counts.parked_entities -= usize::from(was_parked && !is_parked);
        match place {
            Place::Window => self.pass(position),
            Place::Parked => {
                self.batch.parks.insert(entity);
                self.outside.remove(&position);
            }
            Place::Deferred => {
                self.outside.remove(&position);
            }
            Place::Done => {}
        }
    }

    /// Lets the entity wait for the next flush, unless another of its events than `position` is in flight.
    pub(super) fn settle_entity(&mut self, entity: EntityHash, position: u64) {
        match self.entity_mut(entity).phase {
            Phase::InFlight(offer) if offer.token.position != position => {}
            Phase::Idle
            | Phase::Fetching
            | Phase::Ready { .. }
            | Phase::InFlight(_)
            | Phase::Settling { .. }
            | Phase::Waiting { .. } => {
                let serial = self.next_serial();
                self.entity_mut(entity).unwritten = Some(serial);
                self.enter(entity, Phase::Settling { serial });
                self.batch.effects.push(Effect::Resume { entity, serial });
            }
        }
    }
}
