//! Entities leave the window, so that neither a slow event nor a busy entity holds the watermark.

use portero_types::{EntityHash, Timestamp};

use super::Lane;
use crate::ParkedState;
use crate::entity::{Head, Place};
use crate::phase::Phase;

impl Lane {
    /// Moves an entity's events out of the window, uncounted. A delivery goes on. Does nothing for a parked entity or one
    /// without events in the window.
    pub(super) fn park(&mut self, now: Timestamp, entity: EntityHash) {
        let Self { entities, events, journal, outside, batch, counts, .. } = self;
        let state = entities.get_mut(&entity).expect("every open event has its entity");
        let Some(first) = state.queue.front().copied() else { return };
        batch.parks.insert(entity);
        if state.head.is_some() {
            return;
        }
        let in_hand = matches!(state.phase, Phase::InFlight(offer) if offer.token.position == first);
        let reason = if in_hand { ParkedState::Held } else { ParkedState::Draining };
        state.head = Some(Box::new(Head::unfailed(reason, now)));
        counts.parked_entities += 1;
        for position in &state.queue {
            outside.insert(*position);
            let event = events.get_mut(position).expect("every open position has its event");
            if event.place == Place::Window {
                event.place = Place::Parked;
                journal.pass(*position);
            }
        }
    }

    /// Keeps the list of settled positions within its cap: the oldest events leave the window until it fits.
    pub(super) fn enforce_cap(&mut self, now: Timestamp) {
        while self.journal.acked_len() > self.config.acked_max {
            let Some(oldest) = self.journal.oldest() else { return };
            let entity = self.event(oldest).entity;
            self.park(now, entity);
            debug_assert!(self.journal.oldest() != Some(oldest), "a parked event has left the window");
            if self.journal.oldest() == Some(oldest) {
                return;
            }
        }
    }
}
