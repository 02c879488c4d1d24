//! A store in memory that takes flushes as a transaction would, and gives a lane back to its next owner.

use std::collections::BTreeMap;

use portero_engine::{DeadLetter, Deferred, Detour, Flush, ParkedEntity, ParkedState, Restored};
use portero_types::EntityHash;

/// What is written of one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) watermark: u64,
    pub(crate) acked: Vec<u64>,
    pub(crate) detours: Vec<Detour>,
    pub(crate) parked: BTreeMap<EntityHash, ParkedEntity>,
    pub(crate) deferred: BTreeMap<u64, Deferred>,
    pub(crate) dead: BTreeMap<u64, DeadLetter>,
    last: Flush,
}

impl Store {
    /// Commits a flush. The same `seq` again must be the same content and changes nothing.
    pub(crate) fn write(&mut self, flush: &Flush) {
        if flush.seq == self.last.seq {
            assert_eq!(*flush, self.last, "the same number is the same flush");
            return;
        }
        assert!(flush.seq > self.last.seq, "the number rises");
        assert!(flush.watermark >= self.watermark, "the watermark never falls");
        assert!(flush.acked.is_sorted_by(|a, b| a < b), "settled positions rise");
        assert!(
            flush.acked.first().is_none_or(|first| *first > flush.watermark),
            "they lie above the watermark"
        );
        self.watermark = flush.watermark;
        self.acked.clone_from(&flush.acked);
        self.detours.clone_from(&flush.detours);
        for entity in &flush.unpark {
            self.parked.remove(entity);
        }
        for row in &flush.park {
            let is_blocked = row.state == ParkedState::Blocked;
            assert!(!row.positions.is_empty() || row.overflow.is_some() || is_blocked, "something waits");
            assert!(row.positions.is_sorted_by(|a, b| a < b), "parked positions rise");
            assert!(!flush.unpark.contains(&row.entity), "an entity is parked or not");
            self.parked.insert(row.entity, row.clone());
        }
        for position in &flush.undefer {
            self.deferred.remove(position);
        }
        for row in &flush.defer {
            assert!(!flush.undefer.contains(&row.position), "an event is deferred or not");
            self.deferred.insert(row.position, row.clone());
        }
        for letter in &flush.dead {
            assert!(!letter.reason_code.is_empty(), "a dead letter says why");
            let before = self.dead.insert(letter.position, letter.clone());
            assert_eq!(before, None, "an event dies once");
        }
        self.last = flush.clone();
    }

    /// The lane as a new owner finds it. Its flushes count from 1 again.
    pub(crate) fn claim(&mut self) -> Restored {
        self.last = Flush::default();
        Restored {
            watermark: self.watermark,
            acked: self.acked.clone(),
            detours: self.detours.clone(),
            parked: self.parked.values().cloned().collect(),
            deferred: self.deferred.values().cloned().collect(),
        }
    }

    /// Whether a new owner would not find the event at `position` in the log.
    pub(crate) fn has_passed(&self, position: u64) -> bool {
        position <= self.watermark || self.acked.contains(&position)
    }
}
