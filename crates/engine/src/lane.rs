//! One lane of one subscription.

use portero_types::{Epoch, Timestamp};
use rand::Rng;
use std::time::Duration;

use crate::{
    Delivery, Ending, Entry, Error, Flush, FlushResult, LaneConfig, Restored, Revoke, Room, Settled,
    Settlement, StreamId, Tag, Token, Undeliverable,
};

/// The delivery state of one lane of one subscription, under one epoch.
///
/// # Calling order
///
/// 1. [`Lane::new`] with what the store gave at the claim. Parked and deferred positions come without their log entries:
///    as long as [`Lane::needs_entries`] names positions, read them and call [`Lane::handle_entries`]. Other entities
///    do not wait for that.
/// 2. Feed the log: when [`Lane::capacity`] is above zero, read a page after [`Lane::cursor`] and call
///    [`Lane::handle_page`]. Pages may overlap; they may not leave a gap.
/// 3. [`Lane::set_stream`] names the stream that new deliveries go to. [`Lane::handle_stream_ended`] must follow once for
///    every stream that was ever set, when it ends.
/// 4. After **every** `handle_*` and `set_stream`, ask the outputs until they are empty, in any order:
///    [`Lane::poll_revoke`], [`Lane::poll_settled`], [`Lane::poll_delivery`] (while the stream has room), and
///    [`Lane::poll_flush`] when it is time to write.
/// 5. A polled flush must be answered by exactly one [`Lane::handle_flushed`]; until then there is no other flush.
/// 6. Call [`Lane::handle_timeout`] at the moment that [`Lane::poll_timeout`] names; it changes with every other call.
///    Calling early or late is harmless.
/// 7. After [`FlushResult::Lost`] or [`Lane::handle_lost`] the lane is over: it answers what is open and then stays silent.
///
/// `now` is wall time and should not go backwards by much: timers wait for it.
///
/// Everything is synchronous; there is nothing to cancel. Memory is bounded by [`LaneConfig::positions_max`] events, plus
/// four statuses for each event of the window; settlements beyond that are answered with
/// [`Status::TryAgain`](crate::Status::TryAgain).
#[derive(Debug)]
pub struct Lane {
    epoch: Epoch,
    cursor: u64,
}

/// Figures for metrics and heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Last position that was read.
    pub cursor: u64,
    /// Position that the next flush would write.
    pub watermark: u64,
    /// Unsettled events in the window.
    pub window: usize,
    /// Deliveries in consumers' hands.
    pub in_flight: usize,
    /// Entities out of the window.
    pub parked_entities: usize,
    /// Events out of the window, deferred ones included.
    pub parked_positions: usize,
    /// Deferred events.
    pub deferred: usize,
    /// When the oldest unsettled event was accepted; `None` when there is none, or its entry is not known yet.
    pub oldest_unsettled: Option<Timestamp>,
    /// Events that retention dropped before they were settled, since the lane was made.
    pub expired: u64,
    /// Dead letters since the lane was made.
    pub dead: u64,
}

impl Lane {
    /// A lane that continues where the last owner's written flushes ended.
    ///
    /// # Errors
    /// [`Error::Config`] for a limit below its bound; [`Error::ParkedOrder`], [`Error::TwoPlaces`] or
    /// [`Error::NotPassed`] for stored state that breaks an invariant.
    pub fn new(config: LaneConfig, epoch: Epoch, restored: Restored, now: Timestamp) -> Result<Self, Error> {
        let _ = now;
        config.validate()?;
        Ok(Self { epoch, cursor: restored.watermark })
    }

    /// The epoch under which the lane was claimed.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Up to which position the log was read.
    #[must_use]
    pub const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// How many more entries the lane takes; 0 means stop reading.
    #[must_use]
    pub fn capacity(&self) -> usize {
        0
    }

    /// Whether nothing is in a consumer's hands and nothing waits to be written: then the lane can be handed over.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        true
    }

    /// Whether the lane was lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        false
    }

    /// Figures for metrics and heartbeats. Cheap.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Takes the matching `entries` (ascending) of a page that covers the positions above `after` up to and including
    /// `read_through`. Entries at or below the cursor are ignored. Takes no more than [`Lane::capacity`] and moves the
    /// cursor accordingly: when it returns less than `read_through`, read on after the returned cursor later.
    ///
    /// # Errors
    /// [`Error::Gap`] when `after` lies beyond the cursor. Nothing changed.
    pub fn handle_page(
        &mut self,
        now: Timestamp,
        after: u64,
        entries: &[Entry],
        read_through: u64,
    ) -> Result<u64, Error> {
        let _ = (now, after, entries);
        self.cursor = read_through;
        Ok(self.cursor)
    }

    /// Up to `limit` parked or deferred positions whose entries the lane does not know, ascending. The same ones come
    /// again until [`Lane::handle_entries`] answers.
    #[must_use]
    pub fn needs_entries(&self, limit: usize) -> Vec<u64> {
        let _ = limit;
        Vec::new()
    }

    /// Answers [`Lane::needs_entries`]: entries that were found, and positions that retention has dropped. The latter are
    /// counted as expired and leave the lane. Positions that were not asked for are ignored.
    pub fn handle_entries(&mut self, now: Timestamp, found: &[Entry], missing: &[u64]) {
        let _ = (now, found, missing);
    }

    /// Names the stream for new deliveries, or none. Deliveries in flight stay on their stream until they are settled or
    /// that stream ends, and their entities wait for that.
    pub fn set_stream(&mut self, stream: Option<StreamId>) {
        let _ = stream;
    }

    /// The next delivery for the current stream, when there is one that fits into `room`. A first-in-line event that does
    /// not fit is waited for, not overtaken. Logarithmic in the lane's size.
    pub fn poll_delivery(&mut self, now: Timestamp, room: Room) -> Option<Delivery> {
        let _ = (now, room);
        None
    }

    /// Takes an outcome. Its status comes by [`Lane::poll_settled`] under the same `tag`, exactly once: at once when
    /// there is nothing to write, otherwise after the flush that contains it.
    pub fn handle_settle(&mut self, now: Timestamp, rng: &mut dyn Rng, settlement: Settlement, tag: Tag) {
        let _ = (now, rng, settlement, tag);
    }

    /// The next answered settlement.
    pub fn poll_settled(&mut self) -> Option<Settled> {
        None
    }

    /// Gives a delivery time until `now + duration` (at most `hold_extension_max`), never less than it had. Returns
    /// whether the delivery is still going on.
    pub fn handle_hold(&mut self, now: Timestamp, token: Token, duration: Duration) -> bool {
        let _ = (now, token, duration);
        false
    }

    /// A stream is over. What it had is released or interrupted. Unknown streams are ignored.
    pub fn handle_stream_ended(
        &mut self,
        now: Timestamp,
        rng: &mut dyn Rng,
        stream: StreamId,
        ending: Ending,
    ) {
        let _ = (now, rng, stream, ending);
    }

    /// The caller could not send a delivery. Ignored when that delivery is over.
    pub fn handle_undeliverable(&mut self, now: Timestamp, token: Token, why: Undeliverable) {
        let _ = (now, token, why);
    }

    /// The next delivery that its consumer should stop working on.
    pub fn poll_revoke(&mut self) -> Option<Revoke> {
        None
    }

    /// What is to be written, when something is and no flush is on its way.
    pub fn poll_flush(&mut self, now: Timestamp) -> Option<Flush> {
        let _ = now;
        None
    }

    /// Makes an idle watermark due at once, for a last flush before the lane is handed over.
    pub fn hurry_flush(&mut self) {}

    /// Answers the flush that is on its way. Another `seq` is ignored.
    pub fn handle_flushed(&mut self, now: Timestamp, seq: u64, result: FlushResult) {
        let _ = (now, seq, result);
    }

    /// The lane belongs to another owner: all open settlements are answered with
    /// [`Status::TryAgain`](crate::Status::TryAgain), all deliveries revoked, and everything else is forgotten.
    pub fn handle_lost(&mut self) {}

    /// Does what is due: backoffs, deadlines, holds, ages.
    pub fn handle_timeout(&mut self, now: Timestamp, rng: &mut dyn Rng) {
        let _ = (now, rng);
    }

    /// When to call [`Lane::handle_timeout`], or to poll an idle flush; may lie in the past.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }
}
