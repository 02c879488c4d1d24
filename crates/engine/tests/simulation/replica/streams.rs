//! Streams come and go, and share the lanes.

use std::collections::BTreeMap;

use portero_engine::{Ending, StreamId};
use portero_types::LaneNo;

use super::{Hello, SimReplica, Stream};
use crate::planted::Planted;
use crate::shared::Shared;
use crate::time::{MS, SEC};
use crate::words::{ConnId, LaneToken, Sent, ServerFrame};

impl SimReplica {
    pub(super) fn stream_of(&self, conn: ConnId) -> Option<StreamId> {
        self.streams.iter().find(|(_, stream)| stream.conn == conn).map(|(id, _)| *id)
    }

    pub(super) fn hello(
        &mut self,
        shared: &mut Shared,
        conn: ConnId,
        unsettled: Vec<LaneToken>,
        events_max: u32,
        bytes_max: u64,
    ) {
        let Some(consumer) = shared.net.get(conn).map(|conn| conn.client.slot) else { return };
        if self.draining.is_some() || self.session.is_none() {
            shared.send_to_consumer(conn, ServerFrame::End);
            return;
        }
        // An older stream of the same consumer is a ghost.
        let ghosts: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.consumer == consumer)
            .map(|(id, _)| *id)
            .collect();
        for ghost in ghosts {
            self.gone_without_a_word(shared, ghost);
        }
        let until = shared.now + if unsettled.is_empty() { 0 } else { 1_500 * MS };
        self.waiting.push(Hello { conn, consumer, unsettled, events_max, bytes_max, until });
        self.roll_at = shared.now;
    }

    /// Attaches the streams of which it is known what they may go on with.
    pub(super) fn welcome(&mut self, shared: &mut Shared) {
        let mut index = 0;
        while index < self.waiting.len() {
            let hello = &self.waiting[index];
            let is_known = hello.unsettled.iter().all(|token| {
                self.lanes.get(&token.lane).is_some_and(|lane| !lane.has_to_read_for(token.token))
            });
            if is_known || hello.until <= shared.now {
                let hello = self.waiting.remove(index);
                self.attach(shared, &hello);
            } else {
                index += 1;
            }
        }
    }

    fn attach(&mut self, shared: &mut Shared, hello: &Hello) {
        if !shared.net.carries(hello.conn) {
            return;
        }
        let Some(session) = self.session else { return };
        self.next_stream += 1;
        let id = StreamId(self.next_stream);
        let now = self.wall(shared);
        let mut stream = Stream {
            conn: hello.conn,
            consumer: hello.consumer,
            events_max: hello.events_max,
            bytes_max: hello.bytes_max,
            in_hand: BTreeMap::new(),
            closing: false,
            alone: None,
            saved_since: None,
        };
        let mut resumed = Vec::new();
        for token in &hello.unsettled {
            let Some(lane) = self.lanes.get_mut(&token.lane) else { continue };
            let goes_on = lane.handle_adopt(now, token.token, id);
            let Some(entry) = lane.entry(token.token.position) else { continue };
            if goes_on || shared.has(Planted::ResumesWhateverItIsTold) {
                stream.in_hand.insert(*token, u64::from(entry.body_bytes));
                resumed.push(*token);
                let sent = Sent { token: *token, entry, alone: false, decided_at: shared.now };
                shared.checker.adopted(&shared.store, session, hello.conn, &sent);
            }
        }
        self.streams.insert(id, stream);
        shared.send_to_consumer(hello.conn, ServerFrame::Welcome { resumed });
        self.reassign(shared);
    }

    /// The consumer wants nothing new.
    pub(super) fn goodbye(&mut self, conn: ConnId) {
        if let Some(id) = self.stream_of(conn)
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.closing = true;
        }
        self.assign();
    }

    /// The consumer has closed its side: what it has is released.
    pub(super) fn closed(&mut self, shared: &mut Shared, conn: ConnId) {
        shared.close_conn(conn);
        self.waiting.retain(|hello| hello.conn != conn);
        if let Some(id) = self.stream_of(conn) {
            let ending = if shared.has(Planted::TakesAPlannedEndForACrash) {
                Ending::Abnormal
            } else {
                Ending::Graceful
            };
            self.ended(shared, id, ending);
        }
    }

    /// The connection is gone.
    pub(super) fn lost_conn(&mut self, shared: &mut Shared, conn: ConnId) {
        self.waiting.retain(|hello| hello.conn != conn);
        if let Some(id) = self.stream_of(conn) {
            self.gone_without_a_word(shared, id);
        }
        shared.close_conn(conn);
    }

    fn gone_without_a_word(&mut self, shared: &mut Shared, id: StreamId) {
        if let Some(stream) = self.streams.get(&id) {
            shared.checker.interrupted(stream.in_hand.keys().copied());
            shared.checker.stream_over(stream.conn, shared.now);
        }
        self.ended(shared, id, Ending::Abnormal);
    }

    fn ended(&mut self, shared: &mut Shared, id: StreamId, ending: Ending) {
        self.streams.remove(&id);
        let now = self.wall(shared);
        for lane in self.lanes.values_mut() {
            lane.handle_stream_ended(now, &mut shared.rng, id, ending);
        }
        self.reassign(shared);
    }

    /// Ends all streams from this side; nothing is counted.
    pub(super) fn end_all(&mut self, shared: &mut Shared) {
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            if let Some(stream) = self.streams.get(&id) {
                shared.send_to_consumer(stream.conn, ServerFrame::End);
                shared.checker.stream_over(stream.conn, shared.now);
            }
            let ending = if shared.has(Planted::TakesAPlannedEndForACrash) {
                Ending::Abnormal
            } else {
                Ending::Graceful
            };
            self.ended(shared, id, ending);
        }
        for hello in std::mem::take(&mut self.waiting) {
            shared.send_to_consumer(hello.conn, ServerFrame::End);
        }
    }

    /// Spreads the lanes over the streams that take deliveries.
    pub(super) fn reassign(&mut self, shared: &mut Shared) {
        let before = self.serving.clone();
        self.assign();
        if shared.has(Planted::LetsTwoStreamsHaveAnEntity) {
            let now = self.wall(shared);
            for (no, lane) in &mut self.lanes {
                if let Some(old) = before.get(no).filter(|old| self.serving.get(no) != Some(old)) {
                    lane.handle_stream_ended(now, &mut shared.rng, *old, Ending::Graceful);
                    lane.set_stream(self.serving.get(no).copied());
                }
            }
        }
        for (no, id) in &self.serving {
            let stalled = shared.profile.weather == crate::profile::Weather::Stalled
                && self.streams.get(id).is_some_and(|stream| stream.consumer == 0);
            if stalled {
                shared.checker.spoils(*no);
            }
        }
    }

    fn assign(&mut self) {
        let open: Vec<(usize, StreamId)> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.closing)
            .map(|(id, stream)| (stream.consumer, *id))
            .collect();
        self.serving.clear();
        let share = self.lanes.len().div_ceil(open.len().max(1));
        let mut shares: BTreeMap<StreamId, usize> = BTreeMap::new();
        for (no, lane) in &mut self.lanes {
            let free = open.iter().filter(|(_, id)| shares.get(id).copied().unwrap_or(0) < share);
            let best = free.max_by_key(|(consumer, _)| preference(*no, *consumer)).map(|(_, id)| *id);
            let best = best.filter(|_| !self.leaving.contains_key(no));
            if let Some(id) = best {
                *shares.entry(id).or_default() += 1;
                self.serving.insert(*no, id);
            }
            lane.set_stream(best);
        }
    }

    /// A delivery is no longer in its consumer's hands.
    pub(super) fn give_back(&mut self, token: &LaneToken) {
        for stream in self.streams.values_mut() {
            stream.in_hand.remove(token);
            stream.alone.take_if(|alone| alone == token);
        }
    }
}

/// How much a lane prefers a consumer; the same over its reconnects.
fn preference(lane: LaneNo, consumer: usize) -> u64 {
    let seed = (u64::from(lane.0) << 32) ^ (consumer as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (seed ^ (seed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}

/// How long a stream is kept free for an event that has to be alone.
pub(super) const SAVED_MAX: u64 = 2 * SEC;
