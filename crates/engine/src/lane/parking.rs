//! Entities leave the window, so that neither a slow event nor a busy entity holds the watermark.

use portero_types::{EntityHash, Timestamp};

use super::Lane;
use crate::ParkedState;
use crate::entity::{Head, Place};
use crate::journal::Journal;
use crate::phase::Phase;

impl Lane {
    /// Moves an entity's events out of the window, uncounted. A delivery goes on. Does nothing for a parked entity or one
    /// without events in the window.
    pub(super) fn park(&mut self, now: Timestamp, entity: EntityHash) {
        let Self { entities, outside, batch, counts, .. } = self;
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
        let waiting: Vec<u64> = state.queue.iter().copied().collect();
        outside.extend(waiting.iter().copied());
        for position in waiting {
            if self.event(position).place == Place::Window {
                self.event_mut(position).place = Place::Parked;
                self.pass(position);
            }
        }
        self.trim(entity);
    }

    /// Keeps the lists of settled positions within their cap: the oldest events leave the window until they fit.
    pub(super) fn enforce_cap(&mut self, now: Timestamp) {
        while let Some(oldest) = self.oldest_behind_a_long_list() {
            let entity = self.event(oldest).entity;
            self.park(now, entity);
            let is_stuck = self.events.get(&oldest).is_some_and(|event| event.place == Place::Window);
            debug_assert!(!is_stuck, "a parked event has left the window");
            if is_stuck {
                return;
            }
        }
    }

    fn oldest_behind_a_long_list(&self) -> Option<u64> {
        let mut long = self.journals().filter(|journal| journal.acked_len() > self.config.acked_max);
        long.find_map(Journal::oldest)
    }
}
