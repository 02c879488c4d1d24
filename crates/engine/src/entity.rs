//! One entity of a lane, and one event of an entity.

use std::collections::{BTreeSet, VecDeque};

use portero_types::{EntityHash, Timestamp};

use crate::phase::Phase;
use crate::{Entry, Overflow, ParkedEntity, ParkedState, Reason, Token};

/// Where an event stands towards the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Unsettled in the window: it holds the watermark.
    Window,
    /// In its entity's parked row.
    Parked,
    /// In a deferred row.
    Deferred,
    /// Acked, dead or expired; the flush that says so is not written yet.
    Done,
}

/// What is stored of a deferral.
#[derive(Clone, Debug)]
pub(crate) struct DeferNote {
    pub(crate) deadline: Timestamp,
    pub(crate) reason: Reason,
}

/// An event that the lane holds.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) entity: EntityHash,
    /// `None` until it was fetched, for restored events.
    pub(crate) entry: Option<Entry>,
    pub(crate) place: Place,
    /// Deliveries in this epoch.
    pub(crate) deliveries: u32,
    /// Deliveries that earlier owners recorded.
    pub(crate) offers_before: u32,
    /// Set from the first deferral until the event is done, whatever else happens to it.
    pub(crate) note: Option<Box<DeferNote>>,
}

/// Why an entity is parked, and the record of the event at its head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) state: ParkedState,
    pub(crate) attempts: u32,
    pub(crate) interruptions: u32,
    pub(crate) due_at: Timestamp,
    pub(crate) first_failed_at: Timestamp,
    pub(crate) reason: Reason,
}

impl Head {
    /// A head without failures.
    pub(crate) fn unfailed(state: ParkedState, now: Timestamp) -> Self {
        Self {
            state,
            attempts: 0,
            interruptions: 0,
            due_at: now,
            first_failed_at: now,
            reason: Reason::default(),
        }
    }
}

/// Failures of one event so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) attempts: u32,
    pub(crate) interruptions: u32,
    pub(crate) first_failed_at: Timestamp,
}

/// A delivery that its stream's end cut short. It may be adopted as long as nothing of the entity was offered since.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) token: Token,
    /// Set when the end counted an interruption.
    pub(crate) before: Option<Before>,
}

/// How an entity stood before an interruption counted.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    pub(crate) head: Option<Box<Head>>,
    /// The event was a deferred one; now it stands first in the queue.
    pub(crate) was_deferred: bool,
}

/// An entity with unsettled events, or a blocked one.
#[derive(Clone, Debug)]
pub(crate) struct Entity {
    /// Unsettled events that are not deferred, in order. All of them are parked when `head` is set, all of them are in
    /// the window when it is not.
    pub(crate) queue: VecDeque<u64>,
    pub(crate) head: Option<Box<Head>>,
    /// What waits beyond the queue. Only with a head.
    pub(crate) overflow: Option<Overflow>,
    /// Deferred events that are to be offered again.
    pub(crate) due: BTreeSet<u64>,
    /// Deferred events that wait for an ack, and the one in flight if it is a deferred one.
    pub(crate) resting: BTreeSet<u64>,
    pub(crate) phase: Phase,
    /// The moment under which the lane's timers know this entity.
    pub(crate) timer: Option<Timestamp>,
    /// Its last decision that the next delivery must not precede, until that is written.
    pub(crate) unwritten: Option<u64>,
    /// Whether anything of it was in a consumer's hands in this epoch.
    pub(crate) was_offered: bool,
    pub(crate) cut: Option<Box<Cut>>,
}

impl Entity {
    pub(crate) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            head: None,
            overflow: None,
            due: BTreeSet::new(),
            resting: BTreeSet::new(),
            phase: Phase::Idle,
            timer: None,
            unwritten: None,
            was_offered: false,
            cut: None,
        }
    }

    pub(crate) fn state(&self) -> Option<ParkedState> {
        self.head.as_deref().map(|head| head.state)
    }

    /// Whether the event at the head, which failed, is suspected of ending its consumers.
    pub(crate) fn is_suspect(&self, isolate_after: u32) -> bool {
        self.head
            .as_deref()
            .is_some_and(|head| head.state == ParkedState::Retry && head.interruptions >= isolate_after)
    }

    /// Whether an earlier delivery of `position` may go on without overtaking anything.
    pub(crate) fn may_resume(&self, position: u64) -> bool {
        let is_first = self.queue.front() == Some(&position);
        match self.state() {
            Some(ParkedState::Retry) => is_first,
            Some(ParkedState::Blocked) => false,
            Some(ParkedState::Held | ParkedState::Draining) | None => {
                is_first || self.due.contains(&position) || self.resting.contains(&position)
            }
        }
    }

    /// The next event to offer, and the moment before which it must not be offered. A head that failed, or died under a
    /// policy that blocks, keeps back everything else of its entity; otherwise deferred events that are due come first,
    /// oldest first.
    pub(crate) fn candidate(&self) -> Option<(u64, Option<Timestamp>)> {
        let front = self.queue.front().copied();
        match self.head.as_deref() {
            Some(head) if head.state == ParkedState::Retry => {
                front.map(|position| (position, Some(head.due_at)))
            }
            Some(head) if head.state == ParkedState::Blocked => None,
            Some(_) | None => self.due.first().copied().or(front).map(|position| (position, None)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none() && self.queue.is_empty() && self.due.is_empty() && self.resting.is_empty()
    }

    /// The failures of `position`: the head's when it is the head, none otherwise.
    pub(crate) fn tally(&self, position: u64, now: Timestamp) -> Tally {
        match self.head.as_deref() {
            Some(head) if self.queue.front() == Some(&position) && head.state == ParkedState::Retry => {
                Tally {
                    attempts: head.attempts,
                    interruptions: head.interruptions,
                    first_failed_at: head.first_failed_at,
                }
            }
            _ => Tally { attempts: 0, interruptions: 0, first_failed_at: now },
        }
    }

    /// Takes an event out of the entity. When it was a parked head, the next one becomes the head, unfailed.
    pub(crate) fn remove(&mut self, position: u64, now: Timestamp) {
        self.due.remove(&position);
        self.resting.remove(&position);
        if self.queue.front() == Some(&position) {
            self.queue.pop_front();
            if let Some(head) = self.head.as_deref_mut()
                && head.state != ParkedState::Blocked
            {
                *head = Head::unfailed(ParkedState::Draining, now);
            }
        } else if let Ok(index) = self.queue.binary_search(&position) {
            self.queue.remove(index);
        }
        self.unpark_if_empty();
    }

    /// Forgets the head when nothing stands behind it any more and it does not block; answers whether it did.
    pub(crate) fn unpark_if_empty(&mut self) -> bool {
        let is_over = self.queue.is_empty() && self.overflow.is_none();
        is_over && self.state() != Some(ParkedState::Blocked) && self.head.take().is_some()
    }

    /// The entity's parked row, if it has one.
    pub(crate) fn row(&self, entity: EntityHash) -> Option<ParkedEntity> {
        self.head.as_deref().map(|head| ParkedEntity {
            entity,
            state: head.state,
            positions: self.queue.iter().copied().collect(),
            overflow: self.overflow,
            attempts: head.attempts,
            interruptions: head.interruptions,
            due_at: head.due_at,
            first_failed_at: head.first_failed_at,
            reason_code: head.reason.code().to_owned(),
            reason_text: head.reason.text().to_owned(),
        })
    }
}
