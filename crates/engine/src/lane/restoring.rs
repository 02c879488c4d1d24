//! A lane continues from what its last owner wrote.

use std::collections::HashMap;

use portero_types::{EntityHash, Epoch, Timestamp};

use super::{Counts, Lane};
use crate::batch::Batch;
use crate::detour::OpenDetour;
use crate::entity::{DeferNote, Entity, Event, Head, Place};
use crate::journal::Journal;
use crate::timers::Timers;
use crate::{Deferred, Error, LaneConfig, ParkedEntity, ParkedState, Reason, Restored};

impl Lane {
    /// A lane that continues where the last owner's written flushes ended.
    ///
    /// Deferred events are offered again once after a restart, because the ack that they waited for may just have been
    /// written.
    ///
    /// # Errors
    /// [`Error::Config`] for a limit below its bound; [`Error::ParkedOrder`] or [`Error::TwoPlaces`] for stored state
    /// that breaks an invariant.
    pub fn new(config: LaneConfig, epoch: Epoch, restored: Restored, now: Timestamp) -> Result<Self, Error> {
        config.validate()?;
        let mut lane = Self {
            config,
            epoch,
            stream: None,
            journal: Journal::new(restored.watermark, restored.acked),
            detours: restored
                .detours
                .iter()
                .map(|row| (row.tenant, OpenDetour::restored(row, restored.watermark)))
                .collect(),
            load: HashMap::new(),
            overflowing: Default::default(),
            events: HashMap::new(),
            entities: HashMap::new(),
            ready: Default::default(),
            suspects: Default::default(),
            suspect_was_last: false,
            frozen: false,
            in_flight: Default::default(),
            timers: Timers::default(),
            unknown: Default::default(),
            outside: Default::default(),
            serial: 0,
            batch: Batch::default(),
            sent: None,
            seq: 0,
            flushed_watermark: restored.watermark,
            idle_flush_at: None,
            settled: Default::default(),
            revoked: Default::default(),
            counts: Counts::default(),
            lost: false,
        };
        for row in restored.parked {
            lane.restore_parked(row)?;
        }
        for row in restored.deferred {
            lane.restore_deferred(&row)?;
        }
        let entities: Vec<EntityHash> = lane.entities.keys().copied().collect();
        for entity in entities {
            lane.advance(entity, now);
        }
        Ok(lane)
    }

    fn restore_parked(&mut self, row: ParkedEntity) -> Result<(), Error> {
        let entity = row.entity;
        let is_blocked = row.state == ParkedState::Blocked;
        if (row.positions.is_empty() && row.overflow.is_none() && !is_blocked)
            || !row.positions.is_sorted_by(|a, b| a < b)
        {
            return Err(Error::ParkedOrder { entity });
        }
        let state = self.entities.entry(entity).or_insert_with(Entity::new);
        if state.head.is_some() {
            let position = row.positions.first().copied().unwrap_or_default();
            return Err(Error::TwoPlaces { position });
        }
        // What a blocked row counts is the dead event's, not its first follower's.
        let mut offers_before = if is_blocked { 0 } else { row.attempts.saturating_add(row.interruptions) };
        state.head = Some(Box::new(Head {
            state: row.state,
            attempts: row.attempts,
            interruptions: row.interruptions,
            due_at: row.due_at,
            first_failed_at: row.first_failed_at,
            reason: Reason::new(&row.reason_code, &row.reason_text),
        }));
        state.queue = row.positions.iter().copied().collect();
        state.overflow = row.overflow;
        if row.overflow.is_some() {
            self.overflowing.insert(entity);
        }
        self.counts.parked_entities += 1;
        self.counts.blocked += usize::from(is_blocked);
        for position in row.positions {
            let event = restored_event(entity, Place::Parked, offers_before);
            offers_before = 0;
            if self.events.insert(position, event).is_some() {
                return Err(Error::TwoPlaces { position });
            }
            self.outside.insert(position);
            self.unknown.insert(position);
        }
        Ok(())
    }

    fn restore_deferred(&mut self, row: &Deferred) -> Result<(), Error> {
        let position = row.position;
        let note = Box::new(DeferNote {
            deadline: row.deadline,
            reason: Reason::new(&row.reason_code, &row.reason_text),
        });
        match self.events.get_mut(&position) {
            // It failed after it was deferred: the parked row says where it stands, this one keeps its deadline.
            Some(event)
                if event.entity == row.entity && event.place == Place::Parked && event.note.is_none() =>
            {
                event.note = Some(note);
            }
            Some(_) => return Err(Error::TwoPlaces { position }),
            None => {
                let mut event = restored_event(row.entity, Place::Deferred, 0);
                event.note = Some(note);
                self.events.insert(position, event);
                self.entities.entry(row.entity).or_insert_with(Entity::new).due.insert(position);
                self.outside.insert(position);
                self.unknown.insert(position);
                self.counts.deferred += 1;
            }
        }
        Ok(())
    }
}

const fn restored_event(entity: EntityHash, place: Place, offers_before: u32) -> Event {
    Event { entity, entry: None, place, deliveries: 0, offers_before, note: None }
}
