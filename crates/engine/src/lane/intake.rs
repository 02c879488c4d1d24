//! Entries come in from the log.

use portero_types::Timestamp;

use super::Lane;
use crate::entity::{Entity, Event, Place};
use crate::phase::Phase;
use crate::timers::Timer;
use crate::{Entry, Error};

use super::fate::Fate;

impl Lane {
    /// How many more entries the lane takes; 0 means stop reading.
    #[must_use]
    pub fn capacity(&self) -> usize {
        if self.lost {
            return 0;
        }
        let window = self.journal.window_len() + self.counts.done - self.detoured_load();
        let in_window = self.config.window_events_max.saturating_sub(window);
        in_window.min(self.config.positions_max.saturating_sub(self.events.len()))
    }

    /// Whether it is time to read on: there is room for a good part of the window, or nothing is left to offer. Reading for
    /// each free place alone would cost a page for each.
    #[must_use]
    pub fn is_hungry(&self) -> bool {
        self.is_worth_reading(self.capacity(), self.config.window_events_max)
    }

    /// Whether room for so many events out of a share is worth a read now.
    pub(super) fn is_worth_reading(&self, room: usize, share: usize) -> bool {
        room > 0 && (room >= share.div_ceil(4) || (self.ready.is_empty() && self.suspects.is_empty()))
    }

    /// Takes the matching `entries` (ascending) of a page that covers the positions above `after` up to and including
    /// `read_through`, and returns the new cursor. Entries at or below the old cursor are ignored. Takes no more than
    /// [`Lane::capacity`]: when the returned cursor is below `read_through`, read on after it once there is room.
    ///
    /// # Errors
    /// [`Error::Gap`] when `after` lies beyond the cursor. Nothing changed.
    pub fn handle_page(
        &mut self,
        now: Timestamp,
        after: u64,
        entries: &[Entry],
        read_through: u64,
    ) -> Result<u64, Error> {
        let cursor = self.journal.cursor();
        if after > cursor {
            return Err(Error::Gap { after, cursor });
        }
        if self.lost {
            return Ok(cursor);
        }
        let mut room = self.capacity();
        let mut through = read_through;
        for entry in entries.iter().take_while(|entry| entry.n <= read_through) {
            if entry.n <= self.journal.cursor() {
                continue;
            }
            if self.detours.get(&entry.tenant).is_some_and(|detour| detour.holds_up(entry.n)) {
                through = entry.n - 1;
                break;
            }
            if self.goes_past(entry) || self.take_known(entry) {
                continue;
            }
            if room == 0 {
                self.journal.read_to(entry.n - 1);
                if self.begin_detour() {
                    room = self.capacity();
                    if self.goes_past(entry) {
                        continue;
                    }
                }
            }
            if room == 0 {
                through = entry.n - 1;
                break;
            }
            room -= 1;
            self.admit(now, *entry);
        }
        self.journal.read_to(through);
        self.enforce_cap(now);
        self.tend_detours();
        self.plan_idle_flush(now);
        Ok(self.journal.cursor())
    }

    /// Whether the lane leaves the event to its tenant's detour.
    fn goes_past(&mut self, entry: &Entry) -> bool {
        let Some(detour) = self.detours.get_mut(&entry.tenant).filter(|detour| detour.covers(entry.n)) else {
            return false;
        };
        detour.skipped = detour.skipped.max(entry.n);
        self.journal.read_to(entry.n);
        true
    }

    /// Whether the event needs no place in the window: it is settled, has a place already, or goes to an overflow.
    pub(super) fn take_known(&mut self, entry: &Entry) -> bool {
        let journal = self.journal_of(entry.n, entry.tenant);
        if journal.has_passed(entry.n) {
            // Settled by an earlier owner, or in an overflow.
            journal.read_to(entry.n);
        } else if self.events.contains_key(&entry.n) {
            // Parked or deferred by an earlier owner.
            self.skip(entry.n, entry.tenant);
        } else if self.spills(entry.entity) {
            self.spill(entry);
        } else {
            return false;
        }
        true
    }

    /// Sees to it that a watermark that moved without settlements is written some time.
    pub(super) fn plan_idle_flush(&mut self, now: Timestamp) {
        if self.idle_flush_at.is_none() && self.journal.watermark() > self.flushed_watermark {
            self.idle_flush_at = Some(now.plus(self.config.idle_flush_after));
        }
    }

    pub(super) fn admit(&mut self, now: Timestamp, entry: Entry) {
        let position = entry.n;
        let state = self.entities.entry(entry.entity).or_insert_with(Entity::new);
        state.queue.push_back(position);
        let (is_parked, phase) = (state.head.is_some(), state.phase);
        let place = if is_parked { Place::Parked } else { Place::Window };
        let event = Event {
            entity: entry.entity,
            entry: Some(entry),
            place,
            deliveries: 0,
            offers_before: 0,
            note: None,
        };
        self.events.insert(position, event);
        if is_parked {
            self.skip(position, entry.tenant);
            self.outside.insert(position);
            self.batch.parks.insert(entry.entity);
        } else {
            self.open(&entry);
        }
        match phase {
            Phase::Idle => self.advance(entry.entity, now),
            // It would stand behind a delivery that has left the window, or should have.
            Phase::InFlight(offer)
                if !is_parked && offer.started_at.plus(self.config.window_age_max) <= now =>
            {
                self.park(now, entry.entity);
            }
            Phase::Fetching
            | Phase::Ready { .. }
            | Phase::InFlight(_)
            | Phase::Settling { .. }
            | Phase::Waiting { .. } => {}
        }
    }

    /// Up to `limit` parked or deferred positions whose entries the lane does not know, ascending. The same ones come
    /// again until [`Lane::handle_entries`] answers.
    #[must_use]
    pub fn needs_entries(&self, limit: usize) -> Vec<u64> {
        self.unknown.iter().copied().take(limit).collect()
    }

    /// Answers [`Lane::needs_entries`]: entries that were found, and positions that retention has dropped. The latter are
    /// counted as expired and leave the lane. Positions that were not asked for are ignored.
    pub fn handle_entries(&mut self, now: Timestamp, found: &[Entry], missing: &[u64]) {
        for entry in found {
            if !self.unknown.remove(&entry.n) {
                continue;
            }
            let event = self.event_mut(entry.n);
            // The row knows the entity under which the event was ordered so far.
            event.entry = Some(Entry { entity: event.entity, ..*entry });
            let (entity, place) = (event.entity, event.place);
            let deadline = event.note.as_deref().map(|note| note.deadline);
            if let (Place::Deferred, Some(at)) = (place, deadline) {
                self.timers.set(at, Timer::Deadline(entry.n));
            }
            if self.entity_mut(entity).phase == Phase::Fetching {
                self.advance(entity, now);
            }
        }
        for position in missing {
            if self.unknown.contains(position) {
                self.conclude(now, *position, Fate::Expired);
            }
        }
    }
}
