//! A lane's journal: the last flush is what the next owner finds, and it never goes back.

use portero_types::{Epoch, LaneNo, SessionId, Shard};

use super::fixture::Fixture;
use super::{Database, assert_fails};
use crate::{ClaimedLane, ErrorKind, JournalState, LaneFlush, Subscription};

/// Progress of a claimed lane and nothing else.
pub fn flush(lane: &ClaimedLane, seq: u64, watermark: u64, acked: &[u64]) -> LaneFlush {
    LaneFlush {
        lane: lane.lane,
        epoch: lane.epoch,
        state: JournalState { seq, watermark, acked: acked.to_vec(), detours: Vec::new() },
        park: vec![],
        unpark: vec![],
        defer: vec![],
        undefer: vec![],
        expired: 0,
        dead: vec![],
    }
}

/// A lane of shard 0 in the hands of a session, with so many events in its shard.
pub struct Owned {
    pub fixture: Fixture,
    pub subscription: Subscription,
    pub session: SessionId,
    pub lane: ClaimedLane,
    pub head: u64,
}

impl Owned {
    /// Sets it up; the subscription begins before the events.
    pub async fn new(database: &dyn Database, events: usize) -> Self {
        let fixture = Fixture::new(database).await;
        let subscription = fixture.subscription("billing").await;
        let head = fixture.fill(Shard(0), events).await;
        let session = fixture.session("a").await;
        let lane = Self::claim(&fixture, session, &subscription).await;
        Self { fixture, subscription, session, lane, head }
    }

    async fn claim(fixture: &Fixture, session: SessionId, subscription: &Subscription) -> ClaimedLane {
        let claimed = fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await;
        let mut claimed = claimed.expect("claimed");
        let index =
            claimed.iter().position(|claimed| claimed.lane.lane == LaneNo(0)).expect("lane 0 is free");
        claimed.swap_remove(index)
    }

    /// Writes one flush and expects it to be written.
    pub async fn write(&self, flush: &LaneFlush) {
        let written = self.fixture.store.flush_lanes(self.session, std::slice::from_ref(flush)).await;
        assert_eq!(written.expect("written"), [flush.lane]);
    }

    /// What a new owner finds, who takes over here.
    pub async fn taken_over(&mut self) -> &ClaimedLane {
        self.session = self.fixture.session("a").await;
        self.lane = Self::claim(&self.fixture, self.session, &self.subscription).await;
        &self.lane
    }

    /// Progress as a new owner finds it.
    pub async fn found(&mut self) -> (u64, Vec<u64>) {
        let state = &self.taken_over().await.state;
        (state.watermark, state.acked.clone())
    }
}

pub async fn a_new_lane_begins_where_its_subscription_does(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    fixture.fill(Shard(1), 6).await;
    let subscription = fixture.subscription("billing").await;
    fixture.fill(Shard(1), 6).await;
    let session = fixture.session("a").await;
    let claimed = fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await;
    for lane in claimed.expect("claimed") {
        let shard = subscription.lanes.shard_of(lane.lane.lane, fixture.shards);
        let watermark = subscription.starts_after[usize::from(shard.0)];
        assert_eq!(lane.state, JournalState { watermark, ..JournalState::default() });
        assert_eq!((lane.parked, lane.deferred), (vec![], vec![]));
    }
}

pub async fn the_last_flush_is_what_the_next_owner_finds(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    owned.write(&flush(&owned.lane, 1, 0, &[2, 3])).await;
    owned.write(&flush(&owned.lane, 2, 3, &[7])).await;
    owned.write(&flush(&owned.lane, 5, 3, &[7, 9, 20])).await;
    assert_eq!(owned.found().await, (3, vec![7, 9, 20]));
    owned.write(&flush(&owned.lane, 1, 20, &[])).await;
    assert_eq!(owned.found().await, (20, vec![]));
}

pub async fn a_flush_sent_twice_counts_once(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let same = flush(&owned.lane, 1, 4, &[6]);
    owned.write(&same).await;
    owned.write(&same).await;
    let twice = owned.fixture.store.flush_lanes(owned.session, &[same.clone(), same.clone()]).await;
    assert!(twice.expect("written").contains(&same.lane));
    assert_eq!(owned.found().await, (4, vec![6]));
}

pub async fn an_overtaken_flush_changes_nothing(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let early = flush(&owned.lane, 1, 2, &[]);
    owned.write(&flush(&owned.lane, 2, 8, &[10])).await;
    owned.write(&early).await;
    assert_eq!(owned.found().await, (8, vec![10]));
}

pub async fn a_watermark_never_falls(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    owned.write(&flush(&owned.lane, 1, 8, &[10])).await;
    let falling = flush(&owned.lane, 2, 7, &[8, 10]);
    assert_fails(owned.fixture.store.flush_lanes(owned.session, &[falling]).await, ErrorKind::Refused);
    assert_eq!(owned.found().await, (8, vec![10]));
    let falling = flush(&owned.lane, 1, 7, &[]);
    assert_fails(owned.fixture.store.flush_lanes(owned.session, &[falling]).await, ErrorKind::Refused);
    assert_eq!(owned.found().await, (8, vec![10]));
}

pub async fn a_flush_under_an_old_epoch_is_missing_in_the_answer(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let mut old = flush(&owned.lane, 1, 5, &[]);
    let good = {
        owned.taken_over().await;
        assert_eq!(owned.lane.epoch, Epoch(2));
        flush(&owned.lane, 1, 3, &[])
    };
    let store = &owned.fixture.store;
    assert_eq!(store.flush_lanes(owned.session, std::slice::from_ref(&old)).await.expect("answered"), []);
    old.epoch = Epoch(3);
    assert_eq!(store.flush_lanes(owned.session, &[old]).await.expect("answered"), []);
    owned.write(&good).await;
    assert_eq!(owned.found().await, (3, vec![]));
}

pub async fn lanes_flushed_together_are_written_together(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    for shard in fixture.shards.shards() {
        fixture.fill(shard, 8).await;
    }
    let heads = fixture.store.heads().await.expect("heads");
    let claim = async || {
        let session = fixture.session("a").await;
        let claimed = fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await;
        (session, claimed.expect("claimed"))
    };
    let (session, claimed) = claim().await;
    let flushes: Vec<_> = claimed
        .iter()
        .map(|lane| {
            let shard = subscription.lanes.shard_of(lane.lane.lane, fixture.shards);
            flush(lane, 1, heads[usize::from(shard.0)] - u64::from(lane.lane.lane.0 % 4), &[])
        })
        .collect();
    let mut written = fixture.store.flush_lanes(session, &flushes).await.expect("written");
    written.sort();
    assert_eq!(written, flushes.iter().map(|flush| flush.lane).collect::<Vec<_>>());
    let (session, claimed) = claim().await;
    for (lane, flush) in claimed.iter().zip(&flushes) {
        assert_eq!((lane.lane, lane.state.watermark), (flush.lane, flush.state.watermark));
    }
    let mut mixed = vec![flush(&claimed[0], 1, claimed[0].state.watermark, &[]), flushes[1].clone()];
    mixed[1].epoch = Epoch(1);
    let written = fixture.store.flush_lanes(session, &mixed).await.expect("answered");
    assert_eq!(written, [mixed[0].lane]);
}

pub async fn acked_positions_that_do_not_rise_are_refused(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    for acked in [vec![3], vec![4], vec![5, 5], vec![7, 6]] {
        let wrong = flush(&owned.lane, 1, 4, &acked);
        assert_fails(owned.fixture.store.flush_lanes(owned.session, &[wrong]).await, ErrorKind::Refused);
    }
    assert_eq!(owned.found().await, (0, vec![]));
}

pub async fn a_long_acked_list_reads_back(database: &dyn Database) {
    let mut owned = Owned::new(database, 600).await;
    let acked: Vec<_> = (2..=owned.head).filter(|n| n % 2 == 0).collect();
    owned.write(&flush(&owned.lane, 1, 0, &acked)).await;
    assert_eq!(owned.found().await, (0, acked));
}

pub async fn five_hundred_flushes_leave_the_last_state(database: &dyn Database) {
    let mut owned = Owned::new(database, 600).await;
    for _ in 0..2 {
        let start = owned.lane.state.watermark;
        for seq in 1..=250 {
            owned.write(&flush(&owned.lane, seq, start + seq, &[start + seq + 2])).await;
        }
        assert_eq!(owned.found().await, (start + 250, vec![start + 252]));
    }
}
