//! From a lane's decision to a frame in a consumer's channel: reading bodies and packing frames.

use std::collections::HashMap;
use std::sync::Arc;

use portero_engine::{Room, StreamId, Undeliverable, Want};
use portero_types::{Event, LaneNo, Position, ReceiptId, SessionId, SubscriptionId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Actor, Done, PACE};
use crate::dispatcher::TraceHook;
use crate::keeping::Turn;
use crate::metrics;
use crate::opening::{Opened, Opener};
use crate::session::Standing;
use crate::shared::DynDeliveryStore;
use crate::stream::{
    Delivery, DeliveryToken, EndReason, Ending, FRAME_BODY_BYTES_MAX, FRAME_EVENTS_MAX, Frame, Unsent,
    WRITE_STALL_MAX,
};

/// Frames of one stream that may be prepared at the same time.
const PREPARING_MAX: u32 = 4;
/// Largest frame that is made, bytes, whatever the consumer decodes: the limit of what the server encodes.
const FRAME_BYTES_MAX: usize = (1 << 20) + (1 << 18);
/// What an event weighs on the wire besides its body and header values, bytes; generous.
const EVENT_OVERHEAD_BYTES: usize = 4 * 1024;

/// A batch that was prepared.
pub(super) struct PreparedDone {
    stream: StreamId,
    unsent: Vec<(DeliveryToken, Undeliverable)>,
    /// Deliveries over which the job broke down, if they were not sent before.
    broken: Vec<DeliveryToken>,
    stalled: bool,
}

impl PreparedDone {
    const fn new(stream: StreamId) -> Self {
        Self { stream, unsent: Vec::new(), broken: Vec::new(), stalled: false }
    }
}

/// A delivery that has no body yet.
struct Bare {
    token: DeliveryToken,
    attempt: u32,
    position: Position,
    receipt_id: ReceiptId,
}

/// What a look at a stream's lanes gives.
enum Taken {
    /// A delivery and the bytes of its body.
    Delivery(Bare, u64),
    /// This lane has nothing.
    Nothing,
    /// The frame, or the stream, takes no more now.
    Stop,
}

struct Batch {
    store: DynDeliveryStore,
    opener: Arc<Opener>,
    stream: StreamId,
    frames: mpsc::Sender<Frame>,
    unsent: Unsent,
    message_bytes_max: usize,
    subscription: SubscriptionId,
    session: SessionId,
    standing: watch::Receiver<Standing>,
    trace: Option<TraceHook>,
    bare: Vec<Bare>,
}

impl Actor {
    pub(super) fn deliver(&mut self) {
        let now = self.now();
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let lanes = std::mem::take(&mut stream.lanes);
            while let Some(bare) = self.next_batch(now, id, &lanes) {
                let stream =
                    self.streams.get_mut(&id).expect("a batch is only made for a stream that is here");
                stream.preparing += 1;
                let batch = Batch {
                    store: self.shared.store.clone(),
                    opener: Arc::clone(&self.shared.opener),
                    stream: id,
                    frames: stream.frames.clone(),
                    unsent: stream.unsent.clone(),
                    message_bytes_max: usize::try_from(stream.message_bytes_max)
                        .unwrap_or(usize::MAX)
                        .min(FRAME_BYTES_MAX),
                    subscription: self.subscription.id.clone(),
                    session: self.session,
                    standing: self.shared.standing.subscribe(),
                    trace: self.shared.trace.clone(),
                    bare,
                };
                let mut broken = PreparedDone::new(id);
                broken.broken = batch.bare.iter().map(|bare| bare.token).collect();
                self.spawn(async move { Done::Prepared(batch.send().await) }, move || Done::Prepared(broken));
            }
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.lanes = lanes;
            }
        }
    }

    /// Deliveries for one frame, taken from the stream's lanes in turn; `None` when nothing is ready or there is no room.
    fn next_batch(
        &mut self,
        now: portero_types::Timestamp,
        id: StreamId,
        lanes: &[LaneNo],
    ) -> Option<Vec<Bare>> {
        let stream = self.streams.get(&id)?;
        if stream.closing || stream.preparing >= PREPARING_MAX || lanes.is_empty() {
            return None;
        }
        let mut batch = Vec::new();
        let mut bytes_left = u64::MAX;
        let mut dry = 0;
        while dry < lanes.len() && batch.len() < FRAME_EVENTS_MAX {
            match self.next_delivery(now, id, lanes, bytes_left) {
                Taken::Delivery(bare, bytes) => {
                    bytes_left = bytes_left.min(FRAME_BODY_BYTES_MAX).saturating_sub(bytes);
                    dry = 0;
                    batch.push(bare);
                }
                Taken::Nothing => dry += 1,
                Taken::Stop => break,
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// What the lane whose turn it is has for the stream.
    fn next_delivery(
        &mut self,
        now: portero_types::Timestamp,
        id: StreamId,
        lanes: &[LaneNo],
        bytes_left: u64,
    ) -> Taken {
        let at = Instant::now();
        let gate = self.gating.room(now, self.in_hand.len());
        let Some(stream) = self.streams.get_mut(&id) else { return Taken::Stop };
        let idle = stream.events == 0;
        let in_hand = &self.in_hand;
        let turn =
            stream.keeping.turn(at, idle, |no| lanes.contains(&no), |token| in_hand.contains_key(token));
        let no = match turn {
            Turn::Everyone => lanes[stream.turn % lanes.len()],
            Turn::Lane(lane) => lane,
            Turn::Nobody => return Taken::Stop,
        };
        let room = Room { events: stream.events_room().min(gate), bytes: stream.bytes_room(), idle };
        let in_frame = Room { bytes: room.bytes.min(bytes_left), ..room };
        let Some(lane) = self.lanes.get_mut(&no).filter(|_| room.events > 0) else { return Taken::Stop };
        // Under load a stream is never empty by itself.
        let is_wanted = turn == Turn::Everyone && !idle && lane.wants_to_be_alone();
        if is_wanted && stream.keeping.keep(at, no, Want::Alone) {
            return Taken::Stop;
        }
        let Some(delivery) = lane.poll_delivery(now, in_frame) else {
            let want = lane.waits_for(room);
            // What fits into the stream, but not into this frame, begins the next one.
            let is_next = lane.waits_for(in_frame) != want;
            if is_next || want.is_some_and(|want| stream.keeping.keep(at, no, want)) {
                return Taken::Stop;
            }
            if turn != Turn::Everyone {
                stream.keeping.forget();
            }
            stream.turn = stream.turn.wrapping_add(1);
            return Taken::Nothing;
        };
        stream.turn = stream.turn.wrapping_add(1);
        let token = DeliveryToken { lane: no, token: delivery.token };
        let size = u64::from(delivery.entry.body_bytes);
        stream.events += 1;
        stream.bytes += size;
        stream.keeping.delivered(at, token, delivery.alone);
        stream.unsent.add(token);
        self.in_hand.insert(token, (id, size));
        let shard = self.subscription.lanes.shard_of(no, self.shards);
        let position = Position { shard, n: delivery.entry.n };
        let receipt_id = delivery.entry.receipt_id;
        Taken::Delivery(Bare { token, attempt: delivery.attempt, position, receipt_id }, size)
    }

    pub(super) fn prepared(&mut self, done: PreparedDone) {
        let mut broken = done.broken;
        match self.streams.get_mut(&done.stream) {
            Some(stream) => {
                stream.preparing -= 1;
                for (token, _) in &done.unsent {
                    stream.unsent.withdraw(token);
                }
                // What was sent, or revoked, is not the job's any more.
                broken.retain(|token| stream.unsent.withdraw(token));
            }
            None => broken.clear(),
        }
        let now = self.now();
        for token in broken {
            self.give_back(&token);
            if let Some(lane) = self.lanes.get_mut(&token.lane) {
                lane.handle_interrupted(now, &mut self.rng, token.token);
            }
        }
        for (token, why) in done.unsent {
            self.give_back(&token);
            if let Some(lane) = self.lanes.get_mut(&token.lane) {
                lane.handle_undeliverable(now, token.token, why);
            }
        }
        if done.stalled {
            tracing::warn!(subscription.id = %self.subscription.id, "a consumer took no frame for too long; its stream ends");
            self.end(done.stream, EndReason::WriteStall, Ending::Abnormal);
        }
    }
}

impl Batch {
    async fn send(self) -> PreparedDone {
        let mut done = PreparedDone::new(self.stream);
        let receipts: Vec<ReceiptId> = self.bare.iter().map(|bare| bare.receipt_id).collect();
        let events = match self.store.events(&receipts).await {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(subscription.id = %self.subscription, %error, "events could not be read; they wait");
                done.unsent = self.bare.iter().map(|bare| (bare.token, Undeliverable::NotSent)).collect();
                tokio::time::sleep(PACE).await;
                return done;
            }
        };
        let events = self.opener.open(events).await;
        for frame in self.pack(events, &mut done.unsent) {
            let room = tokio::time::timeout(WRITE_STALL_MAX, self.frames.reserve()).await;
            done.stalled |= room.is_err();
            match room {
                // A process that was paused may go on right here, and the lane may be another's by then.
                Ok(Ok(room)) if self.standing.borrow().trusts(self.session) => {
                    metrics::delivered(self.unsent.send(room, frame));
                }
                Ok(Ok(_) | Err(_)) | Err(_) => {
                    let tokens = frame.into_iter().map(|delivery| delivery.token);
                    done.unsent.extend(tokens.map(|token| (token, Undeliverable::NotSent)));
                }
            }
        }
        done
    }

    /// Joins deliveries and events into frames that the consumer can decode.
    fn pack(
        &self,
        events: Vec<(ReceiptId, Opened)>,
        unsent: &mut Vec<(DeliveryToken, Undeliverable)>,
    ) -> Vec<Vec<Delivery>> {
        let mut events: HashMap<ReceiptId, Opened> = events.into_iter().collect();
        let (mut frames, mut frame, mut bytes) = (Vec::new(), Vec::new(), 0);
        for bare in &self.bare {
            let event = match events.remove(&bare.receipt_id) {
                Some(Opened::Event(event)) => *event,
                Some(Opened::Unreadable) => {
                    unsent.push((bare.token, Undeliverable::Unreadable));
                    continue;
                }
                Some(Opened::Erased) | None => {
                    unsent.push((bare.token, Undeliverable::BodyGone));
                    continue;
                }
            };
            let size = weight(&event);
            if size > self.message_bytes_max {
                unsent.push((bare.token, Undeliverable::TooLarge));
                continue;
            }
            if bytes + size > self.message_bytes_max && !frame.is_empty() {
                frames.push(std::mem::take(&mut frame));
                bytes = 0;
            }
            bytes += size;
            self.trace(bare, &event);
            frame.push(Delivery { token: bare.token, attempt: bare.attempt, position: bare.position, event });
        }
        if !frame.is_empty() {
            frames.push(frame);
        }
        frames
    }

    /// Leaves a span of the delivery in the trace that the event was accepted in.
    fn trace(&self, bare: &Bare, event: &Event) {
        if let Some(hook) = self.trace.as_ref().filter(|_| !event.trace_parent.is_empty()) {
            let span = tracing::info_span!(
                "deliver", receipt.id = %event.receipt_id, subscription.id = %self.subscription, attempt.number = bare.attempt,
            );
            hook(&span, &event.trace_parent);
            span.in_scope(|| tracing::debug!("handed to the consumer's stream"));
        }
    }
}

fn weight(event: &Event) -> usize {
    let headers: usize = event.headers.iter().map(|header| header.name.len() + header.value.len() + 16).sum();
    event.body.len() + headers + EVENT_OVERHEAD_BYTES
}
