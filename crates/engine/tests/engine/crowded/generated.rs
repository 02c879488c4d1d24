//! Generated histories of several tenants under limits so small that detours and overflows come and go.

use std::collections::{BTreeMap, BTreeSet};

use portero_engine::{
    Action, DeadLetterPolicy, Delivery, Ending, Flush, FlushResult, ParkedState, Reason, Restored,
    Settlement, StreamId, Tag, Token,
};
use portero_types::Timestamp;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::of;
use portero_engine::{Entry, Lane, LaneConfig, Outcome, Room, SideScope, Status};
use portero_types::Epoch;

use crate::store::Store;
use crate::support::{STREAM, secs};

#[derive(Clone, Debug)]
enum Step {
    Append {
        tenant: i64,
        entity: u64,
        count: u64,
    },
    Read {
        limit: usize,
    },
    ReadAside {
        pick: usize,
        limit: usize,
    },
    Deliver {
        events: u32,
    },
    Settle {
        pick: usize,
        outcome: Outcome,
    },
    Flush {
        is_written: bool,
    },
    Pass {
        secs: u64,
    },
    /// An operator lets an entity go on.
    Retry {
        tenant: i64,
        entity: u64,
    },
    /// The stream ends and its consumer comes back with its work, or another one comes.
    Reconnect {
        ending: Ending,
        with_work: bool,
    },
    Crash {
        with_work: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        6 => Just(Outcome::Ack),
        2 => Just(Outcome::Retry { delay: Some(secs(5)) }),
        1 => Just(Outcome::Release),
        1 => Just(Outcome::Reject),
    ];
    let ending = prop_oneof![Just(Ending::Graceful), Just(Ending::Abnormal)];
    prop_oneof![
        4 => (1..4_i64, 0..3_u64, 1..9_u64)
            .prop_map(|(tenant, entity, count)| Step::Append { tenant, entity, count }),
        4 => (1..12_usize).prop_map(|limit| Step::Read { limit }),
        5 => (0..4_usize, 1..5_usize).prop_map(|(pick, limit)| Step::ReadAside { pick, limit }),
        5 => (1..4_u32).prop_map(|events| Step::Deliver { events }),
        6 => (0..8_usize, outcome).prop_map(|(pick, outcome)| Step::Settle { pick, outcome }),
        4 => proptest::bool::weighted(0.9).prop_map(|is_written| Step::Flush { is_written }),
        1 => (1..10_u64).prop_map(|secs| Step::Pass { secs }),
        2 => (1..4_i64, 0..3_u64).prop_map(|(tenant, entity)| Step::Retry { tenant, entity }),
        1 => (ending, any::<bool>()).prop_map(|(ending, with_work)| Step::Reconnect { ending, with_work }),
        1 => any::<bool>().prop_map(|with_work| Step::Crash { with_work }),
    ]
}

struct World {
    config: LaneConfig,
    lane: Lane,
    store: Store,
    now: Timestamp,
    rng: StdRng,
    stream: StreamId,
    log: Vec<Entry>,
    held: Vec<Delivery>,
    acking: BTreeMap<Tag, u64>,
    /// Acked, and the answer said so.
    durable: BTreeSet<u64>,
    next: u64,
}

impl World {
    fn new(config: LaneConfig) -> Self {
        let now = Timestamp::from_secs(1_000);
        let mut lane = Lane::new(config.clone(), Epoch(1), Restored::default(), now).expect("valid");
        lane.set_stream(Some(STREAM));
        Self {
            config,
            lane,
            store: Store::default(),
            now,
            rng: StdRng::seed_from_u64(3),
            stream: STREAM,
            log: Vec::new(),
            held: Vec::new(),
            acking: BTreeMap::new(),
            durable: BTreeSet::new(),
            next: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Append { tenant, entity, count } => {
                for _ in 0..count {
                    self.log.push(of(self.log.len() as u64 + 1, tenant, entity));
                }
            }
            Step::Read { limit } => self.read(limit),
            Step::ReadAside { pick, limit } => self.read_aside(pick, limit),
            Step::Deliver { events } => self.deliver(events),
            Step::Settle { pick, outcome } => self.settle(pick, outcome),
            Step::Flush { is_written } => self.flush(is_written),
            Step::Pass { secs: by } => {
                self.now = self.now.plus(secs(by));
                self.lane.handle_timeout(self.now, &mut self.rng);
            }
            Step::Retry { tenant, entity } => {
                let entity = of(1, tenant, entity).entity;
                self.lane.handle_request(self.now, entity, Action::Retry);
            }
            Step::Reconnect { ending, with_work } => {
                self.lane.handle_stream_ended(self.now, &mut self.rng, self.stream, ending);
                self.come_back(with_work);
            }
            Step::Crash { with_work } => self.restart(with_work),
        }
        while self.lane.poll_revoke().is_some() {}
        self.answers();
        assert!(self.lane.stats().parked_positions <= self.config.positions_max + 32);
    }

    fn read(&mut self, limit: usize) {
        if self.lane.capacity() == 0 {
            return;
        }
        let after = self.lane.cursor();
        let page: Vec<Entry> = self.log.iter().filter(|entry| entry.n > after).take(limit).copied().collect();
        let through = page.last().map_or(after, |entry| entry.n);
        self.lane.handle_page(self.now, after, &page, through).expect("no gap");
    }

    fn read_aside(&mut self, pick: usize, limit: usize) {
        let reads = self.lane.side_reads(8);
        let Some(read) = reads.get(pick % reads.len().max(1)).copied() else { return };
        let wanted = self.log.iter().filter(|entry| {
            entry.n > read.after
                && entry.n <= read.through
                && match read.scope {
                    SideScope::Tenant(tenant) => entry.tenant == tenant,
                    SideScope::Entity(entity) => entry.entity == entity,
                }
        });
        let page: Vec<Entry> = wanted.take(limit).copied().collect();
        let through = if page.len() == limit { page[limit - 1].n } else { read.through };
        self.lane.handle_side_read(self.now, read, &page, through).expect("no gap");
    }

    /// A consumer opens the next stream, and goes on with what it had where that may be.
    fn come_back(&mut self, with_work: bool) {
        self.stream = StreamId(self.stream.0 + 1);
        self.lane.set_stream(Some(self.stream));
        for work in std::mem::take(&mut self.held) {
            if with_work && self.lane.handle_adopt(self.now, work.token, self.stream) {
                self.begins(&work);
                self.held.push(work);
            }
        }
    }

    /// Whether an event is settled for good, as a consumer or an operator can know it.
    fn is_over(&self, n: u64) -> bool {
        self.durable.contains(&n) || self.store.dead.contains_key(&n)
    }

    fn begins(&self, delivery: &Delivery) {
        let (entity, n) = (delivery.entry.entity, delivery.entry.n);
        assert!(self.held.iter().all(|held| held.entry.entity != entity), "one in flight");
        assert!(!self.is_over(n), "{n} was durably settled");
        let earlier = self.log.iter().filter(|entry| entry.entity == entity && entry.n < n);
        for entry in earlier {
            assert!(self.is_over(entry.n), "{n} starts before {}", entry.n);
        }
        let is_blocked = self.store.parked.get(&entity).is_some_and(|row| row.state == ParkedState::Blocked);
        assert!(!is_blocked, "{n} starts although its entity is blocked");
    }

    fn deliver(&mut self, events: u32) {
        for _ in 0..events {
            let Some(delivery) = self.lane.poll_delivery(self.now, Room::UNLIMITED) else { return };
            self.begins(&delivery);
            self.held.push(delivery);
        }
    }

    fn settle(&mut self, pick: usize, outcome: Outcome) {
        if self.held.is_empty() {
            return;
        }
        let delivery = self.held.swap_remove(pick % self.held.len());
        self.say(delivery.token, outcome);
    }

    fn say(&mut self, token: Token, outcome: Outcome) {
        self.next += 1;
        let tag = Tag(self.next);
        if outcome == Outcome::Ack {
            self.acking.insert(tag, token.position);
        }
        let settlement = Settlement { token, outcome, reason: Reason::default() };
        self.lane.handle_settle(self.now, &mut self.rng, settlement, tag);
    }

    fn flush(&mut self, is_written: bool) {
        let Some(flush) = self.lane.poll_flush(self.now) else { return };
        self.check(&flush);
        let result = if is_written {
            self.store.write(&flush);
            FlushResult::Written
        } else {
            FlushResult::Failed
        };
        self.lane.handle_flushed(self.now, flush.seq, result);
    }

    fn check(&self, flush: &Flush) {
        for row in &flush.park {
            assert!(row.positions.len() <= self.config.parked_max.max(2), "{row:?}");
        }
        assert!(flush.detours.len() <= self.config.detours_max);
        for entry in self.log.iter().filter(|entry| entry.n <= self.lane.cursor()) {
            let detour = flush.detours.iter().find(|d| {
                d.tenant == entry.tenant && entry.n > d.starts_after && d.ends_at.is_none_or(|e| entry.n <= e)
            });
            let (watermark, acked) =
                detour.map_or((flush.watermark, &flush.acked), |d| (d.watermark, &d.acked));
            let has_passed = entry.n <= watermark || acked.contains(&entry.n);
            let row = flush.park.iter().find(|row| row.entity == entry.entity);
            let row = row.or_else(|| {
                self.store.parked.get(&entry.entity).filter(|_| !flush.unpark.contains(&entry.entity))
            });
            let is_parked = row.is_some_and(|row| {
                row.positions.contains(&entry.n)
                    || row.overflow.is_some_and(|o| o.after < entry.n && entry.n <= o.last)
            });
            let is_dying = flush.dead.iter().any(|letter| letter.position == entry.n);
            let is_settled =
                self.is_over(entry.n) || is_dying || self.acking.values().any(|acking| *acking == entry.n);
            assert!(!has_passed || is_parked || is_settled, "{} is passed and nowhere", entry.n);
        }
    }

    fn answers(&mut self) {
        while let Some(settled) = self.lane.poll_settled() {
            let Some(position) = self.acking.remove(&settled.tag) else { continue };
            if settled.status == Status::Durable || settled.status == Status::DurableLate {
                self.durable.insert(position);
            }
        }
    }

    fn restart(&mut self, with_work: bool) {
        self.acking.clear();
        // What was written and not answered is settled all the same.
        let epoch = Epoch(self.lane.epoch().0 + 1);
        let restored = self.store.claim();
        self.lane = Lane::new(self.config.clone(), epoch, restored, self.now).expect("valid");
        self.fetch();
        self.come_back(with_work);
    }

    fn fetch(&mut self) {
        let needed = self.lane.needs_entries(usize::MAX);
        let found: Vec<Entry> = self.log.iter().filter(|entry| needed.contains(&entry.n)).copied().collect();
        self.lane.handle_entries(self.now, &found, &[]);
    }

    /// Everything is delivered and acked in the end.
    fn finish(&mut self) {
        for delivery in std::mem::take(&mut self.held) {
            self.say(delivery.token, Outcome::Ack);
        }
        for _ in 0..2_000 {
            self.flush(true);
            self.answers();
            self.now = self.now.plus(secs(3));
            self.lane.handle_timeout(self.now, &mut self.rng);
            self.read(50);
            for pick in 0..4 {
                self.read_aside(pick, 4);
            }
            let blocked: Vec<_> =
                self.store.parked.values().filter(|row| row.state == ParkedState::Blocked).collect();
            for row in blocked {
                self.lane.handle_request(self.now, row.entity, Action::Retry);
            }
            self.deliver(8);
            for delivery in std::mem::take(&mut self.held) {
                self.say(delivery.token, Outcome::Ack);
            }
            if self.log.iter().all(|entry| self.is_over(entry.n)) && self.store.parked.is_empty() {
                break;
            }
        }
        let missing: Vec<u64> = self.log.iter().map(|entry| entry.n).filter(|n| !self.is_over(*n)).collect();
        assert!(missing.is_empty(), "never delivered: {missing:?}; {:?}", self.lane.stats());
        for _ in 0..3 {
            self.lane.hurry_flush();
            self.flush(true);
            self.answers();
        }
        assert!(self.store.parked.is_empty(), "{:?}", self.store.parked);
        assert_eq!(self.lane.stats().detours, 0);
        assert_eq!(self.store.watermark, self.log.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_repeated_or_out_of_order_whatever_crowds_there_are(
        window_events_max in 1..6_usize,
        detours_max in 0..3_usize,
        parked_max in 1..4_usize,
        blocks in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let config = LaneConfig {
            attempts_max: 1_000,
            interruptions_max: 3,
            dead_letter_policy: if blocks { DeadLetterPolicy::ParkEntity } else { DeadLetterPolicy::Continue },
            window_events_max,
            acked_max: 3,
            detours_max,
            parked_max,
            positions_max: 40,
            ..LaneConfig::default()
        };
        let mut world = World::new(config);
        for step in &steps {
            world.step(step);
        }
        world.finish();
    }
}
