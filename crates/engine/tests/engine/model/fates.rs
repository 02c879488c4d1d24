//! What outcomes do to the model's events.

use std::time::Duration;

use portero_engine::{DeadLetterPolicy, reason};
use portero_types::Timestamp;

use super::{End, Model};

impl Model {
    pub(super) fn decided(&mut self, position: u64) {
        let entity = self.events[&position].entity;
        match self.held.get(&entity) {
            Some(held) if held.token.position != position => {}
            _ => {
                self.held.remove(&entity);
                self.open.entities.insert(entity);
            }
        }
    }

    pub(super) fn end(&mut self, position: u64, end: End) {
        self.decided(position);
        let event = self.events.get_mut(&position).expect("an open event");
        event.end = Some(end);
        self.open.ended.push(position);
    }

    pub(super) fn die(&mut self, position: u64, record: (u32, u32, Option<&'static str>)) {
        self.end(position, End::Dead);
        self.open.dead.insert(position, record);
    }

    /// The end of an event that failed for good.
    pub(super) fn give_up(&mut self, position: u64, record: (u32, u32, Option<&'static str>)) {
        self.die(position, record);
        if self.config.dead_letter_policy == DeadLetterPolicy::ParkEntity {
            self.blocked.insert(self.events[&position].entity);
        }
    }

    pub(super) fn fail(
        &mut self,
        now: Timestamp,
        position: u64,
        delay: Option<Duration>,
        code: Option<&'static str>,
    ) {
        let (attempts_max, counts) = (self.config.attempts_max, u32::from(!self.frozen));
        let event = self.events.get_mut(&position).expect("an open event");
        let exact = delay.map(|delay| delay.min(self.config.retry_delay_max));
        let longest = exact.unwrap_or_else(|| self.config.backoff.ceiling(event.attempts + 1));
        event.attempts += counts;
        event.failed = true;
        event.due = (now.plus(exact.unwrap_or_default()), now.plus(longest));
        event.aside = false;
        let record = (event.attempts, event.interruptions, Some(code.unwrap_or(reason::ATTEMPTS_EXHAUSTED)));
        if event.attempts >= attempts_max { self.give_up(position, record) } else { self.decided(position) }
    }

    /// Waits for somebody who mends it.
    pub(super) fn postpone(&mut self, now: Timestamp, position: u64) {
        let due = now.plus(self.config.unreadable_pause);
        let event = self.events.get_mut(&position).expect("an open event");
        event.failed = true;
        event.due = (due, due);
        event.aside = false;
        self.decided(position);
    }

    pub(super) fn interrupt(&mut self, now: Timestamp, position: u64) {
        let interruptions_max = self.config.interruptions_max;
        let event = self.events.get_mut(&position).expect("an open event");
        event.interruptions += 1;
        event.failed = true;
        event.due = (now, now.plus(self.config.backoff.base));
        event.aside = false;
        let record = (event.attempts, event.interruptions, Some(reason::INTERRUPTED));
        if event.interruptions >= interruptions_max {
            self.give_up(position, record);
        } else {
            self.decided(position);
        }
    }

    pub(super) fn defer(&mut self, now: Timestamp, position: u64) {
        let default = now.plus(self.config.defer_deadline);
        let event = self.events.get_mut(&position).expect("an open event");
        let deadline = *event.deadline.get_or_insert(default);
        if deadline <= now {
            self.die(position, (0, 0, Some(reason::DEFER_DEADLINE)));
            return;
        }
        event.woken &= event.aside;
        event.aside = true;
        (event.attempts, event.interruptions, event.failed) = (0, 0, false);
        event.due = (Timestamp::EPOCH, Timestamp::EPOCH);
        self.decided(position);
    }

    pub(super) fn release(&mut self, now: Timestamp, position: u64) {
        let event = self.events.get_mut(&position).expect("an open event");
        if event.aside && event.deadline.is_some_and(|deadline| deadline <= now) {
            self.die(position, (0, 0, Some(reason::DEFER_DEADLINE)));
            return;
        }
        event.woken = event.aside;
        let entity = event.entity;
        self.held.remove(&entity);
    }
}
