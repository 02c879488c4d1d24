//! The generation, and progress that belongs to a history that was lost.

use portero_types::{Generation, LaneNo, Shard};
use tokio::task::JoinSet;

use super::fixture::Fixture;
use super::lanes::{Owned, flush};
use super::parked::{dead, deferred, parked};
use super::{Database, migrated};
use crate::{Detour, LaneFlush, Overflow, ParkedState};

pub async fn a_generation_is_raised_once_for_all_who_saw_the_loss(database: &dyn Database) {
    let store = migrated(database).await;
    let seen = store.generation().await.expect("a generation");
    let mut raises = JoinSet::new();
    for _ in 0..8 {
        let store = database.open().await;
        raises.spawn(async move { store.raise_generation(seen).await.expect("raised") });
    }
    let next = Generation(seen.0 + 1);
    assert_eq!(raises.join_all().await, vec![next; 8]);
    assert_eq!(store.generation().await.expect("a generation"), next);
    assert_eq!(store.raise_generation(seen).await.expect("read"), next, "it was raised before");
    assert_eq!(store.raise_generation(next).await.expect("raised"), Generation(seen.0 + 2));
}

pub async fn the_same_database_is_the_same_incarnation(database: &dyn Database) {
    let store = migrated(database).await;
    for _ in 0..3 {
        assert_eq!(store.incarnation().await.expect("looked"), Generation(1));
        assert_eq!(database.open().await.incarnation().await.expect("looked"), Generation(1));
    }
    store.raise_generation(Generation(1)).await.expect("raised");
    assert_eq!(store.incarnation().await.expect("looked"), Generation(2));
}

/// F9.
pub async fn progress_beyond_the_head_is_cut_under_a_new_generation(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let head = owned.head;
    let mut overflowing = parked(3, &[5]);
    overflowing.overflow = Some(Overflow { after: 5, last: head + 9 });
    let mut blocked = parked(4, &[head + 4]);
    blocked.state = ParkedState::Blocked;
    let detour = |ends_at, watermark| {
        let acked = vec![head, head + 4];
        Detour { tenant: owned.fixture.tenant.no, starts_after: 2, ends_at, watermark, acked }
    };
    let mut beyond = LaneFlush {
        park: vec![parked(1, &[3, head + 1]), parked(2, &[head + 2]), overflowing.clone(), blocked.clone()],
        defer: vec![deferred(5, 4), deferred(5, head + 3)],
        dead: vec![dead(2), dead(head + 5)],
        ..flush(&owned.lane, 1, head + 6, &[head + 8])
    };
    beyond.state.detours = vec![detour(Some(head + 6), 6)];
    owned.write(&beyond).await;
    overflowing.overflow = Some(Overflow { after: 5, last: head });
    blocked.positions.clear();
    let mut cut = detour(Some(head), 6);
    cut.acked.pop();
    // The second time nothing is beyond any more.
    for _ in 0..2 {
        let found = owned.taken_over().await.clone();
        assert_eq!((found.state.watermark, &found.state.acked[..]), (head, &[][..]));
        assert_eq!(found.state.detours, [cut.clone()]);
        assert_eq!(found.parked, [parked(1, &[3]), overflowing.clone(), blocked.clone()]);
        assert_eq!(found.deferred, [deferred(5, 4)]);
        let store = &owned.fixture.store;
        let letters = store.dead_letters(owned.subscription.no, None, 10).await.expect("a page");
        assert_eq!(letters, [(LaneNo(0), dead(2))]);
        assert_eq!(store.generation().await.expect("a generation"), Generation(2));
    }
    owned.write(&flush(&owned.lane, 1, head, &[])).await;
    assert_eq!(owned.found().await, (head, vec![]));
}

/// F9.
pub async fn events_after_a_restored_log_are_not_taken_for_settled(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    owned.write(&flush(&owned.lane, 1, 15, &[18])).await;
    database.rewind_log(Shard(0), 10).await;
    assert_eq!(owned.found().await, (10, vec![]));
    assert_eq!(owned.fixture.store.generation().await.expect("a generation"), Generation(2));
    assert_eq!(owned.fixture.fill(Shard(0), 5).await, 15);
    owned.write(&flush(&owned.lane, 1, 11, &[13])).await;
    assert_eq!(owned.found().await, (11, vec![13]));
    assert_eq!(owned.fixture.store.generation().await.expect("a generation"), Generation(2));
}

/// F9: as many events came in as were lost before anybody claimed the lane again.
pub async fn progress_beyond_the_head_is_cut_before_lost_positions_are_given_again(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    owned.write(&flush(&owned.lane, 1, 15, &[18])).await;
    database.rewind_log(Shard(0), 10).await;
    assert_eq!(owned.fixture.store.incarnation().await.expect("looked"), Generation(2));
    assert_eq!(owned.fixture.fill(Shard(0), 30).await, 40);
    assert_eq!(owned.found().await, (10, vec![]));
    assert_eq!(owned.fixture.store.incarnation().await.expect("looked again"), Generation(2));
}

pub async fn a_start_beyond_the_head_is_cut_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    fixture.fill(Shard(2), 9).await;
    let subscription = fixture.subscription("billing").await;
    database.rewind_log(Shard(2), 4).await;
    for _ in 0..2 {
        let session = fixture.session("a").await;
        let claimed = fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await;
        let claimed = claimed.expect("claimed");
        let in_shard = |lane: LaneNo| subscription.lanes.shard_of(lane, fixture.shards) == Shard(2);
        for lane in claimed {
            let expected = if in_shard(lane.lane.lane) { 4 } else { 0 };
            assert_eq!(lane.state.watermark, expected);
        }
        assert_eq!(fixture.store.generation().await.expect("a generation"), Generation(2));
    }
}

pub async fn entries_that_retention_dropped_are_no_loss(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let (head, last) = (owned.head, owned.head - 1);
    owned.write(&LaneFlush { park: vec![parked(1, &[3])], ..flush(&owned.lane, 1, last, &[head]) }).await;
    database.forget_log(Shard(0), head).await;
    let found = owned.taken_over().await;
    assert_eq!((found.state.watermark, &found.state.acked[..]), (last, &[head][..]));
    assert_eq!(found.parked, [parked(1, &[3])]);
    assert_eq!(owned.fixture.store.generation().await.expect("a generation"), Generation(1));
    assert_eq!(owned.fixture.fill(Shard(0), 1).await, head + 1, "positions go on");
}
