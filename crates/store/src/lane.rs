//! Sessions own lanes; a lane's progress is a journal; what failed, waits or died stands in tables of its own.

use std::time::Duration;

use async_trait::async_trait;
use portero_types::{
    EntityHash, Epoch, Generation, LaneCount, LaneNo, ReceiptId, SessionId, SubscriptionNo, TenantNo,
    Timestamp,
};

use crate::{LaneRequest, ParkedListing, Roll};

/// A lane of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    /// The subscription's row number.
    pub subscription: SubscriptionNo,
    /// The lane.
    pub lane: LaneNo,
}

/// A gateway process that asks to own lanes.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Its fresh id.
    pub id: SessionId,
    /// The name of its place (host, pod): a new session of the same instance fences the older ones at once.
    pub instance: String,
    /// How long it lives without renewal, by the database's clock.
    pub ttl: Duration,
}

/// A lane's progress: everything up to `watermark` and everything in `acked` needs no delivery any more, because it is
/// acked, dead-lettered, or stands in the parked tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalState {
    /// Rises with each flush of an epoch; the first is 1. The same number again is the same state again.
    pub seq: u64,
    /// Position below and at which nothing is unsettled in the window.
    pub watermark: u64,
    /// Settled positions above the watermark, ascending.
    pub acked: Vec<u64>,
    /// Tenants whose events are read apart from the others'; by tenant, each tenant once.
    pub detours: Vec<Detour>,
}

/// A tenant whose backlog is read by a cursor of its own, so that others' events do not wait behind it. Its events above
/// `starts_after`, up to and including `ends_at`, are judged by this watermark and list, not by the lane's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    /// The tenant's row number.
    pub tenant: TenantNo,
    /// The lane's own cursor when the detour began.
    pub starts_after: u64,
    /// The last position that belongs to it, once it has caught up with the lane; `None` while it has not.
    pub ends_at: Option<u64>,
    /// Position below and at which none of the tenant's events is unsettled in the detour's window.
    pub watermark: u64,
    /// The tenant's settled positions above the watermark, ascending.
    pub acked: Vec<u64>,
}

/// Why an entity is out of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParkedState {
    /// Its head failed and waits for its next attempt; the rest waits behind it.
    Retry,
    /// Its head takes long; it is still in a consumer's hands, or will be offered again uncounted.
    Held,
    /// Its head was settled; what waited behind it is being worked off in order.
    Draining,
    /// Its head became a dead letter, and the subscription's policy keeps the rest back until someone acts.
    Blocked,
}

/// What waits of an entity without being listed: all of its events above `after`, up to and including `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// Below the first one.
    pub after: u64,
    /// The last one so far.
    pub last: u64,
}

/// An entity out of the window: its head and what waits behind it, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedEntity {
    /// Which entity.
    pub entity: EntityHash,
    /// Why.
    pub state: ParkedState,
    /// Waiting positions in ascending order, the head first. Empty only when what waits is in the overflow, or when the
    /// entity is blocked and nothing waits yet.
    pub positions: Vec<u64>,
    /// Set when more wait than are listed.
    pub overflow: Option<Overflow>,
    /// Counted attempts of the head. Followers have none.
    pub attempts: u32,
    /// Uncounted endings of the head's deliveries: consumers that went away without a word.
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

/// An event that a consumer called valid but too early.
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
    /// The last reason as the consumer wrote it; may be empty.
    pub reason_text: String,
}

/// An event that will not be delivered again by itself, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its position in the lane's shard.
    pub position: u64,
    /// Its receipt.
    pub receipt_id: ReceiptId,
    /// Its entity.
    pub entity: EntityHash,
    /// Counted attempts.
    pub attempts: u32,
    /// Uncounted endings.
    pub interruptions: u32,
    /// The reason's stable code.
    pub reason_code: String,
    /// The reason as the consumer wrote it; may be empty.
    pub reason_text: String,
    /// When it failed first.
    pub first_failed_at: Timestamp,
    /// When it was given up.
    pub died_at: Timestamp,
}

/// All that changed in a lane since its last flush. It is written in one transaction or not at all, so that the
/// watermark never passes an event that is nowhere. Removals (`unpark`, `undefer`) are applied before additions.
///
/// Reason texts are stored as [`crate::codec::clean_reason`] leaves them.
#[derive(Clone, Debug)]
pub struct LaneFlush {
    /// The lane.
    pub lane: LaneKey,
    /// The epoch under which the session owns it.
    pub epoch: Epoch,
    /// Its whole progress, not a difference.
    pub state: JournalState,
    /// Parked entities that are new or changed, whole.
    pub park: Vec<ParkedEntity>,
    /// Parked entities that are worked off.
    pub unpark: Vec<EntityHash>,
    /// Deferred events that are new or changed.
    pub defer: Vec<Deferred>,
    /// Deferred events that are settled.
    pub undefer: Vec<u64>,
    /// New dead letters. Writing one twice is writing it once.
    pub dead: Vec<DeadLetter>,
    /// Events that retention had dropped before they were settled; added to [`Subscription::expired`](crate::Subscription::expired).
    pub expired: u64,
}

/// A lane as its new owner finds it.
#[derive(Clone, Debug)]
pub struct ClaimedLane {
    /// The lane.
    pub lane: LaneKey,
    /// The new epoch.
    pub epoch: Epoch,
    /// The last flushed progress, or the subscription's start. Its `seq` is 0: nothing was flushed under this epoch yet.
    pub state: JournalState,
    /// Its parked entities, by entity.
    pub parked: Vec<ParkedEntity>,
    /// Its deferred events, by position.
    pub deferred: Vec<Deferred>,
}

/// Looks after sessions, lanes and what they have done.
#[async_trait]
pub trait LaneStore: Send + Sync + 'static {
    /// The log's present incarnation.
    async fn generation(&self) -> crate::Result<Generation>;

    /// Raises the generation by one, unless somebody has done so since it was `seen`. The present one.
    async fn raise_generation(&self, seen: Generation) -> crate::Result<Generation>;

    /// The log's present incarnation after a look at the database itself: when its identity or line of history is not the
    /// recorded one (another server took its place, it was restored), it is recorded and the generation is raised. Progress
    /// beyond the log's heads is cut first, as a claim does, whoever owns it. To be called at start and after an outage,
    /// before anything is accepted.
    async fn incarnation(&self) -> crate::Result<Generation>;

    /// Opens a session and fences older ones of the same instance. A store that one process owns alone fences all.
    async fn open_session(&self, session: &NewSession) -> crate::Result<()>;

    /// Lets a session live for another `ttl` from now, by the database's clock.
    ///
    /// # Errors
    /// `Fenced` when it was fenced or has expired and lost a lane.
    async fn renew_session(&self, session: SessionId, ttl: Duration) -> crate::Result<()>;

    /// Ends a session: its lanes are free at once.
    async fn close_session(&self, session: SessionId) -> crate::Result<()>;

    /// Records the session's weight in a subscription, then claims lanes that nobody alive owns, up to the session's share
    /// by [`crate::balance::targets`]: fence the expired owner, commit, take over with the next epoch, read the journal; in
    /// that order. Lanes that `session` owns already are not in the answer. With a weight of 0 nothing is claimed.
    ///
    /// What lies beyond its shard's head belongs to a history that was lost: positions there will be handed out again. Progress
    /// is cut to the head, parked, deferred and dead events beyond it are dropped, and the generation is raised, all in the
    /// transaction that claims. It is logged as an error. Entries that retention has dropped are no such loss.
    ///
    /// # Errors
    /// `Fenced` when the session itself is fenced or expired. `NotFound` when there is no such subscription.
    async fn claim_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: LaneCount,
        weight: u32,
    ) -> crate::Result<Vec<ClaimedLane>>;

    /// Records how much of a subscription's work the session can take, relative to the others'; 0 for none. Tells others.
    ///
    /// # Errors
    /// `Fenced` when the session is fenced; `NotFound` when there is no such subscription.
    async fn attend(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        weight: u32,
    ) -> crate::Result<()>;

    /// How things stand for a session in all its subscriptions: one statement, cheap while nothing is shared, for a call
    /// per second.
    ///
    /// # Errors
    /// `Fenced` when the session is fenced.
    async fn roll(&self, session: SessionId) -> crate::Result<Roll>;

    /// A stream of a consumer's instance has opened under this session. The newest join of an instance wins: other
    /// sessions find it in [`Share::replaced`](crate::Share::replaced). `boot` tells runs of the instance apart. Tells others.
    ///
    /// # Errors
    /// `Fenced` when the session is fenced; `NotFound` when there is no such subscription.
    async fn join(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> crate::Result<()>;

    /// The stream has ended. Nothing happens when another `boot` of the instance has joined this session since.
    async fn leave(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> crate::Result<()>;

    /// Writes what changed, in one transaction, under the session's share lock. Returns the lanes that were written;
    /// a lane that is missing in the answer is lost to another owner and must stop. Writing the same `seq` again, or a
    /// lower one, changes nothing and counts as written.
    ///
    /// # Errors
    /// `Fenced` when the session is fenced or expired: nothing was written. `OutcomeUnknown`: send the same again.
    /// `Refused` when a watermark would fall or acked positions do not rise: nothing was written.
    async fn flush_lanes(&self, session: SessionId, flushes: &[LaneFlush]) -> crate::Result<Vec<LaneKey>>;

    /// Gives up lanes of a subscription that the session owns, so that another session may claim them at once; `None` means
    /// all of them and the session's weight. The caller has flushed and stopped them. Epochs stay, so that the next owner's
    /// is higher. Tells others.
    async fn release_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: Option<&[LaneNo]>,
    ) -> crate::Result<()>;

    /// Asks something of whoever owns the lane, now or later. The newest request for an entity takes the place of older
    /// ones. Tells others.
    ///
    /// # Errors
    /// `NotFound` when there is no such subscription.
    async fn request(&self, subscription: SubscriptionNo, request: LaneRequest) -> crate::Result<()>;

    /// Takes the requests for lanes that the session owns: they are gone from here. In the order of their times.
    async fn take_requests(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
    ) -> crate::Result<Vec<LaneRequest>>;

    /// Parked entities of a subscription, as last flushed, in the order of lane and of the entity's hash as a signed number,
    /// starting after `after`. At most [`PARKED_LISTING_MAX`](crate::PARKED_LISTING_MAX).
    async fn parked_entities(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, EntityHash)>,
        limit: u32,
    ) -> crate::Result<Vec<ParkedListing>>;

    /// Dead letters of a subscription in the order of lane and position, starting after `after` (a lane and position).
    async fn dead_letters(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, u64)>,
        limit: u32,
    ) -> crate::Result<Vec<(LaneNo, DeadLetter)>>;
}
