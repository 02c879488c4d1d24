//! One subscription's actor: a single task that owns the subscription's lanes and streams and takes every decision about
//! them, one after the other.
//!
//! It waits for commands, for the log's heads, for timers and for the ends of its jobs (claim, read, flush, prepare).
//! A job does IO and nothing else; its result comes back as an event. After each event the actor asks its lanes what
//! follows: revocations, statuses, deliveries, and at most one flush at a time for all lanes together.

mod aside;
mod drain;
mod figures;
mod flush;
mod gating;
mod jobs;
mod lanes;
mod members;
mod prepare;
mod read;
mod requests;
mod resume;
mod settle;
mod sharing;
mod streams;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use portero_engine::{Lane, StreamId};
use portero_store::Subscription;
use portero_types::{Generation, LaneNo, SessionId, Shard, ShardCount, Timestamp};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::dispatcher::AttachError;
use crate::filter::Filter;
use crate::metrics::Level;
use crate::roll::Reported;
use crate::session::Standing;
use crate::shared::Shared;
use crate::stream::{
    Backlog, DeliveryToken, EndReason, Ending, Flow, Frame, Settlement, Status, Stream, StreamSpec,
};

/// Commands that wait for an actor.
pub(crate) const MAILBOX: usize = 1_024;
/// Commands and jobs' ends that are taken together before what follows from them is decided.
const TAKEN_TOGETHER_MAX: usize = 64;
/// The longest that a timer sleeps: so that a clock that was moved is noticed.
const TIMER_MAX: Duration = Duration::from_millis(250);
/// The same without lanes: nothing is timed by that clock then.
const IDLE_TIMER_MAX: Duration = Duration::from_secs(5);
/// How long a failed call to the store is not repeated.
const PACE: Duration = Duration::from_millis(100);
/// How long a failed claim, or a changed weight, waits for its turn.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// How long lanes are kept for outcomes that come outside of a stream.
const LATE_INTEREST: Duration = Duration::from_secs(2);
/// How long after that they are not: longer than it takes the others to see that nobody wants any here.
const LATE_REST: Duration = Duration::from_millis(1_500);

/// What an accepted stream is given.
pub(crate) struct Attached {
    pub(crate) id: StreamId,
    pub(crate) session: SessionId,
    pub(crate) generation: Generation,
    pub(crate) frames: mpsc::Receiver<Frame>,
    pub(crate) end: watch::Receiver<Option<EndReason>>,
    pub(crate) lanes: usize,
    pub(crate) subscription_lanes: u16,
    pub(crate) resumed: Vec<DeliveryToken>,
}

/// What an actor is told.
pub(crate) enum Command {
    Attach { spec: StreamSpec, reply: oneshot::Sender<Result<Attached, AttachError>> },
    Settle { items: Vec<Settlement>, from_stream: bool, reply: oneshot::Sender<Vec<Status>> },
    Flow { stream: StreamId, flow: Flow },
    Hold { token: DeliveryToken, duration: Duration },
    Goodbye { stream: StreamId },
    Distrust { stream: StreamId, within: Duration },
    Ended { stream: StreamId, ending: Ending },
    Backlog { reply: oneshot::Sender<Backlog> },
    Drain { deadline: Timestamp },
}

/// A job that ended.
enum Done {
    Owned(sharing::OwnedDone),
    Page(read::PageDone),
    Aside(aside::AsideDone),
    Entries(read::EntriesDone),
    Flushed(flush::FlushDone),
    Prepared(prepare::PreparedDone),
    Members(members::MembersDone),
    Requests(requests::RequestsDone),
    HandedOn(portero_store::Result<()>),
}

/// Under what an actor acts: with another session or generation, another actor starts.
pub(crate) struct Place {
    pub(crate) session: SessionId,
    pub(crate) generation: Generation,
    pub(crate) shards: ShardCount,
    pub(crate) seed: u64,
}

pub(crate) struct Actor {
    shared: Arc<Shared>,
    session: SessionId,
    generation: Generation,
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
    sharing: sharing::Sharing,
    members: members::Members,
    requests: requests::Requests,
    gating: gating::Gating,
    figures: figures::Figures,
    resuming: resume::Resuming,
    reading: HashMap<Shard, Reading>,
    fetching: HashSet<LaneNo>,
    aside: aside::Aside,
    flushing: bool,
    flush_at: Instant,
    /// The last flush failed: before the next one it is looked whether the database is still the same.
    flush_failed: bool,
    next_stream: u64,
    /// When the next stream is to be asked to leave, or ended after it was asked.
    streams_due_at: Instant,
    /// Until then lanes are wanted for outcomes that came outside of a stream.
    late_until: Instant,
    /// Before that they are not wanted for more of those.
    late_again_at: Instant,
    drain: Option<drain::Drain>,
    levels: Levels,
}

/// This actor's part in gauges.
struct Levels {
    lanes: Level,
    spare_streams: Level,
}

/// Whether a shard is being read.
enum Reading {
    /// A page is on its way.
    Busy,
    /// The last one failed: not again before this moment.
    Paused(Instant),
}

/// Whether the actor goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    End,
}

impl Actor {
    pub(crate) fn new(shared: Arc<Shared>, place: Place, subscription: Arc<Subscription>) -> Self {
        let filter = Filter::new(&subscription, &shared.directory.snapshot());
        let now = Instant::now();
        Self {
            shared,
            session: place.session,
            generation: place.generation,
            subscription,
            filter,
            shards: place.shards,
            rng: StdRng::seed_from_u64(place.seed),
            lanes: BTreeMap::new(),
            streams: BTreeMap::new(),
            serving: HashMap::new(),
            in_hand: HashMap::new(),
            settling: settle::Settling::default(),
            jobs: JoinSet::new(),
            sharing: sharing::Sharing::new(now),
            members: members::Members::default(),
            requests: requests::Requests::default(),
            gating: gating::Gating::new(),
            figures: figures::Figures::new(now),
            resuming: resume::Resuming::default(),
            reading: HashMap::new(),
            fetching: HashSet::new(),
            aside: aside::Aside::new(),
            flushing: false,
            flush_at: now,
            flush_failed: false,
            next_stream: 1,
            streams_due_at: now,
            late_until: now,
            late_again_at: now,
            drain: None,
            levels: Levels { lanes: Level::lanes(), spare_streams: Level::spare_streams() },
        }
    }

    /// Runs until the subscription is deleted, session or generation are others, or the dispatcher stops and all is given up.
    pub(crate) async fn run(
        mut self,
        mut mailbox: mpsc::Receiver<Command>,
        mut reports: watch::Receiver<Option<Reported>>,
    ) {
        let mut heads = self.shared.heads.subscribe();
        let mut standing = self.shared.standing.subscribe();
        let mut generation = self.shared.incarnations.subscribe();
        let mut config = self.shared.directory.changed();
        let stop = self.shared.stop.clone();
        let mut stopping = false;
        while self.look_around(&mut standing, &mut generation) == Next::Go {
            if stopping && self.is_finished() {
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
                    Err(error) => Self::give_up(error),
                },
                _ = heads.changed(), if !self.lanes.is_empty() => {}
                _ = standing.changed() => {}
                _ = generation.changed() => {}
                _ = reports.changed() => {
                    let reported = reports.borrow_and_update().clone();
                    if let Some(reported) = reported {
                        self.reported(&reported);
                    }
                }
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.stop_now();
                }
                _ = config.changed() => {
                    if !self.reload() {
                        self.end_all(EndReason::SubscriptionDeleted);
                        return;
                    }
                }
                () = tokio::time::sleep_until(timer) => {}
            }
            self.take_more(&mut mailbox);
        }
    }

    /// Ends everything when what it was done under is no more.
    fn look_around(
        &mut self,
        standing: &mut watch::Receiver<Standing>,
        generation: &mut watch::Receiver<Generation>,
    ) -> Next {
        if *generation.borrow_and_update() != self.generation {
            self.end_all(EndReason::GenerationChanged);
            return Next::End;
        }
        if standing.borrow_and_update().session() != Some(self.session) {
            self.end_all(EndReason::Fenced);
            return Next::End;
        }
        Next::Go
    }

    /// Takes what else has come meanwhile, up to a bound.
    fn take_more(&mut self, mailbox: &mut mpsc::Receiver<Command>) {
        for _ in 0..TAKEN_TOGETHER_MAX {
            match mailbox.try_recv() {
                Ok(command) => self.handle(command),
                Err(_) => break,
            }
        }
        for _ in 0..TAKEN_TOGETHER_MAX {
            match self.jobs.try_join_next() {
                Some(Ok(done)) => self.handle_done(done),
                Some(Err(error)) => Self::give_up(error),
                None => break,
            }
        }
    }

    /// A job ended without a report, which its own guard should have made. What it did is unknown: the supervisor takes over,
    /// and consumers reconnect.
    fn give_up(error: JoinError) {
        if let Ok(panic) = error.try_into_panic() {
            std::panic::resume_unwind(panic);
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Attach { spec, reply } => self.attach(spec, reply),
            Command::Settle { items, from_stream, reply } => self.settle(items, from_stream, reply),
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
            Command::Distrust { stream, within } => self.distrust(stream, within),
            Command::Ended { stream, ending } => self.ended(stream, ending),
            Command::Backlog { reply } => {
                // The asker may have gone; then nobody misses the answer.
                let _ = reply.send(self.backlog());
            }
            Command::Drain { deadline } => self.drain(deadline),
        }
    }

    fn handle_done(&mut self, done: Done) {
        match done {
            Done::Owned(done) => self.owned(done),
            Done::Page(done) => self.page_done(done),
            Done::Aside(done) => self.aside_done(done),
            Done::Entries(done) => {
                self.entries_done(done);
                self.fulfil_early();
            }
            Done::Flushed(done) => self.flushed(done),
            Done::Prepared(done) => self.prepared(done),
            Done::Members(done) => self.members_told(done),
            Done::Requests(done) => self.requests_taken(done),
            Done::HandedOn(result) => self.handed_on(result),
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
        let alive = self.is_alive();
        self.poll_revokes();
        self.poll_statuses();
        self.drain_when_due();
        self.look_after_streams();
        self.share_lanes(alive);
        if alive {
            self.tell_members();
            self.read_when_possible();
        }
        self.resume();
        if alive {
            self.deliver();
            self.poll_revokes();
        }
        self.flush_when_due();
        for stream in self.streams.values_mut() {
            stream.flush_outbox();
        }
        self.show_figures();
    }

    /// Whether this session's lanes may be acted on.
    fn is_alive(&self) -> bool {
        self.shared.standing.borrow().trusts(self.session)
    }

    fn next_timer(&self) -> Instant {
        let (now, wall) = (Instant::now(), self.now());
        let latest = now + if self.lanes.is_empty() { IDLE_TIMER_MAX } else { TIMER_MAX };
        // What is due now is a flush, and waits for its turn.
        let flush_at = if self.flushing { latest } else { self.flush_at };
        let lanes = self.lanes.values().filter_map(Lane::poll_timeout);
        let lanes = lanes.map(|due| if due > wall { now + due.since(wall) } else { flush_at }).min();
        let may_claim = self.is_alive() && self.has_interest();
        let late = (now < self.late_until).then_some(self.late_until);
        let streams = (!self.streams.is_empty()).then_some(self.streams_due_at);
        let drain = self.drain.as_ref().map(drain::Drain::due_at);
        [lanes, late, streams, drain, self.sharing.due_at(may_claim), self.resuming.due_at()]
            .into_iter()
            .flatten()
            .min()
            .map_or(latest, |due| due.clamp(now + Duration::from_millis(1), latest))
    }

    /// Takes over a changed configuration; false when the subscription is gone.
    fn reload(&mut self) -> bool {
        let snapshot = self.shared.directory.snapshot();
        let Some(subscription) = snapshot.subscription_by_no(self.subscription.no) else { return false };
        self.filter = Filter::new(subscription, &snapshot);
        self.subscription = Arc::clone(subscription);
        self.set_limits();
        true
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
                heads.get(usize::from(shard.0)).copied().unwrap_or(0).saturating_sub(lane.read_through())
            })
            .max()
            .unwrap_or(0);
        let oldest_unsettled = self.lanes.values().filter_map(|lane| lane.stats().oldest_unsettled).min();
        Backlog { head_lag, oldest_unsettled }
    }
}
