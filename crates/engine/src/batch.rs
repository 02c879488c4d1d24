//! Changes between two flushes, and what follows once they are written.

use std::collections::BTreeSet;

use portero_types::EntityHash;

use crate::{DeadLetter, Flush, Status, Tag};

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Acked,
    Dead,
    Expired,
}

/// What happens once a flush is written, in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// The event is gone for good.
    Concluded { position: u64, end: End },
    /// The entity may go on, if this is still its last decision.
    Resume { entity: EntityHash, serial: u64 },
    /// A settlement gets its status.
    Answer { tag: Tag, status: Status },
}

/// Changes that belong into one flush. Rows are named here and read when the flush is made.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) parks: BTreeSet<EntityHash>,
    pub(crate) defers: BTreeSet<u64>,
    pub(crate) dead: Vec<DeadLetter>,
    pub(crate) effects: Vec<Effect>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.parks.is_empty() && self.defers.is_empty() && self.dead.is_empty() && self.effects.is_empty()
    }

    /// How many events expired in it.
    pub(crate) fn expired(&self) -> u64 {
        let is_expired = |effect: &&Effect| matches!(effect, Effect::Concluded { end: End::Expired, .. });
        self.effects.iter().filter(is_expired).count() as u64
    }

    /// Puts an earlier batch, of which nothing was written, in front of this one.
    pub(crate) fn take_back(&mut self, mut earlier: Self) {
        self.parks.append(&mut earlier.parks);
        self.defers.append(&mut earlier.defers);
        earlier.dead.append(&mut self.dead);
        self.dead = earlier.dead;
        earlier.effects.append(&mut self.effects);
        self.effects = earlier.effects;
    }
}

/// A flush on its way.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) flush: Flush,
    pub(crate) batch: Batch,
    /// Its outcome is unknown: it has to be polled again.
    pub(crate) resend: bool,
}
