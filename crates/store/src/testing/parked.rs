//! What left the window: parked entities, deferred events, dead letters.

use portero_types::limits::REASON_BYTES_MAX;
use portero_types::{EntityHash, LaneNo, ReceiptId, TenantNo, Timestamp};

use super::fixture::{NOW, random};
use super::lanes::{Owned, flush};
use super::{Database, assert_fails};
use crate::{DeadLetter, Deferred, Detour, ErrorKind, LaneFlush, Overflow, ParkedEntity, ParkedState};

pub fn parked(entity: u64, positions: &[u64]) -> ParkedEntity {
    ParkedEntity {
        entity: EntityHash(entity),
        state: ParkedState::Retry,
        positions: positions.to_vec(),
        overflow: None,
        attempts: 2,
        interruptions: 1,
        due_at: Timestamp::from_micros(NOW.as_micros() + 1),
        first_failed_at: NOW,
        reason_code: "CARD_DECLINED".to_owned(),
        reason_text: "insufficient ƒunds".to_owned(),
    }
}

pub fn deferred(entity: u64, position: u64) -> Deferred {
    Deferred {
        entity: EntityHash(entity),
        position,
        deadline: Timestamp::from_micros(NOW.as_micros() + 7),
        reason_code: "TOO_EARLY".to_owned(),
        reason_text: String::new(),
    }
}

pub fn dead(position: u64) -> DeadLetter {
    DeadLetter {
        position,
        receipt_id: ReceiptId::new(NOW, random(position)),
        entity: EntityHash(u64::MAX),
        attempts: 10,
        interruptions: 3,
        reason_code: "REJECTED".to_owned(),
        reason_text: "not ours".to_owned(),
        first_failed_at: NOW,
        died_at: Timestamp::from_micros(NOW.as_micros() + 99),
    }
}

pub async fn parked_entities_read_back_whole(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    // Hashes use all 64 bits: half of them are negative where a database knows signed numbers only.
    let mut park = vec![parked(1, &[2]), parked(u64::MAX, &[1, 3, 4]), parked(1 << 63, &[5])];
    park[0].state = ParkedState::Held;
    park[2].state = ParkedState::Draining;
    park[2].reason_code = String::new();
    owned.write(&LaneFlush { park: park.clone(), ..flush(&owned.lane, 1, 5, &[]) }).await;
    for _ in 0..2 {
        let mut found = owned.taken_over().await.parked.clone();
        found.sort_by_key(|entity| entity.positions[0]);
        park.sort_by_key(|entity| entity.positions[0]);
        assert_eq!(found, park);
    }
    let unpark = vec![EntityHash(u64::MAX), EntityHash(1), EntityHash(12_345)];
    owned.write(&LaneFlush { unpark, ..flush(&owned.lane, 1, 5, &[]) }).await;
    let found: Vec<_> = owned.taken_over().await.parked.iter().map(|p| p.entity).collect();
    assert_eq!(found, [EntityHash(1 << 63)]);
}

pub async fn a_parked_entity_is_replaced_as_a_whole(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let before = vec![parked(1, &[1, 2, 3]), parked(2, &[4])];
    owned.write(&LaneFlush { park: before.clone(), ..flush(&owned.lane, 1, 4, &[]) }).await;
    let mut after = parked(1, &[2, 3, 6, 7]);
    after.state = ParkedState::Draining;
    after.attempts = 0;
    after.due_at = Timestamp::from_micros(-5);
    after.reason_text = String::new();
    owned.write(&LaneFlush { park: vec![after.clone()], ..flush(&owned.lane, 2, 7, &[]) }).await;
    let found = owned.taken_over().await.parked.clone();
    assert_eq!(found, [after, before[1].clone()]);
}

pub async fn an_overflow_reads_back_with_and_without_listed_positions(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let mut listed = parked(1, &[1, 2]);
    listed.overflow = Some(Overflow { after: 2, last: 9 });
    let mut unlisted = parked(2, &[]);
    unlisted.overflow = Some(Overflow { after: 3, last: 4 });
    let mut blocked = parked(3, &[]);
    blocked.state = ParkedState::Blocked;
    let mut park = vec![listed, unlisted, blocked];
    owned.write(&LaneFlush { park: park.clone(), ..flush(&owned.lane, 1, 9, &[]) }).await;
    assert_eq!(owned.taken_over().await.parked, park);
    park[0] = parked(1, &[2, 9]);
    owned.write(&LaneFlush { park: park[..1].to_vec(), ..flush(&owned.lane, 1, 9, &[]) }).await;
    assert_eq!(owned.taken_over().await.parked, park);
}

pub async fn detours_are_part_of_the_progress(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let open =
        Detour { tenant: TenantNo(7), starts_after: 3, ends_at: None, watermark: 5, acked: vec![8, 9] };
    let ended =
        Detour { tenant: TenantNo(9), starts_after: 1, ends_at: Some(6), watermark: 6, acked: vec![] };
    let mut progress = flush(&owned.lane, 1, 10, &[12]);
    progress.state.detours = vec![open.clone(), ended];
    owned.write(&progress).await;
    let found = owned.taken_over().await.state.clone();
    assert_eq!((found.watermark, &found.acked, &found.detours), (10, &vec![12], &progress.state.detours));
    let mut without = flush(&owned.lane, 1, 11, &[12]);
    without.state.detours = vec![open.clone()];
    owned.write(&without).await;
    assert_eq!(owned.taken_over().await.state.detours, [open]);
}

pub async fn an_entity_may_leave_and_return_in_one_flush(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    owned.write(&LaneFlush { park: vec![parked(1, &[1, 2])], ..flush(&owned.lane, 1, 2, &[]) }).await;
    let back = LaneFlush {
        unpark: vec![EntityHash(1)],
        park: vec![parked(1, &[9])],
        undefer: vec![4],
        defer: vec![deferred(2, 4)],
        ..flush(&owned.lane, 2, 9, &[])
    };
    owned.write(&back).await;
    let found = owned.taken_over().await;
    assert_eq!((&found.parked, &found.deferred), (&back.park, &back.defer));
}

pub async fn a_thousand_waiting_positions_read_back(database: &dyn Database) {
    let mut owned = Owned::new(database, 1_010).await;
    let waiting: Vec<_> = (1..=1_000).collect();
    owned.write(&LaneFlush { park: vec![parked(1, &waiting)], ..flush(&owned.lane, 1, 1_000, &[]) }).await;
    assert_eq!(owned.taken_over().await.parked, [parked(1, &waiting)]);
    owned
        .write(&LaneFlush { park: vec![parked(1, &waiting[1..])], ..flush(&owned.lane, 1, 1_000, &[]) })
        .await;
    assert_eq!(owned.taken_over().await.parked, [parked(1, &waiting[1..])]);
}

/// A subscription that recovers has all of its entities in one flush: the work must grow with what they list, not with its
/// square, or the statement's time-out undoes it again and again.
pub async fn many_entities_with_long_lists_are_written_in_one_flush(database: &dyn Database) {
    let mut owned = Owned::new(database, 1_010).await;
    let waiting: Vec<_> = (1..=256).collect();
    let park: Vec<_> = (0..300).map(|entity| parked(entity, &waiting)).collect();
    owned.write(&LaneFlush { park: park.clone(), ..flush(&owned.lane, 1, 1_000, &[]) }).await;
    let rest: Vec<_> = park.iter().map(|row| parked(row.entity.0, &waiting[1..])).collect();
    owned.write(&LaneFlush { park: rest.clone(), ..flush(&owned.lane, 2, 1_000, &[]) }).await;
    assert!(owned.taken_over().await.parked == rest, "each lists what is left");
}

pub async fn deferred_events_read_back_until_settled(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let defer = vec![deferred(1 << 63, 3), deferred(1 << 63, 5), deferred(9, 6)];
    owned.write(&LaneFlush { defer: defer.clone(), ..flush(&owned.lane, 1, 6, &[]) }).await;
    assert_eq!(owned.taken_over().await.deferred, defer);
    let mut changed = deferred(9, 6);
    changed.reason_text = "still too early".to_owned();
    let next =
        LaneFlush { defer: vec![changed.clone()], undefer: vec![3, 19], ..flush(&owned.lane, 1, 6, &[]) };
    owned.write(&next).await;
    assert_eq!(owned.taken_over().await.deferred, [defer[1].clone(), changed]);
}

pub async fn dead_letters_are_listed_page_by_page(database: &dyn Database) {
    let owned = Owned::new(database, 20).await;
    let letters: Vec<_> = [4, 7, 8, 11, 15].map(dead).to_vec();
    let scrambled: Vec<_> = [3, 0, 4, 1, 2].map(|index: usize| letters[index].clone()).to_vec();
    owned.write(&LaneFlush { dead: scrambled, ..flush(&owned.lane, 1, 15, &[]) }).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = owned.fixture.store.dead_letters(owned.subscription.no, after, 2).await.expect("a page");
        let Some((lane, last)) = page.last() else { break };
        after = Some((*lane, last.position));
        seen.extend(page);
    }
    assert_eq!(seen, letters.into_iter().map(|letter| (LaneNo(0), letter)).collect::<Vec<_>>());
    let other = owned.fixture.subscription("other").await;
    assert_eq!(owned.fixture.store.dead_letters(other.no, None, 10).await.expect("a page"), []);
}

pub async fn a_dead_letter_written_twice_is_there_once(database: &dyn Database) {
    let owned = Owned::new(database, 20).await;
    let letters = vec![dead(3), dead(4)];
    owned.write(&LaneFlush { dead: letters.clone(), ..flush(&owned.lane, 1, 4, &[]) }).await;
    owned.write(&LaneFlush { dead: vec![dead(4), dead(5)], ..flush(&owned.lane, 2, 5, &[]) }).await;
    let found = owned.fixture.store.dead_letters(owned.subscription.no, None, 10).await.expect("a page");
    assert_eq!(found.iter().map(|(_, letter)| letter.position).collect::<Vec<_>>(), [3, 4, 5]);
}

pub async fn reasons_never_make_a_flush_fail(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    let hostile = ["a\0b".to_owned(), "ü".repeat(REASON_BYTES_MAX), "'; -- \u{10ffff}".to_owned()];
    let expected = ["a\u{fffd}b".to_owned(), "ü".repeat(REASON_BYTES_MAX / 2), hostile[2].clone()];
    for (seq, (text, stored)) in (1..).zip(hostile.into_iter().zip(expected)) {
        let (mut entity, mut event, mut letter) = (parked(1, &[1]), deferred(2, 2), dead(seq + 2));
        for field in [&mut entity.reason_text, &mut event.reason_text, &mut letter.reason_text] {
            field.clone_from(&text);
        }
        let written = LaneFlush {
            park: vec![entity],
            defer: vec![event],
            dead: vec![letter],
            ..flush(&owned.lane, 1, 5, &[])
        };
        owned.write(&written).await;
        let found = owned.taken_over().await;
        assert_eq!(found.parked[0].reason_text, stored);
        assert_eq!(found.deferred[0].reason_text, stored);
        let letters =
            owned.fixture.store.dead_letters(owned.subscription.no, None, 10).await.expect("a page");
        assert_eq!(letters.last().expect("a letter").1.reason_text, stored);
    }
}

pub async fn a_refused_flush_writes_no_part_of_itself(database: &dyn Database) {
    let mut owned = Owned::new(database, 20).await;
    owned.write(&flush(&owned.lane, 1, 9, &[])).await;
    let falling = LaneFlush {
        park: vec![parked(1, &[1])],
        defer: vec![deferred(2, 2)],
        dead: vec![dead(3)],
        ..flush(&owned.lane, 2, 8, &[])
    };
    assert_fails(owned.fixture.store.flush_lanes(owned.session, &[falling]).await, ErrorKind::Refused);
    let letters = owned.fixture.store.dead_letters(owned.subscription.no, None, 10).await.expect("a page");
    assert_eq!(letters, []);
    let found = owned.taken_over().await;
    assert_eq!((found.parked.len(), found.deferred.len(), found.state.watermark), (0, 0, 9));
}

pub async fn expired_events_are_counted_once_for_each_flush(database: &dyn Database) {
    let owned = Owned::new(database, 20).await;
    let first = LaneFlush { expired: 2, ..flush(&owned.lane, 1, 5, &[]) };
    owned.write(&first).await;
    owned.write(&first).await;
    owned.write(&LaneFlush { expired: 3, dead: vec![dead(6)], ..flush(&owned.lane, 2, 6, &[]) }).await;
    owned.write(&flush(&owned.lane, 3, 7, &[])).await;
    let found = owned.fixture.store.subscription(&owned.subscription.id).await.expect("found");
    assert_eq!(found.map(|found| found.expired), Some(5));
}
