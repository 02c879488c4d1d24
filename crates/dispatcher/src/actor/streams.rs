//! Streams coming and going.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;

use portero_engine::{RevokeReason, StreamId};
use rand::RngExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{Actor, Attached};
use crate::assign::assign;
use crate::dispatcher::AttachError;
use crate::keeping::Keeping;
use crate::shared::StreamCount;
use crate::stream::{
    DeliveryToken, DrainReason, EndReason, Ending, FRAMES_MAX, Frame, Leave, Stream, StreamSpec, Unsent,
};

/// Most streams of one subscription on one gateway.
const STREAMS_MAX: usize = 1_024;
/// How long a stream that was asked to leave because of its age may take to settle.
const AGED_PATIENCE: Duration = crate::MAX_HOLD;
const AGED_RECONNECT_WITHIN: Duration = Duration::from_millis(200);
/// Many are asked at once when an authority is replaced.
const DISTRUSTED_RECONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long lanes without a stream are kept after a consumer was cut off that works on something: it is back in a moment, and
/// resumes that only as long as nobody else was offered its events.
const CUT_INTEREST: Duration = Duration::from_millis(300);
/// How far off the next look at the streams is, when nothing of them is due.
const FAR: Duration = Duration::from_secs(3_600);

impl Actor {
    pub(super) fn attach(&mut self, spec: StreamSpec, reply: oneshot::Sender<Result<Attached, AttachError>>) {
        if self.drain.is_some() || self.shared.refusing.load(Ordering::SeqCst) {
            let _ = reply.send(Err(AttachError::ShuttingDown));
            return;
        }
        if self.streams.len() >= STREAMS_MAX {
            let _ = reply.send(Err(AttachError::TooManyStreams));
            return;
        }
        if !self.has_interest() {
            self.keep_lanes();
        }
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        let (frames, receiver) = mpsc::channel(FRAMES_MAX);
        let (end, ended) = watch::channel(None);
        let stream = self.open(spec.clone(), frames, end);
        self.streams_due_at = self.streams_due_at.min(stream.age_at);
        self.streams.insert(id, stream);
        self.stream_joined(id);
        let ghosts: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(other, stream)| **other != id && stream.instance == spec.instance)
            .map(|(other, _)| *other)
            .collect();
        for ghost in ghosts {
            self.replace(ghost);
        }
        self.sharing.want();
        self.reassign();
        let attached = Attached {
            id,
            session: self.session,
            generation: self.generation,
            frames: receiver,
            end: ended,
            lanes: 0,
            subscription_lanes: self.subscription.lanes.get(),
            resumed: Vec::new(),
        };
        self.welcome(attached, spec.unsettled, reply);
    }

    fn open(
        &mut self,
        spec: StreamSpec,
        frames: mpsc::Sender<Frame>,
        end: watch::Sender<Option<EndReason>>,
    ) -> Stream {
        let age = self.shared.stream_age;
        let age = self.rng.random_range(age.mul_f64(0.8)..=age.mul_f64(1.2));
        Stream {
            instance: spec.instance,
            boot: spec.boot,
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
            leave: None,
            age_at: Instant::now() + age,
            joined_at: None,
            lanes: Vec::new(),
            turn: 0,
            keeping: Keeping::new(Instant::now()),
            _count: StreamCount::new(&self.shared),
        }
    }

    /// The stream takes no more deliveries; what it has it may still settle.
    pub(super) fn close(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.closing = true;
        }
        self.reassign();
    }

    /// Asks a stream to leave whose connection's client is no longer trusted.
    pub(super) fn distrust(&mut self, id: StreamId, within: Duration) {
        let leave = Leave { reason: EndReason::Distrusted, by: Instant::now() + within };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(asked) = &mut stream.leave {
            // It was told to leave already, for whatever reason, and now has less time.
            asked.by = asked.by.min(leave.by);
            self.streams_due_at = self.streams_due_at.min(asked.by);
            return;
        }
        let deadline = self.now().plus(within);
        self.ask_to_leave(id, leave, deadline, DISTRUSTED_RECONNECT_WITHIN, DrainReason::Distrusted);
        self.reassign();
    }

    /// The consumer's side of the stream is over.
    pub(super) fn ended(&mut self, id: StreamId, ending: Ending) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.stream_left(&stream);
        // Whoever was asked to leave has left, however abruptly.
        let ending = if stream.leave.is_some() { Ending::Graceful } else { ending };
        if ending == Ending::Abnormal && self.in_hand.values().any(|(stream, _)| *stream == id) {
            self.late_until = self.late_until.max(Instant::now() + CUT_INTEREST);
        }
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

    /// Asks streams to leave that are old enough, and ends those that were asked and have nothing to finish, or no time left.
    pub(super) fn look_after_streams(&mut self) {
        let now = Instant::now();
        let mut over = Vec::new();
        for (id, stream) in &self.streams {
            if let Some(leave) = stream.leave.filter(|leave| stream.is_quiet() || leave.by <= now) {
                over.push((*id, leave.reason));
            }
        }
        for (id, reason) in over {
            self.end(id, reason, Ending::Graceful);
        }
        if self.streams_due_at > now {
            return;
        }
        let is_old = |stream: &Stream| stream.leave.is_none() && !stream.closing && stream.age_at <= now;
        let old: Vec<StreamId> =
            self.streams.iter().filter(|(_, stream)| is_old(stream)).map(|(id, _)| *id).collect();
        let leave = Leave { reason: EndReason::Aged, by: now + AGED_PATIENCE };
        let deadline = self.now().plus(AGED_PATIENCE);
        for id in &old {
            self.ask_to_leave(*id, leave, deadline, AGED_RECONNECT_WITHIN, DrainReason::StreamAge);
        }
        if !old.is_empty() {
            self.reassign();
        }
        self.streams_due_at = self
            .streams
            .values()
            .map(|stream| stream.leave.map_or(stream.age_at, |leave| leave.by))
            .filter(|due| *due > now)
            .min()
            .unwrap_or(now + FAR);
    }

    /// Ends all streams. On a planned end nothing is counted against what they had.
    pub(super) fn end_all(&mut self, reason: EndReason) {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.end(id, reason, Ending::Graceful);
        }
    }

    /// Spreads the lanes that stay over the streams that take deliveries.
    pub(super) fn reassign(&mut self) {
        let lanes: Vec<_> = self.lanes.keys().filter(|no| !self.sharing.is_leaving(**no)).copied().collect();
        let streams: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.closing)
            .map(|(id, stream)| (*id, stream.instance.as_str()))
            .collect();
        let spare = if lanes.is_empty() { 0 } else { streams.len().saturating_sub(lanes.len()) };
        let assigned = assign(&lanes, &streams);
        self.levels.lanes.set(self.lanes.len());
        self.levels.spare_streams.set(spare);
        for stream in self.streams.values_mut() {
            stream.lanes.clear();
        }
        for (no, id) in &assigned {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.lanes.push(*no);
            }
        }
        self.serving = assigned.into_iter().collect();
        for (no, lane) in &mut self.lanes {
            lane.set_stream(self.serving.get(no).copied());
        }
    }

    pub(super) fn poll_revokes(&mut self) {
        let mut revoked: HashMap<StreamId, Vec<_>> = HashMap::new();
        let mut failed = Vec::new();
        for (no, lane) in &mut self.lanes {
            while let Some(revoke) = lane.poll_revoke() {
                if revoke.reason == RevokeReason::HoldExpired {
                    failed.extend(lane.entry(revoke.token.position).map(|entry| entry.entity));
                }
                let token = DeliveryToken { lane: *no, token: revoke.token };
                revoked.entry(revoke.stream).or_default().push(token);
            }
        }
        let now = self.now();
        for entity in failed {
            self.watch(now, entity, false);
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
