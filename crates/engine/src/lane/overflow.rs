//! Overflow: what waits behind a parked head beyond a bound is a range of the log instead of a list.

use portero_types::{EntityHash, Timestamp};

use super::Lane;
use crate::entity::{Entity, Event, Place};
use crate::phase::Phase;
use crate::{Entry, Overflow, ParkedState};

/// Positions that an entity may list when the lane holds more than half of what it may hold.
const LISTED_WHEN_CROWDED: usize = 16;

impl Lane {
    /// How many positions a parked entity may list now, one at least.
    fn listed_max_of(&self, state: &Entity) -> usize {
        let is_blocked = state.state() == Some(ParkedState::Blocked);
        let listed_max = self.listed_max();
        if is_blocked { listed_max.min(self.config.blocked_max) } else { listed_max }.max(1)
    }

    fn listed_max(&self) -> usize {
        let is_crowded = self.outside.len() > self.config.positions_max / 2;
        if is_crowded { self.config.parked_max.min(LISTED_WHEN_CROWDED) } else { self.config.parked_max }
    }

    /// Whether an event of the entity that is read now goes to its overflow.
    pub(super) fn spills(&self, entity: EntityHash) -> bool {
        self.entities.get(&entity).is_some_and(|state| {
            let is_full = state.head.is_some() && state.queue.len() >= self.listed_max_of(state);
            state.overflow.is_some() || is_full
        })
    }

    /// Leaves an event in the log, behind those of its entity that are listed.
    pub(super) fn spill(&mut self, entry: &Entry) {
        let state = self.entity_mut(entry.entity);
        // Not from the last listed one on: when that is a deferred event that failed, later ones may be settled.
        let overflow = state.overflow.get_or_insert(Overflow { after: entry.n - 1, last: entry.n });
        overflow.last = overflow.last.max(entry.n);
        self.overflowing.insert(entry.entity);
        self.batch.parks.insert(entry.entity);
        self.skip(entry.n, entry.tenant);
    }

    /// Cuts what an entity lists that was just parked or blocked down to the bound, but for the first two: when the first one is a deferred event
    /// that failed, the second one may have been offered before.
    pub(super) fn trim(&mut self, entity: EntityHash) {
        let listed_max = self.entities.get(&entity).map_or(2, |state| self.listed_max_of(state).max(2));
        loop {
            let state = self.entity_mut(entity);
            if state.queue.len() <= listed_max {
                return;
            }
            let Some(last) = state.queue.pop_back() else { return };
            let before = state.overflow.map_or(last, |overflow| overflow.last);
            state.overflow = Some(Overflow { after: last - 1, last: before });
            self.overflowing.insert(entity);
            self.events.remove(&last);
            self.outside.remove(&last);
            self.unknown.remove(&last);
        }
    }

    /// Whether an event at `position` may be in an overflow.
    pub(super) fn may_overflow_with(&self, position: u64) -> bool {
        let overflows = self.overflowing.iter().filter_map(|entity| self.entities.get(entity)?.overflow);
        overflows.into_iter().any(|overflow| overflow.after < position && position <= overflow.last)
    }

    /// What has to be read of an entity's overflow now: a range, and how many events of it.
    pub(super) fn overflow_range(&self, entity: EntityHash) -> Option<(Overflow, usize)> {
        let state = self.entities.get(&entity)?;
        let overflow = state.overflow?;
        let is_blocked = state.head.as_deref().is_some_and(|head| head.state == ParkedState::Blocked);
        let listed = state.queue.len();
        let free = self.config.positions_max.saturating_sub(self.events.len()).max(LISTED_WHEN_CROWDED);
        let room = self.listed_max().saturating_sub(listed).min(free);
        (!is_blocked && listed <= self.listed_max() / 2 && room > 0).then_some((overflow, room))
    }

    /// Takes what was read of an entity's overflow.
    pub(super) fn read_overflow(
        &mut self,
        now: Timestamp,
        entity: EntityHash,
        after: u64,
        entries: &[Entry],
        read_through: u64,
    ) {
        let Some((overflow, room)) = self.overflow_range(entity) else { return };
        if overflow.after != after {
            return;
        }
        let mut through = read_through.min(overflow.last);
        let listed = entries.iter().take_while(|entry| entry.n <= read_through.min(overflow.last));
        for (taken, entry) in listed.filter(|entry| entry.n > after).enumerate() {
            if taken == room {
                through = entry.n - 1;
                break;
            }
            let event = Event {
                entity,
                entry: Some(Entry { entity, ..*entry }),
                place: Place::Parked,
                deliveries: 0,
                offers_before: 0,
                note: None,
            };
            self.events.insert(entry.n, event);
            self.outside.insert(entry.n);
            self.entity_mut(entity).queue.push_back(entry.n);
        }
        let state = self.entity_mut(entity);
        state.overflow = (through < overflow.last).then_some(Overflow { after: through, ..overflow });
        let (is_done, is_idle) = (state.overflow.is_none(), state.phase == Phase::Idle);
        if is_done {
            self.overflowing.remove(&entity);
            if self.entity_mut(entity).unpark_if_empty() {
                self.counts.parked_entities -= 1;
            }
        }
        self.batch.parks.insert(entity);
        if is_idle {
            self.advance(entity, now);
        }
    }
}
