//! From a lane's decision to a frame: the body is read in between, and much may happen meanwhile.

use portero_engine::{Room, StreamId, Undeliverable, Want};
use portero_types::LaneNo;
use rand::RngExt;

use super::SimReplica;
use super::streams::SAVED_MAX;
use crate::planted::Planted;
use crate::shared::Shared;
use crate::time::{MS, SEC};
use crate::words::{ConnId, Happening, LaneToken, Sent, ServerFrame, ToReplica};

/// Deliveries of one frame.
const FRAME: usize = 8;

impl SimReplica {
    pub(super) fn deliver(&mut self, shared: &mut Shared) {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        if shared.has(Planted::LetsOneFullStreamStallTheOthers) {
            let is_full = |id: &StreamId| self.room(shared, *id).is_none_or(|room| room.events == 0);
            if streams.iter().any(is_full) {
                return;
            }
        }
        for id in streams {
            while self.deliver_frame(shared, id) {}
        }
    }

    /// What a stream takes now; `None` when it takes nothing at all.
    fn room(&self, shared: &Shared, id: StreamId) -> Option<Room> {
        let stream = self.streams.get(&id)?;
        if stream.closing || stream.alone.is_some() {
            return None;
        }
        if shared.has(Planted::IgnoresAStreamsRoom) {
            return Some(Room::UNLIMITED);
        }
        let events = u32::try_from(stream.in_hand.len()).unwrap_or(u32::MAX);
        let bytes: u64 = stream.in_hand.values().sum();
        Some(Room {
            events: stream.events_max.saturating_sub(events),
            bytes: stream.bytes_max.saturating_sub(bytes),
            idle: events == 0,
        })
    }

    fn deliver_frame(&mut self, shared: &mut Shared, id: StreamId) -> bool {
        let now = self.wall(shared);
        let lanes: Vec<LaneNo> =
            self.serving.iter().filter(|(_, serving)| **serving == id).map(|(no, _)| *no).collect();
        let mut frame = Vec::new();
        let mut dry = 0;
        let mut turn = 0;
        while dry < lanes.len() && frame.len() < FRAME {
            let no = lanes[turn % lanes.len()];
            turn += 1;
            let Some(room) = self.room(shared, id) else { break };
            if self.is_saved(shared, id, room) {
                break;
            }
            let lane = self.lanes.get_mut(&no).expect("only lanes that are here are served");
            let is_blocked = lane.stats().parked_entities > 0 && (shared.now / (5 * SEC)).is_multiple_of(2);
            if is_blocked && shared.has(Planted::LetsAFailureBlockItsLane) {
                dry += 1;
                continue;
            }
            let Some(delivery) = lane.poll_delivery(now, room) else {
                dry += 1;
                continue;
            };
            dry = 0;
            let token = LaneToken { lane: no, token: delivery.token };
            let stream = self.streams.get_mut(&id).expect("it has room");
            stream.in_hand.insert(token, u64::from(delivery.entry.body_bytes));
            stream.alone = delivery.alone.then_some(token);
            self.unsent.insert(token);
            frame.push(Sent { token, entry: delivery.entry, alone: delivery.alone, decided_at: shared.now });
        }
        let Some(conn) = self.streams.get(&id).map(|stream| stream.conn).filter(|_| !frame.is_empty()) else {
            return false;
        };
        let delay = if shared.is_stormy() && shared.chance(0.1) {
            shared.rng.random_range(MS..6 * SEC)
        } else {
            shared.rng.random_range(MS / 2..3 * MS)
        };
        shared.after(delay, Happening::Replica(self.me, ToReplica::Prepared { conn, items: frame }));
        true
    }

    /// Whether the stream is kept free for an event that wants it alone.
    fn is_saved(&mut self, shared: &Shared, id: StreamId, room: Room) -> bool {
        let wants = self.serving.iter().any(|(lane, serving)| {
            *serving == id
                && self.lanes.get(lane).is_some_and(|lane| lane.waits_for(room) == Some(Want::Alone))
        });
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        if !wants {
            stream.saved_since = None;
            return false;
        }
        let since = *stream.saved_since.get_or_insert(shared.now);
        if since + 2 * SAVED_MAX <= shared.now {
            stream.saved_since = None;
        }
        since + SAVED_MAX > shared.now
    }

    pub(super) fn prepared(&mut self, shared: &mut Shared, conn: ConnId, items: Vec<Sent>) {
        let now = self.wall(shared);
        let trusted = self.is_trusted(shared) || shared.has(Planted::SendsWhatItPreparedLongAgo);
        let is_here = self.stream_of(conn).is_some();
        let mut frame = Vec::new();
        for sent in items {
            if !self.unsent.remove(&sent.token) || !is_here {
                shared.checker.not_sent(sent.token);
                continue;
            }
            let shard = shared.shard_of(sent.token.lane);
            let why = if !trusted {
                Undeliverable::NotSent
            } else if shared.store.is_dropped(shard, sent.entry.n) {
                Undeliverable::BodyGone
            } else {
                frame.push(sent);
                continue;
            };
            self.give_back(&sent.token);
            shared.checker.not_sent(sent.token);
            if let Some(lane) = self.lanes.get_mut(&sent.token.lane) {
                lane.handle_undeliverable(now, sent.token.token, why);
            }
        }
        let Some(session) = self.session.filter(|_| !frame.is_empty()) else { return };
        for sent in &frame {
            shared.checker.started(&shared.store, shared.now, session, conn, sent);
        }
        shared.send_to_consumer(conn, ServerFrame::Deliver(frame));
    }
}
