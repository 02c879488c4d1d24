//! A lane, its reference model, a log, a store and consumers, driven by generated steps. After each step the two agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portero_engine::{
    Action, Ending, Entry, Flush, FlushResult, Lane, LaneConfig, Outcome, Reason, Restored, Room, Settlement,
    Status, StreamId, Tag, Token, Undeliverable,
};
use portero_types::{EntityHash, Epoch, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::model::{Event, Model, Verdict};
use crate::store::Store;
use crate::support::entry;

mod commits;

/// One generated step. Indices are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Append { entity: Option<u64> },
    Read { limit: usize, overlap: u64 },
    Fetch { limit: usize, is_missing: bool },
    Stream { new: bool, none: bool },
    Deliver { events: u32, is_idle: bool },
    Adopt { pick: usize, is_present: bool },
    Request { entity: u64, action: Action },
    Freeze { frozen: bool },
    Settle { pick: usize, outcome: Outcome, has_code: bool },
    SettleAny { pick: usize, outcome: Outcome },
    Forge { pick: usize, delivery: u32, position: u64 },
    Hold { pick: usize, secs: u64 },
    Undeliverable { pick: usize, why: Undeliverable },
    EndStream { pick: usize, ending: Ending },
    Pass { secs: u64 },
    Send,
    Answer { result: FlushResult, is_applied: bool },
    Hurry,
    Crash { is_applied: bool },
}

pub(crate) struct World {
    lane: Lane,
    model: Model,
    store: Store,
    /// What the store's state means: events whose ends, failures and deferrals are written.
    durable: BTreeMap<u64, Event>,
    /// Entities whose block is written.
    durably_blocked: BTreeSet<EntityHash>,
    /// What the flush on its way would make durable.
    pending: Option<Pending>,
    log: Vec<(u64, Option<EntityHash>)>,
    now: Timestamp,
    rng: StdRng,
    tokens: Vec<Token>,
    streams: Vec<StreamId>,
    current: Option<StreamId>,
    next: u64,
}

/// A flush on its way.
struct Pending {
    flush: Flush,
    /// The events as the flush tells of them.
    events: BTreeMap<u64, Event>,
    blocked: BTreeSet<EntityHash>,
    is_applied: bool,
}

impl World {
    pub(crate) fn new(config: LaneConfig) -> Self {
        let now = Timestamp::from_secs(1_000_000);
        let lane = Lane::new(config.clone(), Epoch(1), Restored::default(), now).expect("valid");
        Self {
            lane,
            model: Model::new(config),
            store: Store::default(),
            durable: BTreeMap::new(),
            durably_blocked: BTreeSet::new(),
            pending: None,
            log: Vec::new(),
            now,
            rng: StdRng::seed_from_u64(42),
            tokens: Vec::new(),
            streams: Vec::new(),
            current: None,
            next: 0,
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Append { entity } => self.log.push((self.head() + 1, entity.map(EntityHash))),
            Step::Read { limit, overlap } => self.read(limit, overlap),
            Step::Fetch { limit, is_missing } => self.fetch(limit, is_missing),
            Step::Stream { new, none } => self.set_stream(new, none),
            Step::Deliver { events, is_idle } => self.deliver(events, is_idle),
            Step::Adopt { pick, is_present } => self.adopt(pick, is_present),
            Step::Request { entity, action } => {
                let expected = self.model.request(self.now, EntityHash(entity), action);
                assert_eq!(self.lane.handle_request(self.now, EntityHash(entity), action), expected);
            }
            Step::Freeze { frozen } => {
                self.model.frozen = frozen;
                self.lane.set_frozen(frozen);
            }
            Step::Settle { pick, outcome, has_code } => {
                let held: Vec<Token> = self.model.held.values().map(|held| held.token).collect();
                if let Some(token) = at(&held, pick) {
                    self.settle(token, outcome, has_code);
                }
            }
            Step::SettleAny { pick, outcome } => {
                if let Some(token) = at(&self.tokens, pick) {
                    self.settle(token, outcome, false);
                }
            }
            Step::Forge { pick, delivery, position } => {
                if let Some(token) = at(&self.tokens, pick) {
                    self.forge(Token { delivery, ..token });
                    self.forge(Token { position: self.head() + 1 + position, ..token });
                }
            }
            Step::Hold { pick, secs } => {
                if let Some(token) = at(&self.tokens, pick) {
                    let asked = Duration::from_secs(secs);
                    let goes_on = self.model.hold(self.now, token, asked);
                    assert_eq!(self.lane.handle_hold(self.now, token, asked), goes_on);
                }
            }
            Step::Undeliverable { pick, why } => {
                if let Some(token) = at(&self.tokens, pick) {
                    self.lane.handle_undeliverable(self.now, token, why);
                    self.model.undeliverable(self.now, token, why);
                }
            }
            Step::EndStream { pick, ending } => self.end_stream(pick, ending),
            Step::Pass { secs } => self.now = self.now.plus(Duration::from_secs(secs)),
            Step::Send => self.send(),
            Step::Answer { result, is_applied } => self.answer(result, is_applied),
            Step::Hurry => self.lane.hurry_flush(),
            Step::Crash { is_applied } => {
                if is_applied {
                    self.apply();
                }
                self.restart();
            }
        }
        self.settle_down();
    }

    fn head(&self) -> u64 {
        self.log.last().map_or(0, |(n, _)| *n)
    }

    fn read(&mut self, limit: usize, overlap: u64) {
        let (cursor, room) = (self.lane.cursor(), self.lane.capacity());
        let after = cursor.saturating_sub(overlap);
        let page: Vec<_> = self.log.iter().filter(|(n, _)| *n > after).take(limit).copied().collect();
        let through = page.last().map_or(after, |(n, _)| *n);
        let entries: Vec<Entry> =
            page.iter().filter_map(|(n, entity)| entity.map(|entity| entry(*n, entity))).collect();
        let now_at = self.lane.handle_page(self.now, after, &entries, through).expect("no gap");
        assert!(now_at >= cursor && now_at <= through.max(cursor));
        let before = self.model.events.len();
        for (n, entity) in page.iter().filter(|(n, _)| (cursor + 1..=now_at).contains(n)) {
            if let Some(entity) = entity {
                self.model.read(*n, *entity);
            }
        }
        let taken = self.model.events.len() - before;
        assert!(taken <= room, "takes no more than it said");
        let unwritten = self.model.events.values().filter(|event| event.end.is_some()).count();
        let window = self.lane.stats().window + unwritten;
        assert!(
            taken == 0 || window <= self.model.config.window_events_max,
            "unwritten ends take their place"
        );
        assert!(now_at >= through || taken == room, "stops only when it is full");
    }

    fn fetch(&mut self, limit: usize, is_missing: bool) {
        let needed = self.lane.needs_entries(limit);
        let unknown = self.model.events.iter().filter(|(_, event)| !event.known && event.end.is_none());
        assert_eq!(needed, unknown.map(|(n, _)| *n).take(limit).collect::<Vec<_>>());
        let missing: Vec<u64> = needed.iter().copied().filter(|_| is_missing).take(1).collect();
        let found: Vec<u64> = needed.iter().copied().filter(|n| !missing.contains(n)).collect();
        let entries: Vec<Entry> = found.iter().map(|n| entry(*n, self.model.events[n].entity)).collect();
        self.lane.handle_entries(self.now, &entries, &missing);
        self.model.entries(&found, &missing);
    }

    fn set_stream(&mut self, new: bool, none: bool) {
        self.current = if none {
            None
        } else if new || self.streams.is_empty() {
            self.next += 1;
            self.streams.push(StreamId(self.next));
            self.streams.last().copied()
        } else {
            self.streams.first().copied()
        };
        self.lane.set_stream(self.current);
    }

    fn deliver(&mut self, events: u32, is_idle: bool) {
        let room = Room { idle: is_idle, ..Room::UNLIMITED };
        for _ in 0..events {
            let Some(delivery) = self.lane.poll_delivery(self.now, room) else {
                if self.current.is_some() {
                    self.model.nothing_is_ready(self.now, is_idle);
                }
                return;
            };
            assert!(is_idle || !delivery.alone, "a suspect waits for the stream");
            let stream = self.current.expect("without a stream nothing is offered");
            self.model.deliver(self.now, stream, &delivery);
            self.tokens.push(delivery.token);
        }
    }

    fn settle(&mut self, token: Token, outcome: Outcome, has_code: bool) {
        self.next += 1;
        let tag = Tag(self.next);
        let reason = Reason::new(if has_code { "CODE" } else { "" }, "");
        let verdict = self.model.settle(self.now, token, outcome, self.lane.cursor(), has_code);
        self.lane.handle_settle(self.now, &mut self.rng, Settlement { token, outcome, reason }, tag);
        match verdict {
            Verdict::Now(status) => self.expect_statuses(vec![(tag, status)]),
            Verdict::Written(status) => {
                self.model.open.answers.push((tag, status));
                self.expect_statuses(Vec::new());
            }
        }
    }

    /// A consumer comes back on a stream, the present one or another, with a delivery that it has or had.
    fn adopt(&mut self, pick: usize, is_present: bool) {
        let stream = self.current.filter(|_| is_present).or_else(|| at(&self.streams, pick / 7));
        let newest_first = self.tokens.len().saturating_sub(1 + pick % self.tokens.len().max(1));
        let (Some(stream), Some(token)) = (stream, at(&self.tokens, newest_first)) else { return };
        let goes_on = self.model.adopt(self.now, token, stream);
        let has_to_read = self.lane.has_to_read_for(token);
        assert_eq!(self.lane.handle_adopt(self.now, token, stream), goes_on);
        assert!(!(goes_on && has_to_read), "it is not said to wait when it need not");
    }

    fn forge(&mut self, token: Token) {
        if !self.tokens.contains(&token) {
            self.settle(token, Outcome::Ack, false);
        }
    }

    fn end_stream(&mut self, pick: usize, ending: Ending) {
        let Some(stream) = at(&self.streams, pick) else { return };
        self.streams.retain(|other| *other != stream);
        if self.current == Some(stream) {
            self.current = None;
        }
        self.lane.handle_stream_ended(self.now, &mut self.rng, stream, ending);
        self.model.stream_ended(self.now, stream, ending == Ending::Graceful);
    }

    fn expect_statuses(&mut self, mut expected: Vec<(Tag, Status)>) {
        let mut got: Vec<_> =
            std::iter::from_fn(|| self.lane.poll_settled()).map(|s| (s.tag, s.status)).collect();
        got.sort_by_key(|(tag, _)| *tag);
        expected.sort_by_key(|(tag, _)| *tag);
        assert_eq!(got, expected, "each settlement gets its status once, when it is due");
    }

    /// Timers that are due, revocations, bounds, figures.
    fn settle_down(&mut self) {
        if self.lane.poll_timeout().is_some_and(|at| at <= self.now) {
            self.lane.handle_timeout(self.now, &mut self.rng);
        }
        self.model.time(self.now);
        let mut revoked: Vec<Token> =
            std::iter::from_fn(|| self.lane.poll_revoke()).map(|r| r.token).collect();
        revoked.sort();
        self.model.revoked.sort();
        assert_eq!(revoked, std::mem::take(&mut self.model.revoked));
        self.expect_statuses(Vec::new());
        let (stats, config) = (self.lane.stats(), &self.model.config);
        assert!(stats.window <= config.window_events_max);
        assert!(self.model.events.len() <= config.positions_max);
        let open = self.model.events.values().filter(|event| event.end.is_none());
        assert_eq!(
            stats.window + stats.parked_positions,
            open.clone().count(),
            "each open event is in one place"
        );
        assert_eq!(stats.deferred, open.filter(|event| event.aside).count());
        assert_eq!(stats.in_flight, self.model.held.len());
        assert_eq!(stats.blocked_entities, self.model.blocked.len());
    }

    /// From here on everything works: then every event must reach its end, and nothing may stay behind.
    pub(crate) fn heal(&mut self) {
        self.step(&Step::Answer { result: FlushResult::Written, is_applied: true });
        self.step(&Step::Stream { new: true, none: false });
        self.step(&Step::Freeze { frozen: false });
        for _ in 0..40 + 12 * self.log.len() {
            self.step(&Step::Fetch { limit: 100, is_missing: false });
            for entity in self.model.blocked.clone() {
                self.step(&Step::Request { entity: entity.0, action: Action::Retry });
            }
            self.step(&Step::Read { limit: 1_000, overlap: 0 });
            self.step(&Step::Deliver { events: 1_000, is_idle: true });
            for _ in 0..self.model.held.len() {
                self.step(&Step::Settle { pick: 0, outcome: Outcome::Ack, has_code: false });
            }
            self.step(&Step::Hurry);
            self.step(&Step::Send);
            self.step(&Step::Answer { result: FlushResult::Written, is_applied: true });
            self.step(&Step::Pass { secs: 600 });
            if self.model.events.is_empty() && self.store.watermark == self.head() {
                break;
            }
        }
        let matching = self.log.iter().filter(|(_, entity)| entity.is_some());
        for (n, _) in matching {
            assert!(self.model.gone.contains_key(n), "{n} never reached its end");
        }
        assert!(self.model.events.is_empty() && self.lane.is_quiet());
        assert!(
            self.store.parked.is_empty() && self.store.deferred.is_empty() && self.store.acked.is_empty()
        );
        assert_eq!(self.store.watermark, self.head());
        let stats = self.lane.stats();
        assert_eq!((stats.window, stats.parked_entities, stats.parked_positions), (0, 0, 0));
    }
}

fn at<T: Copy>(all: &[T], pick: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[pick % all.len()])
}
