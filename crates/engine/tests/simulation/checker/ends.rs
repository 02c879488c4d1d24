//! S4: every event ends in one of three ways, and is somewhere until then.

use portero_engine::{ParkedState, reason};
use portero_types::{Epoch, LaneNo, Shard};

use super::{Checker, Promise};
use crate::store::{Place, SimStore};

impl Checker {
    /// A flush of a lane was committed.
    pub(crate) fn committed(&mut self, store: &SimStore, now: u64, lane: LaneNo, epoch: Epoch) {
        let row = store.row(lane);
        self.trace(|| {
            let parked: Vec<_> = row
                .parked
                .values()
                .map(|row| (row.entity.0, row.state, &row.positions, row.overflow.map(|o| (o.after, o.last))))
                .collect();
            let deferred: Vec<_> = row.deferred.keys().collect();
            format!(
                "{now}: lane {lane} stands at {} {:?}, detours {:?}, parked {parked:?}, deferred {deferred:?}",
                row.watermark, row.acked, row.detours
            )
        });
        if epoch.0 < row.epoch {
            self.broken(
                Promise::S3,
                format!("lane {lane} was written under {epoch} after {} had read it", row.epoch),
            );
        }
        let unsettled: Vec<u64> = self.unsettled.get(&lane).into_iter().flatten().copied().collect();
        let mut acked = Vec::new();
        for n in unsettled {
            let Some(fact) = self.fact_mut(lane, n) else { continue };
            let place = store.place(lane, &fact.entry);
            let entity = fact.entry.entity;
            let is_newly_deferred = place == Place::Deferred && fact.deferred_since.is_none();
            if is_newly_deferred {
                fact.deferred_since = Some(now);
            }
            let (was_acked, was_dropped) = (fact.acked, fact.is_dropped);
            fact.is_over = place.is_over();
            self.seen.deferred += u64::from(is_newly_deferred);
            let letter = row.dead.get(&n);
            self.seen.dead += u64::from(letter.is_some());
            let is_deadline = letter.is_some_and(|letter| letter.reason_code == reason::DEFER_DEADLINE);
            self.seen.deadlines += u64::from(is_deadline);
            if place.is_over() {
                let is_explained = place == Place::Dead || was_acked || was_dropped;
                if place == Place::Gone && was_acked {
                    acked.push(entity);
                }
                self.unsettled.entry(lane).or_default().remove(&n);
                if !is_explained {
                    self.broken(Promise::S4, format!("{n} of {entity:?} is nowhere"));
                }
            }
        }
        self.seen.overflows += u64::from(row.parked.values().any(|row| row.overflow.is_some()));
        self.seen.detours += u64::from(!row.detours.is_empty());
        self.seen.blocked += u64::from(row.parked.values().any(|row| row.state == ParkedState::Blocked));
        for entity in acked {
            self.note_ack(store, lane, entity);
        }
        self.check_counts(store, lane);
    }

    /// What a dead letter says must have happened.
    pub(super) fn check_reason(&mut self, store: &SimStore, lane: LaneNo, n: u64) {
        let Some(letter) = store.row(lane).dead.get(&n) else { return };
        let Some(fact) = self.fact(lane, n) else { return };
        let is_true = match letter.reason_code.as_str() {
            reason::DEFER_DEADLINE => fact.defer_said,
            reason::INTERRUPTED => letter.interruptions >= self.config.interruptions_max,
            reason::OPERATOR => fact.given_up,
            reason::REJECTED => fact.rejected > 0,
            reason::HOLD_EXPIRED => fact.held_too_long > 0 && letter.attempts >= self.config.attempts_max,
            reason::ATTEMPTS_EXHAUSTED => letter.attempts >= self.config.attempts_max,
            _ => false,
        };
        if !is_true {
            self.broken(Promise::S4, format!("a dead letter says what did not happen: {letter:?}"));
        }
    }

    /// An operator may have given up what an entity offers next.
    pub(crate) fn may_be_given_up(&mut self, entity: portero_types::EntityHash) {
        let lane = entity.slot().lane(self.lanes);
        let all = self.entities.get(&entity).cloned().unwrap_or_default();
        for n in all {
            if let Some(fact) = self.fact_mut(lane, n) {
                fact.given_up = true;
            }
        }
    }

    pub(crate) fn is_empty_of_open(&self, store: &SimStore) -> bool {
        self.facts.values().all(|fact| fact.is_over || store.place(fact.lane, &fact.entry).is_over())
    }

    /// The oldest event that is not over.
    pub(crate) fn oldest_open(&self, store: &SimStore) -> Option<(Shard, u64)> {
        let mut open = self.facts.iter().filter(|(_, fact)| !fact.is_dropped);
        open.find(|(_, fact)| !store.place(fact.lane, &fact.entry).is_over()).map(|(key, _)| *key)
    }

    /// Events that are not over.
    pub(crate) fn open(&self, store: &SimStore) -> Vec<String> {
        self.facts
            .values()
            .filter_map(|fact| {
                let place = store.place(fact.lane, &fact.entry);
                (!place.is_over())
                    .then(|| format!("{} of {:?} is {place:?}", fact.entry.n, fact.entry.entity))
            })
            .collect()
    }
}
