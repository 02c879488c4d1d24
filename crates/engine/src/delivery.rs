//! What goes into a lane from the log, and what comes out of it towards a stream.

use portero_types::{EntityHash, Epoch, ReceiptId, TenantNo, Timestamp};

/// One matching entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position within the lane's shard; the first is 1.
    pub n: u64,
    /// Its tenant: tenants take turns.
    pub tenant: TenantNo,
    /// Its entity.
    pub entity: EntityHash,
    /// Its receipt.
    pub receipt_id: ReceiptId,
    /// Size of the body, bytes; counts against a stream's room.
    pub body_bytes: u32,
    /// When it was accepted.
    pub accepted_at: Timestamp,
}

/// A part of the log that a lane has to read apart from its own way through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideRead {
    /// Whose entries.
    pub scope: SideScope,
    /// Above this position.
    pub after: u64,
    /// Up to and including this one.
    pub through: u64,
    /// Up to so many; more are not taken.
    pub limit: usize,
}

/// Whose entries a [`SideRead`] asks for. Of the lane's, and only those that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SideScope {
    /// A tenant's, for its detour.
    Tenant(TenantNo),
    /// A parked entity's, from its overflow.
    Entity(EntityHash),
}

/// A consumer's stream, as the caller numbers them. Never reused within the life of a [`Lane`](crate::Lane).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// Names one delivery. The caller puts it on the wire in a form of its own, with the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// Epoch of the owner that made the delivery.
    pub epoch: Epoch,
    /// Position of the event.
    pub position: u64,
    /// Which delivery of that position in that epoch, the first is 1. Uncounted ones count here.
    pub delivery: u32,
}

/// An event to send to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// To which stream.
    pub stream: StreamId,
    /// What settles it.
    pub token: Token,
    /// The event.
    pub entry: Entry,
    /// Which delivery of this event this is as far as this owner knows, the first is 1. Includes uncounted ones.
    pub attempt: u32,
    /// Nothing else may go to the stream until this one is over: consumers of the event ended without a word before.
    pub alone: bool,
}

/// How much the current stream takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Events.
    pub events: u32,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Whether the stream has nothing unsettled: then one event is allowed whatever its size (`events` must still be
    /// above zero), and so is one that has to be alone.
    pub idle: bool,
}

/// What a lane's events wait for that are ready and find no room. See [`Lane::waits_for`](crate::Lane::waits_for).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// The first in line is larger than the room.
    Bytes,
    /// One has to be alone on the stream.
    Alone,
}

impl Room {
    /// Room without limits.
    pub const UNLIMITED: Self = Self { events: u32::MAX, bytes: u64::MAX, idle: true };

    pub(crate) const fn takes(&self, body_bytes: u32) -> bool {
        self.events > 0 && (self.idle || body_bytes as u64 <= self.bytes)
    }
}

/// A delivery that is over although its consumer did not settle it: its outcome no longer counts, except an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoke {
    /// The stream that has the delivery.
    pub stream: StreamId,
    /// Which delivery.
    pub token: Token,
    /// Why.
    pub reason: RevokeReason,
}

/// Why a delivery was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevokeReason {
    /// It was not settled within `max_hold`.
    HoldExpired,
    /// A former holder acked the event.
    SettledElsewhere,
    /// Another owner has the lane.
    LaneLost,
}
