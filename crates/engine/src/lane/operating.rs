//! What operators ask for.

use portero_types::{EntityHash, Timestamp};

use super::fate::Fate;
use super::{Lane, ParkedState};
use crate::entity::Head;
use crate::phase::Phase;
use crate::{Reason, reason};

/// What an operator asks for a parked entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A failed head is due now; a blocked entity goes on with what waits behind.
    Retry,
    /// A failed head becomes a dead letter with the code [`OPERATOR`](crate::reason::OPERATOR), and its entity goes on,
    /// whatever the policy.
    DeadLetter,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requested {
    /// It takes effect with the next flush.
    Done,
    /// Ignored: a consumer works on the event, and its outcome decides.
    InFlight,
    /// Nothing was done because the event's entry is not known yet. Ask again once
    /// [`Lane::needs_entries`](crate::Lane::needs_entries) was answered.
    NotYet,
    /// Ignored: nothing of the entity failed and waits for that.
    NotParked,
}

impl Lane {
    /// The position of the first event of an entity that waits outside of the window.
    #[must_use]
    pub fn head_of(&self, entity: EntityHash) -> Option<u64> {
        let state = self.entities.get(&entity).filter(|state| state.head.is_some())?;
        state.queue.front().copied()
    }

    /// Takes an operator's request.
    pub fn handle_request(&mut self, now: Timestamp, entity: EntityHash, action: Action) -> Requested {
        let Some(state) = self.entities.get(&entity) else { return Requested::NotParked };
        if matches!(state.phase, Phase::InFlight(_)) {
            return Requested::InFlight;
        }
        match (action, state.state()) {
            (Action::Retry, Some(ParkedState::Retry)) => self.make_due(now, entity),
            (Action::Retry, Some(ParkedState::Blocked)) => self.unblock(now, entity),
            (Action::DeadLetter, Some(ParkedState::Retry)) => return self.give_up(now, entity),
            (Action::DeadLetter, Some(ParkedState::Blocked))
            | (_, Some(ParkedState::Held | ParkedState::Draining) | None) => return Requested::NotParked,
        }
        Requested::Done
    }

    fn make_due(&mut self, now: Timestamp, entity: EntityHash) {
        let state = self.entity_mut(entity);
        let phase = state.phase;
        if let Some(head) = state.head.as_deref_mut() {
            head.due_at = head.due_at.min(now);
        }
        self.batch.parks.insert(entity);
        if let Phase::Waiting { .. } = phase {
            self.offer_at_once(entity);
        }
    }

    fn unblock(&mut self, now: Timestamp, entity: EntityHash) {
        let state = self.entity_mut(entity);
        let rest = !state.queue.is_empty() || state.overflow.is_some();
        state.head = rest.then(|| Box::new(Head::unfailed(ParkedState::Draining, now)));
        self.counts.blocked -= 1;
        self.counts.parked_entities -= usize::from(!rest);
        self.batch.parks.insert(entity);
        self.settle_entity(entity, 0);
    }

    fn give_up(&mut self, now: Timestamp, entity: EntityHash) -> Requested {
        let state = self.entity_mut(entity);
        let (Some(position), Some(head)) = (state.queue.front().copied(), state.head.as_deref()) else {
            return Requested::NotParked;
        };
        let last = head.reason.in_words();
        let tally = state.tally(position, now);
        if self.event(position).entry.is_none() {
            return Requested::NotYet;
        }
        let reason = Reason::new(reason::OPERATOR, &last);
        self.conclude(now, position, Fate::Dead(reason, tally));
        Requested::Done
    }
}
