//! A lane with a store, a log and a clock, for examples.

use std::time::Duration;

use portero_engine::{
    Backoff, Delivery, Ending, Entry, FlushResult, Lane, LaneConfig, Outcome, Reason, Restored, Revoke, Room,
    Settlement, Status, StreamId, Tag, Token,
};
use portero_types::{EntityHash, Epoch, ReceiptId, TenantNo, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::store::Store;

pub(crate) const A: EntityHash = EntityHash(0xa);
pub(crate) const B: EntityHash = EntityHash(0xb);
pub(crate) const STREAM: StreamId = StreamId(1);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Small limits, so that a few events reach them.
pub(crate) fn small() -> LaneConfig {
    LaneConfig {
        attempts_max: 3,
        interruptions_max: 2,
        backoff: Backoff { base: secs(1), max: secs(4) },
        defer_deadline: secs(3600),
        window_events_max: 8,
        acked_max: 4,
        positions_max: 16,
        detours_max: 0,
        ..LaneConfig::default()
    }
}

pub(crate) fn entry(n: u64, entity: EntityHash) -> Entry {
    Entry {
        n,
        tenant: TenantNo(1),
        entity,
        receipt_id: ReceiptId::new(Timestamp::from_secs(1), u128::from(n)),
        body_bytes: 100,
        accepted_at: Timestamp::from_secs(i64::try_from(n).expect("small")),
    }
}

pub(crate) struct Bench {
    pub(crate) lane: Lane,
    pub(crate) store: Store,
    pub(crate) now: Timestamp,
    pub(crate) rng: StdRng,
    pub(crate) log: Vec<Entry>,
    next_tag: u64,
}

impl Bench {
    /// A fresh lane with a stream, that has read `log`: entities at positions 1, 2, 3 …
    pub(crate) fn new(config: LaneConfig, log: &[EntityHash]) -> Self {
        let now = Timestamp::from_secs(1_000);
        let lane = Lane::new(config, Epoch(1), Restored::default(), now).expect("valid");
        let mut bench = Self {
            lane,
            store: Store::default(),
            now,
            rng: StdRng::seed_from_u64(1),
            log: Vec::new(),
            next_tag: 0,
        };
        bench.lane.set_stream(Some(STREAM));
        bench.append(log);
        bench
    }

    /// Appends to the log and lets the lane read it.
    pub(crate) fn append(&mut self, entities: &[EntityHash]) {
        for entity in entities {
            self.log.push(entry(self.log.len() as u64 + 1, *entity));
        }
        self.read();
    }

    pub(crate) fn read(&mut self) {
        let cursor = self.lane.cursor();
        let entries: Vec<Entry> = self.log.iter().filter(|entry| entry.n > cursor).copied().collect();
        let head = self.log.len() as u64;
        self.lane.handle_page(self.now, cursor, &entries, head).expect("no gap");
    }

    /// All deliveries that the lane has now.
    pub(crate) fn deliveries(&mut self) -> Vec<Delivery> {
        std::iter::from_fn(|| self.lane.poll_delivery(self.now, Room::UNLIMITED)).collect()
    }

    /// The positions of all deliveries that the lane has now.
    pub(crate) fn positions(&mut self) -> Vec<u64> {
        self.deliveries().iter().map(|delivery| delivery.token.position).collect()
    }

    /// The only delivery that the lane has now.
    pub(crate) fn delivery(&mut self) -> Delivery {
        let all = self.deliveries();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    }

    /// Settles without writing; the statuses so far.
    pub(crate) fn say(&mut self, token: Token, outcome: Outcome) -> Vec<Status> {
        self.say_why(token, outcome, "")
    }

    pub(crate) fn say_why(&mut self, token: Token, outcome: Outcome, code: &str) -> Vec<Status> {
        self.next_tag += 1;
        let settlement = Settlement { token, outcome, reason: Reason::new(code, "") };
        self.lane.handle_settle(self.now, &mut self.rng, settlement, Tag(self.next_tag));
        self.statuses()
    }

    /// Settles and writes; the only status.
    pub(crate) fn settle(&mut self, token: Token, outcome: Outcome) -> Status {
        let mut statuses = self.say(token, outcome);
        statuses.extend(self.flush());
        assert_eq!(statuses.len(), 1, "{statuses:?}");
        statuses[0]
    }

    /// Retries after one second, writes, and lets the second pass.
    pub(crate) fn retry(&mut self, token: Token) {
        assert_eq!(self.settle(token, Outcome::Retry { delay: Some(secs(1)) }), Status::Durable);
        self.pass(secs(1));
    }

    pub(crate) fn statuses(&mut self) -> Vec<Status> {
        std::iter::from_fn(|| self.lane.poll_settled()).map(|settled| settled.status).collect()
    }

    pub(crate) fn revokes(&mut self) -> Vec<Revoke> {
        std::iter::from_fn(|| self.lane.poll_revoke()).collect()
    }

    /// Writes what there is to write; the statuses that follow.
    pub(crate) fn flush(&mut self) -> Vec<Status> {
        if let Some(flush) = self.lane.poll_flush(self.now) {
            self.store.write(&flush);
            self.lane.handle_flushed(self.now, flush.seq, FlushResult::Written);
        }
        self.statuses()
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, by: Duration) {
        self.now = self.now.plus(by);
        self.lane.handle_timeout(self.now, &mut self.rng);
    }

    pub(crate) fn end_stream(&mut self, ending: Ending) {
        self.lane.handle_stream_ended(self.now, &mut self.rng, STREAM, ending);
    }

    /// The process dies, and the next owner claims what was written; it fetches and reads, and has a stream.
    pub(crate) fn restart(&mut self, config: LaneConfig) {
        let epoch = Epoch(self.lane.epoch().0 + 1);
        self.lane = Lane::new(config, epoch, self.store.claim(), self.now).expect("valid");
        self.lane.set_stream(Some(STREAM));
        let needed = self.lane.needs_entries(usize::MAX);
        let found: Vec<Entry> = self.log.iter().filter(|entry| needed.contains(&entry.n)).copied().collect();
        self.lane.handle_entries(self.now, &found, &[]);
        self.read();
    }
}
