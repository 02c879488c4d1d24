//! Who should have how many lanes, which streams were replaced, and what operators ask of a lane's owner.

use portero_types::{EntityHash, Generation, LaneNo, ReceiptId, SubscriptionNo, TenantId, Timestamp};

use crate::ParkedState;

/// Most parked entities in one answer of [`crate::LaneStore::parked_entities`].
pub const PARKED_LISTING_MAX: u32 = 1_000;

/// How things stand for one session, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roll {
    /// The log's present incarnation.
    pub generation: Generation,
    /// Every subscription for which the session has a weight or owns a lane, in the order of their numbers.
    pub shares: Vec<Share>,
}

/// A session's part in a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The subscription's row number.
    pub subscription: SubscriptionNo,
    /// How many lanes the session owns.
    pub owned: u16,
    /// How many lanes nobody alive owns.
    pub free: u16,
    /// How many lanes the session should own, by the weights of all who are alive: see [`crate::balance::targets`].
    pub target: u16,
    /// Instances of consumers that have joined another session since they joined this one; what is left of them here is a
    /// ghost. Ascending.
    pub replaced: Vec<String>,
    /// Whether operators ask something of lanes that the session owns: see [`crate::LaneStore::take_requests`].
    pub has_requests: bool,
}

/// What an operator may ask for a parked entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneAction {
    /// Go on now: a waiting head is due at once, a blocked entity continues with what waits behind.
    Retry,
    /// Give the waiting head up.
    DeadLetter,
}

/// What an operator asks of whoever owns the lane, now or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRequest {
    /// The parked entity.
    pub entity: EntityHash,
    /// Its lane.
    pub lane: LaneNo,
    /// The event at its head when this was asked. Only that one is given up: who asks has seen no other.
    pub position: Option<u64>,
    /// What is to be done.
    pub action: LaneAction,
    /// Who asks, for logs and reasons.
    pub by: String,
    /// When it was asked.
    pub at: Timestamp,
}

/// A parked entity as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedListing {
    /// Its lane.
    pub lane: LaneNo,
    /// Which entity.
    pub entity: EntityHash,
    /// Why it is out of the window.
    pub state: ParkedState,
    /// The head's position in the lane's shard; `None` when no position is listed.
    pub position: Option<u64>,
    /// The head's receipt; `None` when there is no head, or retention has dropped it from the log.
    pub receipt_id: Option<ReceiptId>,
    /// The entity's tenant; `None` as before.
    pub tenant: Option<TenantId>,
    /// The entity's ordering key; `None` as before.
    pub ordering_key: Option<String>,
    /// How many positions wait behind the head; with `has_overflow`, at least so many.
    pub waiting: u64,
    /// Whether more wait than are listed.
    pub has_overflow: bool,
    /// Counted attempts of the head.
    pub attempts: u32,
    /// Uncounted endings of the head's deliveries.
    pub interruptions: u32,
    /// Not to be offered before.
    pub due_at: Timestamp,
    /// When the head failed first.
    pub first_failed_at: Timestamp,
    /// The last reason's stable code; may be empty.
    pub reason_code: String,
    /// The last reason as the consumer wrote it; may be empty.
    pub reason_text: String,
}
