//! What everyone in the simulation has in common: time, chance, the network, the store and the checker.

use std::collections::BTreeMap;

use portero_types::{EntityHash, LaneNo, Shard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::checker::Checker;
use crate::ledger::Ledger;
use crate::network::Network;
use crate::planted::Planted;
use crate::profile::{Profile, Weather};
use crate::store::SimStore;
use crate::time::{MS, Queue, SEC};
use crate::words::{Answer, Ask, Client, Happening, Item, Process, ToConsumer, ToReplica};

/// How long a replica waits for the store.
pub(crate) const PATIENCE: u64 = 4 * SEC;

pub(crate) struct Shared {
    pub(crate) now: u64,
    pub(crate) rng: StdRng,
    pub(crate) queue: Queue<Happening>,
    pub(crate) profile: Profile,
    pub(crate) net: Network,
    pub(crate) store: SimStore,
    pub(crate) ledger: Ledger,
    pub(crate) checker: Checker,
    pub(crate) planted: Option<Planted>,
    /// Faults are over.
    pub(crate) healed: bool,
    /// Until when a replica's questions do not reach the store.
    pub(crate) cut_off: BTreeMap<usize, u64>,
    next: u64,
}

impl Shared {
    pub(crate) fn new(seed: u64, weather: Weather, planted: Option<Planted>, traced: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let profile = Profile::draw(weather, &mut rng);
        Self {
            now: 1_000 * SEC,
            store: SimStore::new(profile.shards, profile.lanes, planted),
            checker: Checker::new(&profile, traced),
            rng,
            queue: Queue::new(),
            profile,
            net: Network::default(),
            ledger: Ledger::default(),
            planted,
            healed: false,
            cut_off: BTreeMap::new(),
            next: 0,
        }
    }

    /// A number that was not given before.
    pub(crate) const fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    pub(crate) fn is_stormy(&self) -> bool {
        self.profile.weather == Weather::Storm && !self.healed
    }

    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.rng.random_bool(p)
    }

    pub(crate) fn after(&mut self, delay: u64, what: Happening) {
        self.queue.push(self.now + delay, what);
    }

    pub(crate) fn shard_of(&self, lane: LaneNo) -> Shard {
        self.profile.lanes.shard_of(lane, self.profile.shards)
    }

    pub(crate) fn lane_of(&self, entity: EntityHash) -> LaneNo {
        entity.slot().lane(self.profile.lanes)
    }

    /// How long a message takes between a consumer and a replica. Never as long as a session outlives its owner's trust.
    pub(crate) fn net_delay(&mut self) -> u64 {
        if self.is_stormy() && self.chance(0.05) {
            self.rng.random_range(10 * MS..2 * SEC)
        } else {
            self.rng.random_range(MS / 5..5 * MS)
        }
    }

    fn store_delay(&mut self) -> u64 {
        if self.is_stormy() && self.chance(0.08) {
            self.rng.random_range(20 * MS..3 * SEC)
        } else {
            self.rng.random_range(MS / 2..4 * MS)
        }
    }

    /// How long the store works on a flush.
    pub(crate) fn commit_time(&mut self) -> u64 {
        if self.is_stormy() && self.chance(0.1) {
            self.rng.random_range(10 * MS..9 * SEC)
        } else {
            self.rng.random_range(MS / 2..2 * MS)
        }
    }

    /// Sends a question to the store. Exactly one answer comes back, unless the process is gone by then.
    pub(crate) fn ask(&mut self, from: Process, ask: Ask) -> u64 {
        let number = self.fresh();
        let (there, back) = (self.store_delay(), self.store_delay());
        if self.cut_off.get(&from.slot).is_some_and(|until| *until > self.now) {
            let (answer, delay) =
                if self.chance(0.5) { (Answer::Unavailable, 2 * MS) } else { (Answer::Unknown, PATIENCE) };
            self.answer_after(delay, from, number, answer);
            return number;
        }
        if !self.is_stormy() || !self.chance(0.06) {
            self.after(there, Happening::Ask { from, number, ask, reply_after: Some(back) });
            return number;
        }
        match self.rng.random_range(0..4) {
            // It never arrives, and that is known.
            0 => self.answer_after(there, from, number, Answer::Unavailable),
            // It never arrives, and that is not known.
            1 => self.answer_after(PATIENCE, from, number, Answer::Unknown),
            // It is done, and the answer is lost.
            2 => {
                self.answer_after(there + back + 10 * MS, from, number, Answer::Unknown);
                self.after(there, Happening::Ask { from, number, ask, reply_after: None });
            }
            // It is given up, and done after that: later questions overtake it. Not those that are transactions in several
            // steps, which end with their connection; and openings stand in line for the sessions that they fence.
            _ if !matches!(ask, Ask::Claim { .. } | Ask::Release { .. } | Ask::Open { .. }) => {
                self.answer_after(there, from, number, Answer::Unknown);
                let late = self.rng.random_range(there..3 * SEC + there);
                self.after(late, Happening::Ask { from, number, ask, reply_after: None });
            }
            _ => self.answer_after(PATIENCE, from, number, Answer::Unknown),
        }
        number
    }

    pub(crate) fn answer_after(&mut self, delay: u64, to: Process, ask: u64, answer: Answer) {
        self.after(delay, Happening::Replica(to, ToReplica::Answer { ask, answer }));
    }

    /// Sends outcomes outside of a stream; they may be lost.
    pub(crate) fn unary(&mut self, from: Client, to: Process, items: Vec<Item>) {
        if self.is_stormy() && self.chance(0.1) {
            return;
        }
        let delay = self.net_delay();
        self.after(delay, Happening::Replica(to, ToReplica::Unary { client: from, items }));
    }

    pub(crate) fn tell_consumer(&mut self, to: Client, what: ToConsumer) {
        let delay = self.net_delay();
        self.after(delay, Happening::Consumer(to, what));
    }
}
