//! What is promised of deferred events.

use portero_engine::ParkedState;
use portero_types::{EntityHash, LaneNo};

use super::{Checker, Promise};
use crate::store::{Place, SimStore};
use crate::time::SEC;
use crate::words::Sent;

/// Two replicas' wall clocks differ by so much at most, and whoever has the lane may have to come back first.
const DEADLINE_SLACK: u64 = 25 * 60 * SEC;

impl Checker {
    /// An ack of an entity is written; the lane may not know it yet.
    pub(super) fn note_ack(&mut self, store: &SimStore, lane: LaneNo, entity: EntityHash) {
        let all = self.entities.get(&entity).cloned().unwrap_or_default();
        let deferred: Vec<u64> = all
            .into_iter()
            .filter(|n| {
                let fact = self.fact(lane, *n);
                fact.is_some_and(|fact| store.place(lane, &fact.entry) == Place::Deferred)
            })
            .collect();
        self.fresh_acks.entry(lane).or_default().push((entity, deferred));
    }

    /// The lane is told that what it wrote is written.
    pub(crate) fn told_written(&mut self, lane: LaneNo, now: u64) {
        for (entity, deferred) in self.fresh_acks.remove(&lane).unwrap_or_default() {
            for n in self.entities.get(&entity).cloned().unwrap_or_default() {
                if let Some(fact) = self.fact_mut(lane, n).filter(|fact| fact.defer_said) {
                    fact.may_come = true;
                    fact.told_at = now;
                    if deferred.contains(&n) {
                        fact.woken.get_or_insert(now);
                    }
                }
            }
        }
    }

    /// A new owner offers each deferred event once.
    pub(crate) fn claimed(&mut self, store: &SimStore, lane: LaneNo, now: u64) {
        self.trace(|| {
            format!(
                "{now}: lane {lane} is claimed by {:?} under {}",
                store.row(lane).owner,
                store.row(lane).epoch
            )
        });
        self.fresh_acks.remove(&lane);
        for n in store.row(lane).deferred.keys() {
            if let Some(fact) = self.fact_mut(lane, *n) {
                fact.may_come = true;
                fact.woken = None;
            }
        }
    }

    pub(super) fn check_deferred(&mut self, store: &SimStore, sent: &Sent) {
        let (lane, n, entity) = (sent.token.lane, sent.entry.n, sent.entry.entity);
        let Some(fact) = self.fact_mut(lane, n) else { return };
        let is_deferred = store.place(lane, &fact.entry) == Place::Deferred;
        // What was heard after the decision, while it was prepared, counts for the next time.
        let may_come = std::mem::replace(&mut fact.may_come, fact.told_at > sent.decided_at);
        fact.woken = fact.woken.filter(|since| *since > sent.decided_at);
        if is_deferred && !may_come {
            self.broken(
                Promise::Defer,
                format!("{n} of {entity:?} was offered again though nothing was acked"),
            );
        }
        let row = store.row(lane).parked.get(&entity);
        let has_failed = row.is_some_and(|row| {
            row.state == ParkedState::Retry && (row.positions.first() == Some(&n) || row.positions.is_empty())
        });
        if has_failed {
            return;
        }
        let others = self.entities.get(&entity).cloned().unwrap_or_default();
        for other in others.into_iter().take_while(|other| *other < n) {
            let waits = |fact: &&super::Fact| fact.woken.is_some_and(|since| since < sent.decided_at);
            let Some(fact) = self.fact(lane, other).filter(waits) else { continue };
            if store.place(lane, &fact.entry) == Place::Deferred {
                let text =
                    format!("{n} of {entity:?} was offered before {other}, which was put off and is older");
                self.broken(Promise::Defer, text);
            }
        }
    }

    /// Time has passed.
    pub(crate) fn look(&mut self, store: &SimStore, now: u64) {
        for lane in self.lanes.lanes() {
            self.check_deadlines(now, store, lane);
        }
    }

    fn check_deadlines(&mut self, now: u64, store: &SimStore, lane: LaneNo) {
        let defer_deadline = u64::try_from(self.config.defer_deadline.as_micros()).unwrap_or(u64::MAX);
        let late: Vec<u64> = store
            .row(lane)
            .deferred
            .keys()
            .filter(|n| {
                let Some(fact) = self.fact(lane, **n) else { return false };
                let row = store.row(lane).parked.get(&fact.entry.entity);
                let waits = row
                    .is_some_and(|row| row.state == ParkedState::Blocked || row.state == ParkedState::Retry);
                let since = fact.deferred_since.unwrap_or(now);
                !waits && now > since + defer_deadline + DEADLINE_SLACK
            })
            .copied()
            .collect();
        for n in late {
            self.broken(Promise::Defer, format!("{n} is still deferred long after its deadline"));
        }
        let dead: Vec<u64> = store.row(lane).dead.keys().copied().collect();
        for n in dead {
            let Some(letter) = store.row(lane).dead.get(&n) else { continue };
            let is_deadline = letter.reason_code == portero_engine::reason::DEFER_DEADLINE;
            let lasted = letter.died_at.since(letter.first_failed_at);
            if is_deadline && lasted < self.config.defer_deadline {
                self.broken(Promise::Defer, format!("{n} died before its deadline: {letter:?}"));
            }
        }
    }
}
