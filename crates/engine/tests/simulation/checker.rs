//! Reads what consumers were given and said, and what is written, and compares it with what is promised. It asks no lane and
//! no replica what it thinks.

mod bounds;
mod counting;
mod deferrals;
mod durability;
mod ends;
mod order;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use portero_engine::{Entry, LaneConfig, Outcome, Token};
use portero_types::{EntityHash, LaneCount, LaneNo, Shard, ShardCount};

use crate::profile::{Profile, Weather};
use crate::words::{ConnId, Item, LaneToken, Session};

/// Lines of history that are shown when a promise is broken.
const HISTORY: usize = 4000;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// Deliveries of an entity start in order, and the next one only after the one before is settled.
    S1,
    /// One stream at a time holds deliveries of an entity.
    S2,
    /// Nothing is delivered after its end was answered as durable.
    S3,
    /// Every event ends acked, dead with a reason, or expired.
    S4,
    /// A failing entity delays only itself.
    S5,
    /// A consumer that reads nothing costs bounded memory and delays no other stream.
    S6,
    /// What is planned counts nothing; waiting counts nothing.
    S7,
    /// Deferred events survive, are offered in order after each ack, and die at their deadline.
    Defer,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) text: String,
}

/// What is known of an event.
pub(crate) struct Fact {
    pub(crate) entry: Entry,
    pub(crate) lane: LaneNo,
    /// Nothing about it or its entity is to delay it.
    is_healthy: bool,
    is_dropped: bool,
    /// A consumer has said that it is done.
    acked: bool,
    rejected: u32,
    retried: u32,
    held_too_long: u32,
    interrupted: u32,
    /// An operator gave it up, or may have.
    given_up: bool,
    /// Its end was answered as durable.
    answered: bool,
    /// It was seen to be over.
    is_over: bool,
    defer_said: bool,
    /// First seen deferred.
    deferred_since: Option<u64>,
    /// An ack was written after it was deferred, and it was not offered since.
    woken: Option<u64>,
    /// It may be offered though it is deferred.
    may_come: bool,
    /// When its lane heard of an ack of its entity.
    told_at: u64,
}

/// Who has a delivery in hand.
#[derive(Clone, Copy)]
struct Holder {
    token: LaneToken,
    conn: ConnId,
    session: Session,
    bytes: u64,
    alone: bool,
}

type Key = (Shard, u64);

pub(crate) struct Checker {
    pub(crate) violation: Option<Violation>,
    weather: Weather,
    config: LaneConfig,
    lanes: LaneCount,
    shards: ShardCount,
    events_max: u32,
    bytes_max: u64,
    facts: BTreeMap<Key, Fact>,
    entities: HashMap<EntityHash, Vec<u64>>,
    /// The last position that was ever delivered of an entity.
    furthest: HashMap<EntityHash, u64>,
    holders: HashMap<EntityHash, Vec<Holder>>,
    /// Events that were not seen to be over, by lane.
    unsettled: BTreeMap<LaneNo, BTreeSet<u64>>,
    /// Entities with acks that are written, of which the lane does not know yet.
    fresh_acks: BTreeMap<LaneNo, Vec<(EntityHash, Vec<u64>)>>,
    /// Deliveries whose outcome was said, so that saying it again counts once.
    said: BTreeSet<(LaneToken, u8)>,
    /// Lanes that the stalled consumer ever had.
    spoiled: BTreeSet<LaneNo>,
    history: Option<VecDeque<String>>,
    pub(crate) seen: Seen,
}

/// How often what is worth checking has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) starts: u64,
    pub(crate) adoptions: u64,
    pub(crate) alone: u64,
    pub(crate) late_acks: u64,
    pub(crate) deferred: u64,
    pub(crate) deadlines: u64,
    pub(crate) dead: u64,
    pub(crate) dropped: u64,
    pub(crate) overflows: u64,
    pub(crate) detours: u64,
    pub(crate) blocked: u64,
}

impl Seen {
    /// Names and figures.
    pub(crate) const fn all(&self) -> [(&'static str, u64); 11] {
        [
            ("starts", self.starts),
            ("adoptions", self.adoptions),
            ("alone", self.alone),
            ("late acks", self.late_acks),
            ("deferred", self.deferred),
            ("deadlines", self.deadlines),
            ("dead", self.dead),
            ("dropped", self.dropped),
            ("overflows", self.overflows),
            ("detours", self.detours),
            ("blocked", self.blocked),
        ]
    }
}

impl Checker {
    pub(crate) fn new(profile: &Profile, traced: bool) -> Self {
        Self {
            violation: None,
            weather: profile.weather,
            config: profile.config.clone(),
            lanes: profile.lanes,
            shards: profile.shards,
            events_max: profile.events_max,
            bytes_max: profile.bytes_max,
            facts: BTreeMap::new(),
            entities: HashMap::new(),
            furthest: HashMap::new(),
            holders: HashMap::new(),
            unsettled: BTreeMap::new(),
            fresh_acks: BTreeMap::new(),
            said: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            history: traced.then(VecDeque::new),
            seen: Seen::default(),
        }
    }

    pub(crate) fn broken(&mut self, promise: Promise, text: String) {
        self.trace(|| format!("{promise:?} is broken: {text}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { promise, text });
        }
    }

    /// Adds to the history, when one is kept.
    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history
            && self.violation.is_none()
        {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(line());
        }
    }

    pub(crate) fn history(&self) -> String {
        self.history.iter().flatten().map(|line| format!("{line}\n")).collect()
    }

    fn key(&self, lane: LaneNo, n: u64) -> Key {
        (self.lanes.shard_of(lane, self.shards), n)
    }

    fn fact_mut(&mut self, lane: LaneNo, n: u64) -> Option<&mut Fact> {
        let key = self.key(lane, n);
        self.facts.get_mut(&key)
    }

    pub(crate) fn fact(&self, lane: LaneNo, n: u64) -> Option<&Fact> {
        self.facts.get(&self.key(lane, n))
    }

    pub(crate) fn accepted(&mut self, entry: Entry, is_healthy: bool) {
        let lane = entry.entity.slot().lane(self.lanes);
        let fact = Fact {
            entry,
            lane,
            is_healthy,
            is_dropped: false,
            acked: false,
            rejected: 0,
            retried: 0,
            held_too_long: 0,
            interrupted: 0,
            given_up: false,
            answered: false,
            is_over: false,
            defer_said: false,
            deferred_since: None,
            woken: None,
            may_come: false,
            told_at: 0,
        };
        let key = self.key(lane, entry.n);
        self.facts.insert(key, fact);
        self.entities.entry(entry.entity).or_default().push(entry.n);
        self.unsettled.entry(lane).or_default().insert(entry.n);
    }

    pub(crate) fn dropped(&mut self, shard: Shard, n: u64) {
        if let Some(fact) = self.facts.get_mut(&(shard, n)) {
            fact.is_dropped = true;
            self.seen.dropped += 1;
        }
    }

    /// A consumer says what became of a delivery: it is done with it.
    pub(crate) fn said(&mut self, item: &Item) {
        let Item { token, outcome } = *item;
        self.trace(|| format!("  said {outcome:?} of {token:?}"));
        self.let_go(token, outcome != Outcome::Defer);
        let kind = match outcome {
            Outcome::Ack => 0,
            Outcome::Retry { .. } => 1,
            Outcome::Release => 2,
            Outcome::Reject => 3,
            Outcome::Defer => 4,
        };
        let is_new = self.said.insert((token, kind));
        let Some(fact) = self.fact_mut(token.lane, token.token.position).filter(|_| is_new) else { return };
        match outcome {
            Outcome::Ack => fact.acked = true,
            Outcome::Retry { .. } => {
                fact.retried += 1;
                fact.woken = None;
            }
            Outcome::Reject => fact.rejected += 1,
            Outcome::Defer => fact.defer_said = true,
            Outcome::Release => {}
        }
    }

    /// The delivery is no longer in anyone's hands.
    fn let_go(&mut self, token: LaneToken, may_come: bool) {
        let Token { position, .. } = token.token;
        let Some(fact) = self.fact_mut(token.lane, position) else { return };
        fact.may_come |= may_come;
        let entity = fact.entry.entity;
        if let Some(holders) = self.holders.get_mut(&entity) {
            holders.retain(|holder| holder.token != token);
        }
    }
}
