//! Deliveries that go on at another stream.

use portero_engine::{StreamId, Token};
use portero_types::{EntityHash, Timestamp};

use super::{Cut, Held, Last, Model};

impl Model {
    /// Whether nobody has the entity and nothing of it was offered since: S2 for work that is resumed.
    fn was_last(&self, entity: EntityHash, token: Token) -> bool {
        match self.last.get(&entity) {
            Some(last) => last.token == token && last.cut.is_some(),
            None => token.epoch.0 + 1 == self.epoch,
        }
    }

    /// Whether the delivery may go on without overtaking an event of its entity that has not stepped aside.
    fn overtakes(&self, entity: EntityHash, position: u64) -> bool {
        let mut open = self
            .events
            .iter()
            .filter(|(_, event)| event.entity == entity && event.end.is_none() && !event.aside);
        let first = open.next();
        let has_failed_before = first.is_some_and(|(n, event)| event.failed && *n != position);
        let is_aside = self.events[&position].aside;
        has_failed_before || (!is_aside && first.is_some_and(|(n, _)| *n != position))
    }

    /// A consumer came back with a delivery that it works on; whether it goes on.
    pub(crate) fn adopt(&mut self, now: Timestamp, token: Token, stream: StreamId) -> bool {
        let position = token.position;
        let Some(event) = self.events.get(&position).copied() else { return false };
        let entity = event.entity;
        let next_is_known = event.known && self.next_is_known(entity);
        if event.end.is_some()
            || !next_is_known
            || self.held.contains_key(&entity)
            || self.blocked.contains(&entity)
            || !self.was_last(entity, token)
            || self.overtakes(entity, position)
        {
            return false;
        }
        let cut = self.last.get(&entity).and_then(|last| last.cut);
        let event = self.events.get_mut(&position).expect("open");
        if let Some(Cut::Abnormally { before }) = cut {
            event.interruptions = before.interruptions;
            event.failed = before.failed;
            event.due = before.due;
            event.aside = before.aside;
        }
        event.due = (event.due.0.min(now), event.due.1.min(now));
        event.woken = false;
        let until = now.plus(self.config.max_hold);
        self.held.insert(entity, Held { token, stream, until });
        self.last.insert(entity, Last { token, cut: None });
        true
    }

    /// Whether the entry of what the entity would offer next is known.
    fn next_is_known(&self, entity: EntityHash) -> bool {
        self.next(entity).is_none_or(|(_, event)| event.known)
    }
}
