//! A replica: drives lanes as the dispatcher's actor does. Claim, restore, read, deliver, settle, flush; give up by its own clock
//! before others take over.

mod claiming;
mod delivering;
mod flushing;
mod leaving;
mod reading;
mod session;
mod settling;
mod streams;

use std::collections::{BTreeMap, BTreeSet};

use portero_engine::{Lane, SideRead, SideScope, StreamId};
use portero_types::{LaneNo, Shard, Timestamp};

use crate::shared::Shared;
use crate::time::MS;
use crate::words::{Answer, ClientFrame, ConnId, Happening, Item, LaneToken, Process, Session, ToReplica};

/// How long a failed call is not repeated.
const PACE: u64 = 100 * MS;

pub(crate) struct SimReplica {
    pub(crate) me: Process,
    pub(crate) alive: bool,
    /// How much its wall clock is ahead, microseconds.
    skew: i64,
    session: Option<Session>,
    /// By its monotonic clock.
    trusted_until: u64,
    renewing: bool,
    renew_at: u64,
    lanes: BTreeMap<LaneNo, Lane>,
    streams: BTreeMap<StreamId, Stream>,
    waiting: Vec<Hello>,
    serving: BTreeMap<LaneNo, StreamId>,
    next_stream: u64,
    asks: BTreeMap<u64, Asked>,
    heads: Vec<u64>,
    rolling: bool,
    roll_at: u64,
    claiming: bool,
    releasing: bool,
    /// Rolls in a row by which the session has lanes that nobody here holds.
    orphans_seen: u32,
    /// Lanes that are handed over, and when what is in hand is taken back.
    leaving: BTreeMap<LaneNo, u64>,
    reading: BTreeSet<Shard>,
    read_at: u64,
    fetching: BTreeSet<LaneNo>,
    side_reading: BTreeSet<(LaneNo, SideScope)>,
    flushing: bool,
    flush_at: u64,
    tags: BTreeMap<u64, (Reply, Item)>,
    next_tag: u64,
    /// Deliveries that are prepared and not sent.
    unsent: BTreeSet<LaneToken>,
    /// Since when it is to end.
    draining: Option<u64>,
    closing: bool,
    wake_at: Option<u64>,
}

struct Stream {
    conn: ConnId,
    /// The consumer's place.
    consumer: usize,
    events_max: u32,
    bytes_max: u64,
    in_hand: BTreeMap<LaneToken, u64>,
    closing: bool,
    /// The delivery that is to be alone.
    alone: Option<LaneToken>,
    /// Since when it is kept free for one that has to be alone.
    saved_since: Option<u64>,
}

/// A consumer that waits to hear what it may go on with.
struct Hello {
    conn: ConnId,
    consumer: usize,
    unsettled: Vec<LaneToken>,
    events_max: u32,
    bytes_max: u64,
    until: u64,
}

/// Where a status goes.
#[derive(Clone, Copy)]
enum Reply {
    Conn(ConnId),
    Client(crate::words::Client),
}

/// What a question was for.
enum Asked {
    Open { session: Session, began: u64 },
    Renew { began: u64 },
    Close,
    Roll,
    Claim,
    Release,
    Flush { sent: Vec<(LaneNo, u64)> },
    Page { shard: Shard, after: u64 },
    Entries { lane: LaneNo, positions: Vec<u64> },
    Side { lane: LaneNo, read: SideRead },
}

impl SimReplica {
    pub(crate) fn new(me: Process, shared: &mut Shared) -> Self {
        let skew = if shared.profile.skewed { skew(shared) } else { 0 };
        let mut replica = Self {
            me,
            alive: true,
            skew,
            session: None,
            trusted_until: 0,
            renewing: false,
            renew_at: shared.now,
            lanes: BTreeMap::new(),
            streams: BTreeMap::new(),
            waiting: Vec::new(),
            serving: BTreeMap::new(),
            next_stream: 0,
            asks: BTreeMap::new(),
            heads: Vec::new(),
            rolling: false,
            roll_at: shared.now,
            claiming: false,
            releasing: false,
            orphans_seen: 0,
            leaving: BTreeMap::new(),
            reading: BTreeSet::new(),
            read_at: 0,
            fetching: BTreeSet::new(),
            side_reading: BTreeSet::new(),
            flushing: false,
            flush_at: 0,
            tags: BTreeMap::new(),
            next_tag: 0,
            unsent: BTreeSet::new(),
            draining: None,
            closing: false,
            wake_at: None,
        };
        replica.advance(shared);
        replica
    }

    /// Whether new streams are sent here.
    pub(crate) const fn is_open(&self) -> bool {
        self.alive && self.draining.is_none()
    }

    fn wall(&self, shared: &Shared) -> Timestamp {
        Timestamp::from_micros(i64::try_from(shared.now).expect("small") + self.skew)
    }

    pub(crate) fn handle(&mut self, shared: &mut Shared, what: ToReplica) {
        if !self.alive {
            return;
        }
        match what {
            ToReplica::Wake => self.wake_at = None,
            ToReplica::Answer { ask, answer } => {
                if let Some(asked) = self.asks.remove(&ask) {
                    self.answer(shared, asked, answer);
                }
            }
            ToReplica::Frame { conn, frame } => self.frame(shared, conn, frame),
            ToReplica::Broken { conn } => self.lost_conn(shared, conn),
            ToReplica::Prepared { conn, items } => self.prepared(shared, conn, items),
            ToReplica::Unary { client, items } => self.settle(shared, Reply::Client(client), items),
            ToReplica::Operator { entity, action } => {
                let now = self.wall(shared);
                if let Some(lane) = self.lanes.get_mut(&shared.lane_of(entity)) {
                    lane.handle_request(now, entity, action);
                }
            }
            ToReplica::Terminate => self.terminate(shared),
        }
        self.advance(shared);
    }

    fn frame(&mut self, shared: &mut Shared, conn: ConnId, frame: ClientFrame) {
        if !shared.net.carries(conn) {
            return;
        }
        match frame {
            ClientFrame::Hello { unsettled, events_max, bytes_max } => {
                self.hello(shared, conn, unsettled, events_max, bytes_max);
            }
            ClientFrame::Settle(items) => {
                if self.stream_of(conn).is_some() {
                    self.settle(shared, Reply::Conn(conn), items);
                }
            }
            ClientFrame::Goodbye => self.goodbye(conn),
            ClientFrame::Close => self.closed(shared, conn),
        }
    }

    fn answer(&mut self, shared: &mut Shared, asked: Asked, answer: Answer) {
        match asked {
            Asked::Open { session, began } => self.opened(shared, session, began, &answer),
            Asked::Renew { began } => self.renewed(shared, began, &answer),
            Asked::Close => self.alive = false,
            Asked::Roll => self.rolled(shared, answer),
            Asked::Claim => self.claimed(shared, answer),
            Asked::Release => self.releasing = false,
            Asked::Flush { sent } => self.flushed(shared, sent, answer),
            Asked::Page { shard, after } => self.page_read(shared, shard, after, answer),
            Asked::Entries { lane, positions } => self.entries_read(shared, lane, &positions, answer),
            Asked::Side { lane, read } => self.side_read(shared, lane, read, answer),
        }
    }

    /// Everything that follows from the last input.
    fn advance(&mut self, shared: &mut Shared) {
        if !self.alive {
            return;
        }
        let now = self.wall(shared);
        for lane in self.lanes.values_mut() {
            if lane.poll_timeout().is_some_and(|due| due <= now) {
                lane.handle_timeout(now, &mut shared.rng);
            }
        }
        self.keep_session(shared);
        self.poll_outputs(shared);
        if self.is_trusted(shared) {
            self.roll(shared);
            self.read(shared);
            self.welcome(shared);
            self.deliver(shared);
            self.poll_outputs(shared);
        }
        self.flush(shared);
        self.hand_over(shared);
        self.end_when_drained(shared);
        for (no, lane) in &self.lanes {
            shared.checker.stats(*no, &lane.stats());
        }
        self.plan(shared);
    }

    fn plan(&mut self, shared: &mut Shared) {
        let wall = self.wall(shared);
        let lanes = self.lanes.values().filter_map(Lane::poll_timeout);
        let due =
            lanes.map(|at| shared.now + u64::try_from(at.since(wall).as_micros()).unwrap_or(u64::MAX / 2));
        let mine = [self.renew_at, self.roll_at, self.trusted_until, self.flush_at, self.read_at];
        let next = due.chain(mine).filter(|at| *at > shared.now).min().unwrap_or(u64::MAX);
        let next = next.clamp(shared.now + MS, shared.now + roll_every(shared));
        if self.wake_at.is_none_or(|at| next < at) {
            self.wake_at = Some(next);
            shared.queue.push(next, Happening::Replica(self.me, ToReplica::Wake));
        }
    }

    /// Ends without a word to anyone.
    pub(crate) fn kill(&mut self, shared: &mut Shared) {
        self.alive = false;
        let me = self.me;
        shared.checker.trace(|| format!("replica {me:?} is killed"));
        for conn in shared.net.of(|conn| conn.process == me) {
            shared.break_conn(conn);
        }
    }
}

/// How often the store is asked how things stand: less often when only time is waited for.
const fn roll_every(shared: &Shared) -> u64 {
    if shared.healed { 1_000 * MS } else { 250 * MS }
}

fn skew(shared: &mut Shared) -> i64 {
    use rand::RngExt;
    shared.rng.random_range(-600_000_000..600_000_000)
}
