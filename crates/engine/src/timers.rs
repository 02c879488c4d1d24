//! Moments at which a lane has something to do.

use std::collections::BTreeSet;

use portero_types::{EntityHash, Timestamp};

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// An entity's backoff, or the age or hold of its delivery.
    Entity(EntityHash),
    /// The deadline of a deferred event.
    Deadline(u64),
}

/// Timers by moment; each can be cancelled exactly, so that none outlives its cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Timestamp, Timer)>);

impl Timers {
    pub(crate) fn set(&mut self, at: Timestamp, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, at: Timestamp, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
