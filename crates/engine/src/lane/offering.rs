//! Events go out to streams.

use std::time::Duration;

use portero_types::{EntityHash, Timestamp};

use super::Lane;
use crate::entity::{Entity, Place};
use crate::phase::{Offer, Phase};
use crate::{Delivery, Revoke, RevokeReason, Room, StreamId, Token, Want};

impl Lane {
    /// Names the stream for new deliveries, or none. Deliveries in flight stay on their stream until they are settled or
    /// that stream ends, and their entities wait for that.
    pub const fn set_stream(&mut self, stream: Option<StreamId>) {
        self.stream = stream;
    }

    /// The next delivery for the current stream, when there is one that fits into `room`. A first-in-line event that does
    /// not fit is waited for, not overtaken; [`Lane::waits_for`] says so. One that has to be alone on its stream waits aside.
    /// Logarithmic in the lane's size.
    pub fn poll_delivery(&mut self, now: Timestamp, room: Room) -> Option<Delivery> {
        let stream = self.stream?;
        let (entity, alone) = self.next_in_line(room)?;
        let (position, _) = self.entity_mut(entity).candidate().expect("a ready entity has a candidate");
        let epoch = self.epoch;
        let event = self.events.get_mut(&position).expect("every open position has its event");
        let entry = event.entry.expect("a ready event is known");
        if !room.takes(entry.body_bytes) {
            return None;
        }
        event.deliveries = event.deliveries.saturating_add(1);
        let token = Token { epoch, position, delivery: event.deliveries };
        let attempt = event.offers_before.saturating_add(event.deliveries);
        if event.place == Place::Deferred {
            let state = self.entity_mut(entity);
            state.due.remove(&position);
            state.resting.insert(position);
        }
        self.suspect_was_last = alone;
        let state = self.entity_mut(entity);
        state.was_offered = true;
        state.cut = None;
        let hold_until = now.plus(self.config.max_hold);
        self.enter(entity, Phase::InFlight(Offer { token, stream, started_at: now, hold_until }));
        Some(Delivery { stream, token, entry, attempt, alone })
    }

    /// Puts an entity that has something to offer in line, whether it is due or not.
    pub(super) fn offer_at_once(&mut self, entity: EntityHash) {
        let next = self.entities.get(&entity).and_then(Entity::candidate).map(|(position, _)| position);
        match next.filter(|position| self.event(*position).entry.is_some()) {
            Some(position) => {
                let turn = self.turn_of(position);
                self.enter(entity, Phase::Ready { turn });
            }
            None => self.enter(entity, Phase::Fetching),
        }
    }

    /// The entity whose turn it is, and whether it is a suspect's. While the stream is idle, suspects and others alternate.
    fn next_in_line(&self, room: Room) -> Option<(EntityHash, bool)> {
        let other = self.ready.first().map(|entity| (entity, false));
        let suspect = self.suspects.first().map(|entity| (entity, true));
        let suspect = suspect.filter(|_| room.idle);
        if self.suspect_was_last { other.or(suspect) } else { suspect.or(other) }
    }

    /// What the lane's events wait for when [`Lane::poll_delivery`] gives nothing in this `room`, although events of it are
    /// ready and its number of events is not used up. Then the caller should keep the stream's room for this lane until
    /// the wish is met: otherwise others use it up again and again. An event that wants to be alone may take long to get
    /// its way, so the caller should bound that.
    #[must_use]
    pub fn waits_for(&self, room: Room) -> Option<Want> {
        self.stream?;
        let first = self.ready.first().and_then(|entity| {
            let (position, _) = self.entities.get(&entity)?.candidate()?;
            self.event(position).entry
        });
        if first.is_some_and(|entry| !room.takes(entry.body_bytes)) {
            return Some(Want::Bytes);
        }
        (!self.suspects.is_empty() && !room.idle).then_some(Want::Alone)
    }

    /// Whether an event of the lane is ready that has to be alone on its stream.
    #[must_use]
    pub fn wants_to_be_alone(&self) -> bool {
        self.stream.is_some() && !self.suspects.is_empty()
    }

    /// Gives a delivery time until `now + duration` (at most `hold_extension_max`), never less than it had. Returns
    /// whether the delivery is still going on.
    pub fn handle_hold(&mut self, now: Timestamp, token: Token, duration: Duration) -> bool {
        let Some(offer) = self.offer(token) else { return false };
        let asked = now.plus(duration.min(self.config.hold_extension_max));
        let entity = self.event(token.position).entity;
        // The timer stays where it is; when it rings, it is set to the new moment.
        let hold_until = asked.max(offer.hold_until);
        self.entity_mut(entity).phase = Phase::InFlight(Offer { hold_until, ..offer });
        true
    }

    /// The next delivery that its consumer should stop working on.
    pub fn poll_revoke(&mut self) -> Option<Revoke> {
        self.revoked.pop_front()
    }

    /// The delivery that `token` names, when it is still going on.
    pub(super) fn offer(&self, token: Token) -> Option<Offer> {
        self.offer_of(token.position).filter(|offer| offer.token == token)
    }

    /// The delivery of the event at `position` that is going on.
    pub(super) fn offer_of(&self, position: u64) -> Option<Offer> {
        let event = self.events.get(&position)?;
        match self.entities.get(&event.entity)?.phase {
            Phase::InFlight(offer) if offer.token.position == position => Some(offer),
            Phase::Idle
            | Phase::Fetching
            | Phase::Ready { .. }
            | Phase::InFlight(_)
            | Phase::Settling { .. }
            | Phase::Waiting { .. } => None,
        }
    }

    pub(super) fn revoke(&mut self, offer: Offer, reason: RevokeReason) {
        self.revoked.push_back(Revoke { stream: offer.stream, token: offer.token, reason });
    }
}
