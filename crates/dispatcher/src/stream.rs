//! One consumer's stream as the dispatcher sees it: what it may hold, and the channel towards it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portero_engine::Token;
use portero_types::{Event, LaneNo, Position, SubscriptionNo, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::keeping::Keeping;
use crate::shared::StreamCount;

/// Most frames that wait in the channel of one stream.
pub(crate) const FRAMES_MAX: usize = 16;
/// Most events in one frame of deliveries.
pub(crate) const FRAME_EVENTS_MAX: usize = 128;
/// Bodies in one frame of deliveries add up to no more than this, unless one event alone is larger.
pub(crate) const FRAME_BODY_BYTES_MAX: u64 = 768 * 1024;
/// A frame that the consumer does not take for so long ends its stream.
pub(crate) const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// Limits of unsettled deliveries on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Unsettled events, 1 to 10,000.
    pub events_max: u32,
    /// Bytes of their bodies. One event is always allowed.
    pub bytes_max: u64,
}

impl Default for Flow {
    fn default() -> Self {
        Self { events_max: 256, bytes_max: 16 << 20 }
    }
}

/// A consumer that asks for a stream.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// The subscription that the caller may use.
    pub subscription: SubscriptionNo,
    /// Stable name of the consumer's place: a newer stream of the same instance ends older ones.
    pub instance: String,
    /// Fresh for each start of the consumer.
    pub boot: String,
    /// First limits.
    pub flow: Flow,
    /// The largest frame that the consumer decodes, bytes.
    pub message_bytes_max: u64,
    /// Deliveries of earlier streams of the same consumer that it still works on; those that can go on here do.
    pub unsettled: Vec<DeliveryToken>,
}

/// Names one delivery in the whole installation; the form behind the protocol's opaque token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryToken {
    /// The lane.
    pub lane: LaneNo,
    /// The engine's token within the lane.
    pub token: Token,
}

/// One event, offered once.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Names this offer.
    pub token: DeliveryToken,
    /// Which offer of this event this is, first 1.
    pub attempt: u32,
    /// Where it stands in the log.
    pub position: Position,
    /// The event.
    pub event: Event,
}

/// What the dispatcher sends to a consumer.
#[derive(Debug)]
pub enum Frame {
    /// Events to work on.
    Deliver(Vec<Delivery>),
    /// Deliveries to stop working on.
    Revoke {
        /// Their tokens.
        tokens: Vec<DeliveryToken>,
    },
    /// Reconnect, here or elsewhere; deliveries stop.
    Drain {
        /// Settle until then.
        deadline: Timestamp,
        /// Reconnect at a random moment within this time, so that not all come at once.
        reconnect_within: Duration,
        /// Why.
        reason: DrainReason,
    },
}

/// Why a consumer is asked to reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// This gateway is shutting down.
    ShuttingDown,
    /// The stream is old: streams are spread anew now and then.
    StreamAge,
    /// Its connection ends, because the certificate that the consumer showed is no longer trusted.
    Distrusted,
}

/// Why a stream ended from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// A newer stream of the same instance took over.
    Replaced,
    /// The subscription was deleted.
    SubscriptionDeleted,
    /// Another gateway took over this one's session.
    Fenced,
    /// The consumer took no frame for too long.
    WriteStall,
    /// This gateway is shutting down.
    ShuttingDown,
    /// The log has another generation: what was delivered here may be gone, and positions are used again.
    GenerationChanged,
    /// It was asked to reconnect because of its age, and is done or out of time.
    Aged,
    /// It was asked to leave because its connection's client is no longer trusted, and is done or out of time.
    Distrusted,
    /// This gateway lost what it knew of the stream.
    Broken,
}

/// Lag and age, for heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Entries after the ones read for this subscription's lanes here.
    pub head_lag: u64,
    /// When the oldest unsettled event was accepted.
    pub oldest_unsettled: Option<Timestamp>,
}

pub use portero_engine::{Ending, Outcome, Reason, Status};

/// What a consumer says of a delivery.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Which delivery; `None` when its token could not be read, which gets the status `UnknownToken`.
    pub token: Option<DeliveryToken>,
    /// The outcome.
    pub outcome: Outcome,
    /// Why.
    pub reason: Reason,
}

/// A stream inside its subscription's actor.
pub(crate) struct Stream {
    pub(crate) instance: String,
    pub(crate) boot: String,
    pub(crate) flow: Flow,
    pub(crate) message_bytes_max: u64,
    pub(crate) frames: mpsc::Sender<Frame>,
    pub(crate) end: watch::Sender<Option<EndReason>>,
    /// Frames other than deliveries that wait for room in the channel.
    pub(crate) outbox: VecDeque<Frame>,
    /// Deliveries that are being prepared.
    pub(crate) unsent: Unsent,
    /// Unsettled deliveries and their bytes.
    pub(crate) events: u32,
    pub(crate) bytes: u64,
    /// Frames that are being prepared or wait for room in the channel.
    pub(crate) preparing: u32,
    /// Takes no more deliveries.
    pub(crate) closing: bool,
    /// Set once it was asked to leave.
    pub(crate) leave: Option<Leave>,
    /// When it is asked to leave because of its age.
    pub(crate) age_at: Instant,
    /// When other gateways could know of it.
    pub(crate) joined_at: Option<Instant>,
    /// The lanes that it serves.
    pub(crate) lanes: Vec<LaneNo>,
    /// Where the next round over its lanes begins, so that no lane is always first.
    pub(crate) turn: usize,
    /// For whom its room is kept.
    pub(crate) keeping: Keeping,
    /// Counts it.
    pub(crate) _count: StreamCount,
}

/// A stream that was asked to leave: it is ended from this side once nothing of it is open, or at the deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    pub(crate) reason: EndReason,
    pub(crate) by: Instant,
}

/// Deliveries of one stream that were decided and are not yet in its channel.
///
/// A delivery may be revoked while its body is read; were it sent all the same, a settled event would come again, and after
/// later ones of its entity. Whoever takes a token out of here decides: the job that sends it, or the actor that revokes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsent(Arc<Mutex<HashSet<DeliveryToken>>>);

impl Unsent {
    pub(crate) fn add(&self, token: DeliveryToken) {
        self.tokens().insert(token);
    }

    /// Takes one out; false when it is in the channel already.
    pub(crate) fn withdraw(&self, token: &DeliveryToken) -> bool {
        self.tokens().remove(token)
    }

    /// Puts what of a frame was not withdrawn into the channel; answers how many deliveries that were.
    pub(crate) fn send(&self, room: mpsc::Permit<'_, Frame>, mut frame: Vec<Delivery>) -> usize {
        // Held until the frame is in the channel, so that the revocation of any of it comes after it there.
        let mut tokens = self.tokens();
        frame.retain(|delivery| tokens.remove(&delivery.token));
        let count = frame.len();
        if count > 0 {
            room.send(Frame::Deliver(frame));
        }
        count
    }

    fn tokens(&self) -> MutexGuard<'_, HashSet<DeliveryToken>> {
        // No operation on the set leaves it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// Sends what waits in the outbox, as far as the channel has room.
    pub(crate) fn flush_outbox(&mut self) {
        while let Some(frame) = self.outbox.pop_front() {
            match self.frames.try_send(frame) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(frame)) => {
                    self.outbox.push_front(frame);
                    return;
                }
                // The receiver is gone; its end is reported on its own.
                Err(mpsc::error::TrySendError::Closed(_)) => return,
            }
        }
    }

    /// Whether it has nothing unsettled and its consumer has taken every frame.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events == 0
            && self.preparing == 0
            && self.outbox.is_empty()
            && self.frames.capacity() == self.frames.max_capacity()
    }

    /// How many more events it may hold now.
    pub(crate) fn events_room(&self) -> u32 {
        self.flow.events_max.saturating_sub(self.events)
    }

    /// How many more bytes it may hold now.
    pub(crate) fn bytes_room(&self) -> u64 {
        self.flow.bytes_max.saturating_sub(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use portero_types::{Epoch, ProviderName, ReceiptId, RequestId, Shard, SourceId, TenantId};

    use super::*;

    fn delivery(n: u64) -> Delivery {
        let at = Timestamp::from_secs(1);
        let event = Event {
            receipt_id: ReceiptId::new(at, u128::from(n)),
            tenant: TenantId::new("acme").expect("valid"),
            source: SourceId::new("stripe").expect("valid"),
            provider: ProviderName::new("stripe").expect("valid"),
            event_id: format!("evt_{n}"),
            id_derived: false,
            event_type: String::new(),
            ordering_key: "stripe:a".to_owned(),
            received_at: at,
            request_id: RequestId::new(at, 1),
            trace_parent: String::new(),
            content_type: String::new(),
            headers: Vec::new(),
            body: Vec::new().into(),
        };
        let token = Token { epoch: Epoch(1), position: n, delivery: 1 };
        let token = DeliveryToken { lane: LaneNo(0), token };
        Delivery { token, attempt: 1, position: Position { shard: Shard(0), n }, event }
    }

    #[tokio::test]
    async fn a_delivery_is_either_sent_or_withdrawn() {
        let (frames, mut receiver) = mpsc::channel(FRAMES_MAX);
        let unsent = Unsent::default();
        let both = vec![delivery(1), delivery(2)];
        for delivery in &both {
            unsent.add(delivery.token);
        }
        assert!(unsent.withdraw(&both[0].token), "it is not sent yet");
        let room = frames.reserve().await.expect("open");
        assert_eq!(unsent.send(room, both.clone()), 1);
        let frame = receiver.try_recv().expect("a frame");
        assert!(matches!(&frame, Frame::Deliver(sent) if sent[0].token == both[1].token), "{frame:?}");
        assert!(!unsent.withdraw(&both[1].token), "it is sent already");

        let room = frames.reserve().await.expect("open");
        assert_eq!(unsent.send(room, both), 0, "nothing is left of the frame");
        assert!(receiver.try_recv().is_err());
    }
}
