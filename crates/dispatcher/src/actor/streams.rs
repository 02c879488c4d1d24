//! Streams coming and going.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use portero_engine::StreamId;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Actor, Attached};
use crate::assign::assign;
use crate::dispatcher::AttachError;
use crate::metrics;
use crate::stream::{DeliveryToken, EndReason, Ending, FRAMES_MAX, Frame, Stream, StreamSpec, Unsent};

/// Most streams of one subscription on one gateway.
const STREAMS_MAX: usize = 1_024;

impl Actor {
    pub(super) fn attach(&mut self, spec: StreamSpec, reply: oneshot::Sender<Result<Attached, AttachError>>) {
        if self.draining || self.shared.refusing.load(Ordering::SeqCst) {
            let _ = reply.send(Err(AttachError::ShuttingDown));
            return;
        }
        if self.streams.len() >= STREAMS_MAX {
            let _ = reply.send(Err(AttachError::TooManyStreams));
            return;
        }
        let ghosts: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.instance == spec.instance)
            .map(|(id, _)| *id)
            .collect();
        for ghost in ghosts {
            self.end(ghost, EndReason::Replaced, Ending::Abnormal);
        }
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        let (frames, receiver) = mpsc::channel(FRAMES_MAX);
        let (end, ended) = watch::channel(None);
        let stream = Stream {
            instance: spec.instance,
            flow: spec.flow,
            message_bytes_max: spec.message_bytes_max,
            frames,
            end,
            outbox: VecDeque::new(),
            unsent: Unsent::default(),
            events: 0,
            bytes: 0,
            preparing: 0,
            closing: false,
            drained: false,
            turn: 0,
        };
        self.streams.insert(id, stream);
        self.shared.streams.fetch_add(1, Ordering::SeqCst);
        metrics::stream_opened();
        self.claim_at = tokio::time::Instant::now();
        self.reassign();
        let lanes = self.serving.values().filter(|serving| **serving == id).count();
        let attached = Attached { id, frames: receiver, end: ended, lanes };
        if reply.send(Ok(attached)).is_err() {
            self.ended(id, Ending::Graceful);
        }
    }

    /// The stream takes no more deliveries; what it has it may still settle.
    pub(super) fn close(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.closing = true;
        }
        self.reassign();
    }

    /// The consumer's side of the stream is over.
    pub(super) fn ended(&mut self, id: StreamId, ending: Ending) {
        if self.streams.remove(&id).is_none() {
            return;
        }
        self.shared.streams.fetch_sub(1, Ordering::SeqCst);
        metrics::stream_closed();
        let now = self.now();
        for lane in self.lanes.values_mut() {
            lane.handle_stream_ended(now, &mut self.rng, id, ending);
        }
        self.in_hand.retain(|_, (stream, _)| *stream != id);
        self.reassign();
    }

    /// Ends a stream from this side.
    pub(super) fn end(&mut self, id: StreamId, reason: EndReason, ending: Ending) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.flush_outbox();
            stream.end.send_replace(Some(reason));
        }
        self.ended(id, ending);
    }

    /// Ends the streams that were asked to leave and have nothing to finish, so that a shutdown does not wait for them.
    pub(super) fn end_drained(&mut self) {
        let idle = self.settling.is_empty();
        let ids: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| idle && stream.drained && stream.is_quiet())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.end(id, EndReason::ShuttingDown, Ending::Graceful);
        }
    }

    /// Ends all streams. On a planned end nothing is counted against what they had.
    pub(super) fn end_all(&mut self, reason: EndReason) {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.end(id, reason, Ending::Graceful);
        }
    }

    /// Spreads the lanes over the streams that take deliveries.
    pub(super) fn reassign(&mut self) {
        let lanes: Vec<_> = self.lanes.keys().copied().collect();
        let streams: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.closing)
            .map(|(id, stream)| (*id, stream.instance.as_str()))
            .collect();
        self.serving = assign(&lanes, &streams).into_iter().collect();
        for (no, lane) in &mut self.lanes {
            lane.set_stream(self.serving.get(no).copied());
        }
    }

    pub(super) fn poll_revokes(&mut self) {
        let mut revoked: HashMap<StreamId, Vec<_>> = HashMap::new();
        for (no, lane) in &mut self.lanes {
            while let Some(revoke) = lane.poll_revoke() {
                let token = DeliveryToken { lane: *no, token: revoke.token };
                revoked.entry(revoke.stream).or_default().push(token);
            }
        }
        for (id, mut tokens) in revoked {
            for token in &tokens {
                self.give_back(token);
            }
            if let Some(stream) = self.streams.get_mut(&id) {
                // What is withdrawn in time never reaches the consumer.
                tokens.retain(|token| !stream.unsent.withdraw(token));
                if !tokens.is_empty() {
                    stream.outbox.push_back(Frame::Revoke { tokens });
                }
            }
        }
    }

    /// A delivery is no longer in its consumer's hands: its stream has room again.
    pub(super) fn give_back(&mut self, token: &DeliveryToken) {
        if let Some((id, bytes)) = self.in_hand.remove(token)
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.events = stream.events.saturating_sub(1);
            stream.bytes = stream.bytes.saturating_sub(bytes);
        }
    }
}
