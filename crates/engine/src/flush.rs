//! What a lane wants written, and what it is given back when it starts: the same rows that a store keeps.

use portero_types::{EntityHash, ReceiptId, TenantNo, Timestamp};

/// Why an entity is out of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParkedState {
    /// Its head failed and waits for its next attempt; the rest waits behind it.
    Retry,
    /// Its head takes long; it is still in a consumer's hands, or will be offered again uncounted.
    Held,
    /// What is parked waits only for its turn and is worked off in order.
    Draining,
    /// Its head became a dead letter, and the policy keeps the rest back until someone acts.
    Blocked,
}

/// What waits of an entity without being listed: all of its events above `after`, up to and including `last`. None of them
/// is settled; this owner has offered none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// Below the first one.
    pub after: u64,
    /// The last one so far.
    pub last: u64,
}

/// A tenant whose backlog is read by a cursor of its own, so that others' events do not wait behind it. Its events above
/// `starts_after`, up to and including `ends_at`, are judged by this watermark and list, not by the lane's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Whose events.
    pub tenant: TenantNo,
    /// The lane's cursor when it began.
    pub starts_after: u64,
    /// The last position that belongs to it, once it has caught up with the lane; `None` while it has not.
    pub ends_at: Option<u64>,
    /// Everything of the tenant up to it is settled, parked or deferred. Never falls.
    pub watermark: u64,
    /// The same of single positions above it, ascending.
    pub acked: Vec<u64>,
}

/// An entity out of the window: its head and what waits behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedEntity {
    /// Which entity.
    pub entity: EntityHash,
    /// Why.
    pub state: ParkedState,
    /// Waiting positions, ascending, the head first. Empty only when what waits is in the overflow, or when the entity is
    /// blocked and nothing waits yet.
    pub positions: Vec<u64>,
    /// Set when more wait than are listed.
    pub overflow: Option<Overflow>,
    /// Counted attempts of the head.
    pub attempts: u32,
    /// Abnormal endings of the head's deliveries.
    pub interruptions: u32,
    /// The head is not to be offered before.
    pub due_at: Timestamp,
    /// When the head failed first; when it was parked, for a head that has not failed.
    pub first_failed_at: Timestamp,
    /// The last reason's stable code; may be empty.
    pub reason_code: String,
    /// The last reason for people; may be empty.
    pub reason_text: String,
}

/// An event that a consumer called valid but too early. Its row stays until the event is settled, even while the event
/// is parked after a failure, so that its deadline survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferred {
    /// Its entity.
    pub entity: EntityHash,
    /// Its position.
    pub position: u64,
    /// When it becomes a dead letter.
    pub deadline: Timestamp,
    /// The last reason's stable code; may be empty.
    pub reason_code: String,
    /// The last reason for people; may be empty.
    pub reason_text: String,
}

/// An event that will not be delivered again by itself, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its position.
    pub position: u64,
    /// Its receipt.
    pub receipt_id: ReceiptId,
    /// Its entity.
    pub entity: EntityHash,
    /// Counted attempts.
    pub attempts: u32,
    /// Abnormal endings.
    pub interruptions: u32,
    /// The reason's stable code. Never empty.
    pub reason_code: String,
    /// The reason for people; may be empty.
    pub reason_text: String,
    /// When it failed, or was deferred, first.
    pub first_failed_at: Timestamp,
    /// When it was given up.
    pub died_at: Timestamp,
}

/// Everything that changed since the last flush. To be written in one transaction or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Rises within an epoch; the first is 1. The same number again is the same content again.
    pub seq: u64,
    /// Everything up to it is settled, parked, deferred or does not match. Never falls.
    pub watermark: u64,
    /// The same of single positions above the watermark, ascending.
    pub acked: Vec<u64>,
    /// All detours, by tenant.
    pub detours: Vec<Detour>,
    /// Parked entities that are new or changed, whole.
    pub park: Vec<ParkedEntity>,
    /// Entities that are no longer parked. Some were never written: deleting nothing is fine.
    pub unpark: Vec<EntityHash>,
    /// Deferred events that are new or changed, whole.
    pub defer: Vec<Deferred>,
    /// Positions that are no longer deferred.
    pub undefer: Vec<u64>,
    /// New dead letters.
    pub dead: Vec<DeadLetter>,
    /// Events that retention had dropped before they were settled: so many more.
    pub expired: u64,
}

/// What became of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushResult {
    /// It is committed.
    Written,
    /// Nothing of it was written. Its content comes again with newer changes, under a new `seq`. The caller paces.
    Failed,
    /// It may or may not be committed. The same flush comes again with the same `seq`. The caller paces.
    Unknown,
    /// Another owner has the lane.
    Lost,
}

/// A lane as its new owner finds it in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The last written watermark, or where the subscription starts.
    pub watermark: u64,
    /// The last written settled positions above it.
    pub acked: Vec<u64>,
    /// The last written detours.
    pub detours: Vec<Detour>,
    /// All parked entities.
    pub parked: Vec<ParkedEntity>,
    /// All deferred events.
    pub deferred: Vec<Deferred>,
}
