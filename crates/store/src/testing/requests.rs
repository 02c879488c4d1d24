//! What operators see of parked entities and ask of their lanes' owners.

use portero_types::{EntityHash, LaneNo, SubscriptionNo, Timestamp};

use super::fixture::NOW;
use super::lanes::{Owned, flush};
use super::parked::parked;
use super::{Database, assert_fails};
use crate::{ErrorKind, LaneAction, LaneFlush, LaneRequest, Overflow, ParkedState};

fn request(lane: u8, entity: u64, action: LaneAction, secs: i64) -> LaneRequest {
    LaneRequest {
        entity: EntityHash(entity),
        lane: LaneNo(lane),
        position: (action == LaneAction::DeadLetter).then_some(entity % 1_000 + 7),
        action,
        by: "ops@acme".to_owned(),
        at: Timestamp::from_secs(NOW.as_secs() + secs),
    }
}

pub async fn a_request_reaches_the_owner_of_its_lane_once(database: &dyn Database) {
    let owned = Owned::new(database, 3).await;
    let (store, no, session) = (&owned.fixture.store, owned.subscription.no, owned.session);
    let has_requests = async || store.roll(session).await.expect("a roll").shares[0].has_requests;
    assert!(!has_requests().await);
    assert_eq!(store.take_requests(session, no).await.expect("taken"), []);
    let asked = [
        request(0, u64::MAX, LaneAction::Retry, 2),
        request(0, 7, LaneAction::DeadLetter, 1),
        request(15, 7, LaneAction::Retry, 3),
    ];
    for request in &asked {
        store.request(no, request.clone()).await.expect("asked");
    }
    assert!(has_requests().await);
    let taken = store.take_requests(session, no).await.expect("taken");
    assert_eq!(taken, [1, 0, 2].map(|index: usize| asked[index].clone()), "in the order of their times");
    assert!(!has_requests().await);
    assert_eq!(store.take_requests(session, no).await.expect("taken"), []);
}

pub async fn the_newest_request_for_an_entity_wins(database: &dyn Database) {
    let owned = Owned::new(database, 3).await;
    let (store, no) = (&owned.fixture.store, owned.subscription.no);
    let newest = request(0, 7, LaneAction::DeadLetter, 5);
    for request in [request(0, 7, LaneAction::Retry, 1), newest.clone(), newest.clone()] {
        store.request(no, request).await.expect("asked");
    }
    assert_eq!(store.take_requests(owned.session, no).await.expect("taken"), [newest]);
}

pub async fn a_request_waits_for_an_owner(database: &dyn Database) {
    let owned = Owned::new(database, 3).await;
    let (store, no) = (&owned.fixture.store, owned.subscription.no);
    store.release_lanes(owned.session, no, Some(&[LaneNo(1)])).await.expect("released");
    let (here, there) = (request(0, 7, LaneAction::Retry, 1), request(1, 7, LaneAction::Retry, 1));
    store.request(no, here.clone()).await.expect("asked");
    store.request(no, there.clone()).await.expect("asked");
    assert_eq!(store.take_requests(owned.session, no).await.expect("taken"), [here]);
    assert!(!store.roll(owned.session).await.expect("a roll").shares[0].has_requests);
    store.claim_lanes(owned.session, no, owned.subscription.lanes, 1).await.expect("claimed");
    assert!(store.roll(owned.session).await.expect("a roll").shares[0].has_requests);
    let newer = owned.fixture.session("a").await;
    assert_eq!(store.take_requests(owned.session, no).await.expect("taken"), [], "a fenced one gets nothing");
    store.claim_lanes(newer, no, owned.subscription.lanes, 1).await.expect("claimed");
    assert_eq!(store.take_requests(newer, no).await.expect("taken"), [there]);
}

pub async fn a_request_for_nothing_is_refused(database: &dyn Database) {
    let owned = Owned::new(database, 0).await;
    let nowhere = SubscriptionNo(owned.subscription.no.0 + 1_000);
    let outcome = owned.fixture.store.request(nowhere, request(0, 1, LaneAction::Retry, 0)).await;
    assert_fails(outcome, ErrorKind::NotFound);
}

pub async fn parked_entities_are_listed_page_by_page(database: &dyn Database) {
    let owned = Owned::new(database, 12).await;
    let (store, no) = (&owned.fixture.store, owned.subscription.no);
    let entries = store.entries_at(portero_types::Shard(0), &[2, 5]).await.expect("entries");
    let mut overflowing = parked(entries[1].entity.0, &[5, 6, 7]);
    overflowing.overflow = Some(Overflow { after: 7, last: 9 });
    let mut blocked = parked(1 << 63, &[]);
    blocked.state = ParkedState::Blocked;
    let all = vec![parked(entries[0].entity.0, &[2, 3]), overflowing, blocked, parked(12_345, &[999])];
    owned.write(&LaneFlush { park: all.clone(), ..flush(&owned.lane, 1, 9, &[]) }).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store.parked_entities(no, after, 2).await.expect("a page");
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some((last.lane, last.entity));
        seen.extend(page);
    }
    assert!(seen.is_sorted_by_key(|listing| (listing.lane, listing.entity.to_bits())));
    assert_eq!(seen.len(), all.len());
    for expected in &all {
        let found = seen.iter().find(|listing| listing.entity == expected.entity).expect("listed");
        assert_eq!((found.lane, found.state), (LaneNo(0), expected.state));
        assert_eq!(found.position, expected.positions.first().copied());
        assert_eq!(found.waiting, expected.positions.len().saturating_sub(1) as u64);
        assert_eq!(found.has_overflow, expected.overflow.is_some());
        assert_eq!((found.attempts, found.interruptions), (expected.attempts, expected.interruptions));
        assert_eq!((found.due_at, found.first_failed_at), (expected.due_at, expected.first_failed_at));
        assert_eq!((&found.reason_code, &found.reason_text), (&expected.reason_code, &expected.reason_text));
        let entry = entries.iter().find(|entry| Some(entry.n) == found.position);
        assert_eq!(found.receipt_id, entry.map(|entry| entry.receipt_id));
        assert_eq!(found.tenant, entry.map(|_| owned.fixture.tenant.id.clone()));
        assert_eq!(found.ordering_key.is_some(), entry.is_some());
    }
    let other = owned.fixture.subscription("other").await;
    assert_eq!(store.parked_entities(other.no, None, 10).await.expect("a page"), []);
}

pub async fn a_listing_finds_the_entry_in_its_lanes_shard(database: &dyn Database) {
    let owned = Owned::new(database, 1).await;
    let (store, no, shard) = (&owned.fixture.store, owned.subscription.no, portero_types::Shard(3));
    let event = owned.fixture.event_in(shard, "evt_last_shard");
    let stands_at = owned.fixture.accepted(&event).await;
    let lane = event.entity.slot().lane(owned.subscription.lanes);
    let session = owned.fixture.session("a").await;
    let claimed = store.claim_lanes(session, no, owned.subscription.lanes, 1).await.expect("claimed");
    let claimed = claimed.iter().find(|claimed| claimed.lane.lane == lane).expect("claimed");
    let park = vec![parked(event.entity.0, &[stands_at.n])];
    let written = LaneFlush { park, ..flush(claimed, 1, stands_at.n, &[]) };
    store.flush_lanes(session, &[written]).await.expect("written");
    let listed = store.parked_entities(no, None, 10).await.expect("a page");
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].lane, listed[0].receipt_id), (lane, Some(event.receipt_id)));
    assert_eq!(listed[0].ordering_key.as_deref(), Some(event.ordering_key.as_str()));
}
