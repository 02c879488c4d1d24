//! Refused requests: bounded, newest first, each seen by its tenant only.

use portero_types::{RequestId, Timestamp};
use tokio::task::JoinSet;

use super::Database;
use super::fixture::{
    Fixture, NOW, fresh, new_rejection, new_source, new_tenant, random, source_id, tenant_id, tester,
};
use crate::{DynStore, NewRejection, REJECTIONS_PER_SOURCE_MAX, Rejection};

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(NOW.as_secs() + secs)
}

async fn all(store: &DynStore) -> Vec<Rejection> {
    store.list(&tenant_id("acme"), &source_id("stripe-eu"), None, 1_000).await.expect("a page").items
}

fn ids(rejections: &[Rejection]) -> Vec<RequestId> {
    rejections.iter().map(|rejection| rejection.request_id).collect()
}

pub async fn a_rejection_reads_back_with_its_sealed_capture(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let mut sealed = new_rejection(&fixture.source, 1);
    sealed.capture.as_mut().expect("there").0 = (0..=255).cycle().take(400_000).collect();
    sealed.body_bytes = 1 << 40;
    let bare = NewRejection { capture: None, detail: String::new(), ..new_rejection(&fixture.source, 2) };
    store.record(vec![sealed.clone(), bare.clone()]).await.expect("recorded");
    for new in [sealed, bare] {
        let stored = store.get(&tenant_id("acme"), new.request_id).await.expect("read").expect("there");
        let expected = Rejection {
            request_id: new.request_id,
            tenant_no: new.tenant_no,
            source_no: new.source_no,
            received_at: new.received_at,
            method: new.method,
            reason: new.reason,
            detail: new.detail,
            body_bytes: new.body_bytes,
            body_digest: new.body_digest,
            is_captured: new.capture.is_some(),
        };
        assert_eq!(stored.capture, new.capture);
        assert!(all(store).await.contains(&expected));
        assert_eq!(stored.rejection, expected);
    }
    let unknown = RequestId::new(NOW, random(fresh()));
    assert_eq!(store.get(&tenant_id("acme"), unknown).await.expect("read"), None);
    store.record(Vec::new()).await.expect("nothing is nothing");
}

pub async fn the_newest_fifty_of_a_source_are_kept(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let other = store.create_source(new_source("acme", "other"), &tester()).await.expect("created");
    store.record(vec![new_rejection(&other, 0)]).await.expect("recorded");
    let many: Vec<_> = (0..120).map(|n| new_rejection(&fixture.source, n)).collect();
    let newest = |upto: usize| {
        let newest = many[..upto].iter().rev().take(REJECTIONS_PER_SOURCE_MAX);
        newest.map(|new| new.request_id).collect::<Vec<_>>()
    };
    store.record(many[..40].to_vec()).await.expect("recorded");
    assert_eq!(ids(&all(store).await), newest(40));
    store.record(many[40..110].to_vec()).await.expect("more at once than are kept");
    assert_eq!(ids(&all(store).await), newest(110));
    for (n, new) in many.iter().enumerate().skip(110) {
        store.record(vec![new.clone()]).await.expect("recorded");
        assert_eq!(ids(&all(store).await), newest(n + 1));
    }
    let kept = store.list(&tenant_id("acme"), &source_id("other"), None, 9).await.expect("a page");
    assert_eq!(kept.items.len(), 1, "a flood at one source takes nothing from another");
}

pub async fn rejections_recorded_at_once_stay_within_the_bound(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let other = fixture.store.create_source(new_source("acme", "other"), &tester()).await.expect("created");
    let handles = [database.open().await, database.open().await];
    let mut tasks = JoinSet::new();
    for n in 0..8_usize {
        let store = handles[n % 2].clone();
        let mut batch: Vec<_> = (0..20).map(|_| new_rejection(&fixture.source, 1)).collect();
        batch.push(new_rejection(&other, 1));
        // Sources in either order must not make two recorders wait for each other.
        if n % 2 == 0 {
            batch.reverse();
        }
        tasks.spawn(async move { store.record(batch).await });
    }
    for outcome in tasks.join_all().await {
        outcome.expect("recorded");
    }
    assert_eq!(all(&fixture.store).await.len(), REJECTIONS_PER_SOURCE_MAX);
    let page = fixture.store.list(&tenant_id("acme"), &source_id("other"), None, 100).await;
    assert_eq!(page.expect("a page").items.len(), 8);
}

pub async fn rejections_are_listed_newest_first_page_by_page(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme, stripe) = (&fixture.store, tenant_id("acme"), source_id("stripe-eu"));
    // In no order, and with ids that lie before and after each other by any byte.
    let times = [7, 300, 0, 65_536, 1, 299, 70_000];
    let batch: Vec<_> = times.iter().map(|secs| new_rejection(&fixture.source, *secs)).collect();
    store.record(batch).await.expect("recorded");
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&acme, &stripe, after, 3).await.expect("a page");
        assert!(page.items.len() == 3 || !page.more);
        seen.extend(page.items.iter().map(|rejection| rejection.received_at));
        after = page.items.last().map(|rejection| rejection.request_id);
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, [70_000, 65_536, 300, 299, 7, 1, 0].map(at));
    let full = store.list(&acme, &stripe, None, 7).await.expect("a page");
    assert!(!full.more && full.items.len() == 7, "a full last page has no more");
}

pub async fn rejections_show_nothing_of_other_tenants(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    store.create_source(new_source("globex", "stripe-eu"), &tester()).await.expect("created");
    let new = new_rejection(&fixture.source, 1);
    store.record(vec![new.clone()]).await.expect("recorded");
    for tenant in ["globex", "nobody"].map(tenant_id) {
        assert_eq!(store.get(&tenant, new.request_id).await.expect("read"), None);
        assert_eq!(store.list(&tenant, &source_id("stripe-eu"), None, 9).await.expect("a page").items, []);
    }
    assert_eq!(all(store).await.len(), 1);
}

pub async fn rejections_go_with_their_source(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme, stripe) = (&fixture.store, tenant_id("acme"), source_id("stripe-eu"));
    let new = new_rejection(&fixture.source, 1);
    store.record(vec![new.clone()]).await.expect("recorded");
    store.delete_source(&acme, &stripe, &tester()).await.expect("deleted");
    assert_eq!(store.get(&acme, new.request_id).await.expect("read"), None);
    let again = store.create_source(new_source("acme", "stripe-eu"), &tester()).await.expect("created again");
    assert_eq!(all(store).await, []);
    let batch = vec![new_rejection(&fixture.source, 2), new_rejection(&again, 3)];
    store.record(batch).await.expect("what is gone is passed over");
    assert_eq!(all(store).await.len(), 1);
    assert_eq!(store.sweep(at(1_000), 100).await.expect("swept"), 1, "nothing was left behind");
}

pub async fn a_rejection_recorded_twice_is_there_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let new = new_rejection(&fixture.source, 1);
    fixture.store.record(vec![new.clone(), new.clone()]).await.expect("recorded");
    let changed = NewRejection { reason: "OTHER".to_owned(), ..new.clone() };
    fixture.store.record(vec![changed, new_rejection(&fixture.source, 2)]).await.expect("recorded");
    let found = all(&fixture.store).await;
    assert_eq!(found.len(), 2);
    assert_eq!((found[1].request_id, &found[1].reason), (new.request_id, &new.reason));
}

pub async fn odd_texts_never_make_recording_fail(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (mut empty, mut odd) = (new_rejection(&fixture.source, 1), new_rejection(&fixture.source, 2));
    for text in [&mut empty.method, &mut empty.reason, &mut empty.detail] {
        text.clear();
    }
    for text in [&mut odd.method, &mut odd.reason, &mut odd.detail] {
        *text = "ä\0'\"".repeat(1_000);
    }
    odd.capture.as_mut().expect("there").0.clear();
    let good = new_rejection(&fixture.source, 3);
    fixture.store.record(vec![empty, odd, good]).await.expect("recorded");
    let found = all(&fixture.store).await;
    assert_eq!(found.len(), 3);
    assert!(!found[1].is_captured);
    assert!(found.iter().all(|one| !one.method.contains('\0') && !one.detail.contains('\0')));
}

pub async fn a_sweep_forgets_the_oldest_and_no_more_than_asked(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let batch: Vec<_> = (0..10).map(|secs| new_rejection(&fixture.source, secs)).collect();
    store.record(batch).await.expect("recorded");
    let seen = async || all(store).await.iter().map(|one| one.received_at).collect::<Vec<_>>();
    assert_eq!(store.sweep(at(0), 100).await.expect("swept"), 0, "the bound itself stays");
    assert_eq!(store.sweep(at(7), 4).await.expect("swept"), 4);
    assert_eq!(seen().await, [9, 8, 7, 6, 5, 4].map(at));
    assert_eq!(store.sweep(at(7), 4).await.expect("swept"), 3);
    assert_eq!(store.sweep(at(7), 4).await.expect("swept"), 0);
    assert_eq!(seen().await, [9, 8, 7].map(at));
}
