//! One subscription's actor: a single task that owns the subscription's lanes and streams and takes every decision about
//! them, one after the other.
//!
//! It waits for commands, for the log's heads, for timers and for the ends of its jobs (claim, read, flush, prepare).
//! A job does IO and nothing else; its result comes back as an event. After each event the actor asks its lanes what
//! follows: revocations, statuses, deliveries, and at most one flush at a time for all lanes together.

mod flush;
mod lanes;
mod prepare;
mod read;
mod settle;
mod streams;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use portero_engine::{Lane, StreamId};
use portero_store::Subscription;
use portero_types::{LaneNo, SessionId, Shard, ShardCount, Timestamp};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::dispatcher::{AttachError, Shared};
use crate::filter::Filter;
use crate::stream::{
    Backlog, DeliveryToken, EndReason, Ending, Flow, Frame, Settlement, Status, Stream, StreamSpec,
};

/// Commands that wait for an actor.
pub(crate) const MAILBOX: usize = 1_024;
/// The longest that a timer sleeps: so that a clock that was moved is noticed.
const TIMER_MAX: Duration = Duration::from_millis(250);
/// How long a failed call to the store is not repeated.
const PACE: Duration = Duration::from_millis(100);
/// How often lanes that another gateway owns are asked for again.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// How long lanes are kept for outcomes that come outside of a stream.
const LATE_INTEREST: Duration = Duration::from_secs(2);

/// What an accepted stream is given.
pub(crate) struct Attached {
    pub(crate) id: StreamId,
    pub(crate) frames: mpsc::Receiver<Frame>,
    pub(crate) end: watch::Receiver<Option<EndReason>>,
    pub(crate) lanes: usize,
}

/// What an actor is told.
pub(crate) enum Command {
    Attach { spec: StreamSpec, reply: oneshot::Sender<Result<Attached, AttachError>> },
    Settle { items: Vec<Settlement>, reply: oneshot::Sender<Vec<Status>> },
    Flow { stream: StreamId, flow: Flow },
    Hold { token: DeliveryToken, duration: Duration },
    Goodbye { stream: StreamId },
    Ended { stream: StreamId, ending: Ending },
    Backlog { reply: oneshot::Sender<Backlog> },
    Drain { deadline: Timestamp },
}

/// A job that ended.
enum Done {
    Claimed(portero_store::Result<Vec<portero_store::ClaimedLane>>),
    Page(read::PageDone),
    Entries(read::EntriesDone),
    Flushed(flush::FlushDone),
    Prepared(prepare::PreparedDone),
    Released,
}

pub(crate) struct Actor {
    shared: Arc<Shared>,
    /// The session under which everything here is done. With another one, another actor starts.
    session: SessionId,
    subscription: Arc<Subscription>,
    filter: Filter,
    shards: ShardCount,
    rng: StdRng,
    lanes: BTreeMap<LaneNo, Lane>,
    streams: BTreeMap<StreamId, Stream>,
    serving: HashMap<LaneNo, StreamId>,
    in_hand: HashMap<DeliveryToken, (StreamId, u64)>,
    settling: settle::Settling,
    jobs: JoinSet<Done>,
    claiming: bool,
    claim_at: Instant,
    reading: HashMap<Shard, Reading>,
    fetching: HashSet<LaneNo>,
    flushing: bool,
    flush_at: Instant,
    releasing: bool,
    next_stream: u64,
    /// Until then lanes are wanted for outcomes that came outside of a stream.
    late_until: Instant,
    draining: bool,
}

/// Whether a shard is being read.
enum Reading {
    /// A page is on its way.
    Busy,
    /// The last one failed: not again before this moment.
    Paused(Instant),
}

impl Actor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        session: SessionId,
        subscription: Arc<Subscription>,
        shards: ShardCount,
        seed: u64,
    ) -> Self {
        let filter = Filter::new(&subscription, &shared.directory.snapshot());
        let now = Instant::now();
        Self {
            shared,
            session,
            subscription,
            filter,
            shards,
            rng: StdRng::seed_from_u64(seed),
            lanes: BTreeMap::new(),
            streams: BTreeMap::new(),
            serving: HashMap::new(),
            in_hand: HashMap::new(),
            settling: settle::Settling::default(),
            jobs: JoinSet::new(),
            claiming: false,
            claim_at: now,
            reading: HashMap::new(),
            fetching: HashSet::new(),
            flushing: false,
            flush_at: now,
            releasing: false,
            next_stream: 1,
            late_until: now,
            draining: false,
        }
    }

    /// Runs until the subscription is deleted, the session is another one, or the dispatcher stops and all is flushed.
    pub(crate) async fn run(mut self, mut mailbox: mpsc::Receiver<Command>) {
        let mut heads = self.shared.heads.subscribe();
        let mut standing = self.shared.standing.subscribe();
        let mut config = self.shared.directory.changed();
        let stop = self.shared.stop.clone();
        loop {
            if standing.borrow().session() != Some(self.session) {
                self.end_all(EndReason::Fenced);
                return;
            }
            if stop.is_cancelled() && self.is_finished() {
                return;
            }
            self.advance();
            let timer = self.next_timer();
            tokio::select! {
                command = mailbox.recv() => match command {
                    Some(command) => self.handle(command),
                    None => return,
                },
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.handle_done(done),
                    Err(error) => {
                        // What it was to report is unknown: consumers reconnect to an actor that starts anew.
                        tracing::error!(%error, "a delivery job panicked");
                        self.end_all(EndReason::Fenced);
                        return;
                    }
                },
                _ = heads.changed() => {}
                _ = standing.changed() => {}
                () = stop.cancelled(), if !self.draining => {
                    self.draining = true;
                    self.end_all(EndReason::ShuttingDown);
                }
                _ = config.changed() => {
                    if !self.reload() {
                        self.end_all(EndReason::SubscriptionDeleted);
                        return;
                    }
                }
                () = tokio::time::sleep_until(timer) => {}
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Attach { spec, reply } => self.attach(spec, reply),
            Command::Settle { items, reply } => self.settle(items, reply),
            Command::Flow { stream, flow } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.flow = flow;
                }
            }
            Command::Hold { token, duration } => {
                let now = self.now();
                if let Some(lane) = self.lanes.get_mut(&token.lane) {
                    lane.handle_hold(now, token.token, duration);
                }
            }
            Command::Goodbye { stream } => self.close(stream),
            Command::Ended { stream, ending } => self.ended(stream, ending),
            Command::Backlog { reply } => {
                // The asker may have gone; then nobody misses the answer.
                let _ = reply.send(self.backlog());
            }
            Command::Drain { deadline } => {
                for stream in self.streams.values_mut() {
                    stream.closing = true;
                    stream.drained = true;
                    stream.outbox.push_back(Frame::Drain { deadline });
                }
                self.reassign();
            }
        }
    }

    fn handle_done(&mut self, done: Done) {
        match done {
            Done::Claimed(result) => self.claimed(result),
            Done::Page(done) => self.page_done(done),
            Done::Entries(done) => self.entries_done(done),
            Done::Flushed(done) => self.flushed(done),
            Done::Prepared(done) => self.prepared(done),
            Done::Released => self.releasing = false,
        }
    }

    /// Everything that follows from the last event.
    fn advance(&mut self) {
        let now = self.now();
        for lane in self.lanes.values_mut() {
            if lane.poll_timeout().is_some_and(|due| due <= now) {
                lane.handle_timeout(now, &mut self.rng);
            }
        }
        let alive = self.shared.standing.borrow().trusts(self.session);
        self.poll_revokes();
        self.poll_statuses();
        if alive {
            self.claim_when_due();
            self.read_when_possible();
            self.deliver();
            self.poll_revokes();
        }
        self.flush_when_due();
        self.release_when_idle();
        for stream in self.streams.values_mut() {
            stream.flush_outbox();
        }
        self.end_drained();
    }

    fn next_timer(&self) -> Instant {
        let (now, wall) = (Instant::now(), self.now());
        let latest = now + TIMER_MAX;
        self.lanes
            .values()
            .filter_map(Lane::poll_timeout)
            .map(|due| now + due.since(wall))
            .min()
            .map_or(latest, |due| due.clamp(now + Duration::from_millis(1), latest))
    }

    /// Takes over a changed configuration; false when the subscription is gone.
    fn reload(&mut self) -> bool {
        let snapshot = self.shared.directory.snapshot();
        match snapshot.subscription(&self.subscription.id) {
            Some(subscription) if subscription.no == self.subscription.no => {
                self.filter = Filter::new(subscription, &snapshot);
                self.subscription = Arc::clone(subscription);
                true
            }
            _ => false,
        }
    }

    /// Whether someone needs this subscription's lanes here: a stream, or outcomes that came a moment ago.
    fn has_interest(&self) -> bool {
        !self.streams.is_empty() || (!self.draining && Instant::now() < self.late_until)
    }

    fn is_finished(&self) -> bool {
        self.jobs.is_empty() && self.lanes.is_empty()
    }

    fn backlog(&self) -> Backlog {
        let heads = self.shared.heads.borrow();
        let head_lag = self
            .lanes
            .iter()
            .map(|(no, lane)| {
                let shard = self.subscription.lanes.shard_of(*no, self.shards);
                heads.get(usize::from(shard.0)).copied().unwrap_or(0).saturating_sub(lane.cursor())
            })
            .max()
            .unwrap_or(0);
        let oldest_unsettled = self.lanes.values().filter_map(|lane| lane.stats().oldest_unsettled).min();
        Backlog { head_lag, oldest_unsettled }
    }
}
