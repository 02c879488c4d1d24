//! Deliveries go on at another stream of their consumer.

use portero_types::{EntityHash, Timestamp};

use super::Lane;
use crate::entity::{Entity, Head, Place};
use crate::phase::{Offer, Phase};
use crate::{Entry, ParkedState, StreamId, Token};

impl Lane {
    /// A consumer has come back on `stream` and still works on the delivery `token`. Returns whether it goes on there, under
    /// the same token and with a new hold.
    ///
    /// It does when the event is open and nothing of its entity was offered since: within an epoch, when the end of its
    /// stream cut it short and it was its entity's last delivery; from the epoch before, when nothing of its entity was
    /// offered in this one. An interruption that the end of its stream counted is taken back; one that an earlier owner
    /// counted stays. Otherwise nothing changes; the consumer should stop working on it, and an ack of it still counts.
    pub fn handle_adopt(&mut self, now: Timestamp, token: Token, stream: StreamId) -> bool {
        let Some(entity) = self.adoptable(token) else { return false };
        let position = token.position;
        self.take_interruption_back(now, entity);
        let is_deferred = self.event(position).place == Place::Deferred;
        let state = self.entity_mut(entity);
        state.was_offered = true;
        if is_deferred {
            state.due.remove(&position);
            state.resting.insert(position);
        }
        if let Some(head) = state.head.as_deref_mut().filter(|head| head.due_at > now) {
            head.due_at = now;
            self.batch.parks.insert(entity);
        }
        let hold_until = now.plus(self.config.max_hold);
        self.enter(entity, Phase::InFlight(Offer { token, stream, started_at: now, hold_until }));
        true
    }

    /// Whether the lane has still to read or fetch before [`Lane::handle_adopt`] can decide on `token`.
    #[must_use]
    pub fn has_to_read_for(&self, token: Token) -> bool {
        if self.lost || !self.is_of_the_epoch_before(token) {
            return false;
        }
        match self.events.get(&token.position) {
            None => {
                let is_before_lane =
                    token.position > self.journal.cursor() && !self.journal.has_passed(token.position);
                is_before_lane || self.detours.values().any(|detour| detour.has_before_it(token.position))
            }
            Some(event) => {
                let is_known = event.entry.is_some() && self.next_is_known(event.entity);
                event.place != Place::Done && !is_known
            }
        }
    }

    /// The log entry of an event that the lane holds and knows.
    #[must_use]
    pub fn entry(&self, position: u64) -> Option<Entry> {
        self.events.get(&position)?.entry
    }

    /// Whether the entry of what the entity would offer next is known.
    fn next_is_known(&self, entity: EntityHash) -> bool {
        let next = self.entities.get(&entity).and_then(Entity::candidate);
        next.is_none_or(|(position, _)| self.event(position).entry.is_some())
    }

    /// Clients may make up any number.
    fn is_of_the_epoch_before(&self, token: Token) -> bool {
        token.epoch.0.checked_add(1) == Some(self.epoch.0)
    }

    fn adoptable(&self, token: Token) -> Option<EntityHash> {
        let event = self.events.get(&token.position)?;
        if event.place == Place::Done || event.entry.is_none() || token.delivery == 0 {
            return None;
        }
        let state = self.entities.get(&event.entity)?;
        let is_free = match state.phase {
            Phase::Ready { .. } | Phase::Waiting { .. } => true,
            Phase::Settling { .. } => self.next_is_known(event.entity),
            Phase::Idle | Phase::Fetching | Phase::InFlight(_) => false,
        };
        let was_last = match &state.cut {
            Some(cut) => cut.token == token,
            // With another owner in between, that one may have offered it to somebody else.
            None => !state.was_offered && self.is_of_the_epoch_before(token),
        };
        (is_free && was_last && state.may_resume(token.position)).then_some(event.entity)
    }

    /// The entity stays out of the window, where the interruption had brought it, but as it was before.
    fn take_interruption_back(&mut self, now: Timestamp, entity: EntityHash) {
        let state = self.entity_mut(entity);
        let Some(cut) = state.cut.take() else { return };
        let Some(before) = cut.before else { return };
        if before.was_deferred {
            self.step_aside_again(now, entity, cut.token.position, before.head);
        } else {
            let had_failed = before.head.filter(|head| head.state == ParkedState::Retry);
            let head = had_failed.unwrap_or_else(|| Box::new(Head::unfailed(ParkedState::Held, now)));
            state.head = Some(head);
        }
        self.batch.parks.insert(entity);
    }

    /// A deferred event leaves the queue again. If it stayed there unfailed, other deferred ones would come before it, and where
    /// one of those failed, the queue would be out of order.
    fn step_aside_again(
        &mut self,
        now: Timestamp,
        entity: EntityHash,
        position: u64,
        before: Option<Box<Head>>,
    ) {
        let state = self.entity_mut(entity);
        debug_assert_eq!(state.queue.front(), Some(&position), "what failed is first");
        state.queue.pop_front();
        state.resting.insert(position);
        state.head = Some(before.unwrap_or_else(|| Box::new(Head::unfailed(ParkedState::Draining, now))));
        let is_over = state.unpark_if_empty();
        self.counts.parked_entities -= usize::from(is_over);
        self.counts.deferred += 1;
        self.event_mut(position).place = Place::Deferred;
        self.batch.defers.insert(position);
    }
}
