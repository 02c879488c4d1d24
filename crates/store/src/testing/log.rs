//! Reading the log: commit order, nothing skipped.

use std::collections::BTreeSet;

use portero_types::{ReceiptId, Shard};
use tokio::task::JoinSet;

use super::fixture::{Fixture, NOW, event_of, fresh, position};
use super::{Database, PATIENCE};
use crate::{DynStore, LogEntry, PageRequest};

pub async fn an_empty_log_has_a_head_of_zero_in_each_shard(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let heads = fixture.store.heads().await.expect("heads");
    assert!(!heads.is_empty() && heads.iter().all(|head| *head == 0), "{heads:?}");
    let page = fixture.store.page(PageRequest::new(Shard(0), 0, 10)).await.expect("a page");
    assert_eq!((page.entries, page.head), (vec![], 0));
}

pub async fn an_entry_says_what_routes_its_event(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let event = fixture.event("evt_1");
    let stands_at = fixture.accepted(&event).await;
    let entries = fixture.store.entries_at(stands_at.shard, &[stands_at.n]).await.expect("read");
    let expected = LogEntry {
        n: stands_at.n,
        receipt_id: event.receipt_id,
        tenant_no: event.tenant_no,
        source_no: event.source_no,
        event_type: event.event_type.clone(),
        slot: event.entity.slot(),
        entity: event.entity,
        accepted_at: entries[0].accepted_at,
        body_bytes: event.body_bytes,
    };
    assert_eq!(entries, [expected]);
}

pub async fn pages_walk_the_log_in_order_and_know_the_head(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let shard = Shard(1);
    let mut last = 0;
    for _ in 0..5 {
        last = fixture.fill(shard, 5).await;
        fixture.fill(Shard(0), 3).await;
    }
    let heads = fixture.store.heads().await.expect("heads");
    assert_eq!(heads[1], last);
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let page = fixture.store.page(PageRequest::new(shard, after, 4)).await.expect("a page");
        assert_eq!(page.head, last);
        let Some(entry) = page.entries.last() else { break };
        assert!(page.entries.len() == 4 || entry.n == page.head, "a short page reaches the head");
        after = entry.n;
        seen.extend(page.entries.iter().map(|entry| entry.n));
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    assert_eq!(seen.last(), Some(&last));
}

/// Follows one shard until it has seen so many entries.
async fn tail(store: DynStore, shard: Shard, expected: usize) -> Vec<ReceiptId> {
    let (mut seen, mut after) = (Vec::new(), 0);
    while seen.len() < expected {
        let page = store.page(PageRequest::new(shard, after, 7)).await.expect("a page");
        for entry in page.entries {
            assert!(entry.n > after, "positions rise");
            after = entry.n;
            seen.push(entry.receipt_id);
        }
        assert!(page.head >= after);
        tokio::task::yield_now().await;
    }
    seen
}

/// F11.
pub async fn pages_never_miss_an_entry_while_writers_run(database: &dyn Database) {
    const WRITERS: usize = 4;
    const BATCHES: usize = 25;
    let fixture = Fixture::new(database).await;
    let shard = Shard(2);
    let tailer = tokio::spawn(tail(database.open().await, shard, WRITERS * BATCHES * 3));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let store = database.open().await;
        let batches: Vec<Vec<_>> = (0..BATCHES)
            .map(|_| (0..3).map(|_| fixture.event_in(shard, &format!("evt_{}", fresh()))).collect())
            .collect();
        writers.spawn(async move {
            let mut written = Vec::new();
            for batch in batches {
                let verdicts = store.accept(&batch).await.expect("accepted");
                verdicts.into_iter().for_each(|verdict| assert_eq!(position(verdict).shard, shard));
                written.extend(batch.iter().map(|event| event.receipt_id));
            }
            written
        });
    }
    let written: BTreeSet<_> = writers.join_all().await.into_iter().flatten().collect();
    let seen = tokio::time::timeout(PATIENCE, tailer).await.expect("the tail misses nothing").expect("tail");
    assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), written);
}

pub async fn entries_are_found_at_their_positions(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let last = fixture.fill(Shard(0), 10).await;
    fixture.fill(Shard(1), 10).await;
    let page = fixture.store.page(PageRequest::new(Shard(0), 0, 100)).await.expect("a page");
    let wanted = [page.entries[7].n, page.entries[2].n, last + 1_000, page.entries[4].n];
    let found = fixture.store.entries_at(Shard(0), &wanted).await.expect("read");
    assert_eq!(found, [2, 4, 7].map(|index: usize| page.entries[index].clone()));
    assert_eq!(fixture.store.entries_at(Shard(0), &[]).await.expect("read"), []);
    let many: Vec<u64> = (1..=20_000).collect();
    assert_eq!(fixture.store.entries_at(Shard(0), &many).await.expect("read"), page.entries);
}

pub async fn events_are_found_by_their_receipts(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let batch: Vec<_> = (0..5)
        .map(|n| event_of(&fixture.tenant, &fixture.source, &format!("evt_{n}"), &format!("entity {n}")))
        .collect();
    fixture.store.accept(&batch).await.expect("accepted");
    let unknown = ReceiptId::new(NOW, u128::MAX);
    let wanted = [batch[3].receipt_id, unknown, batch[1].receipt_id];
    let found = fixture.store.events(&wanted).await.expect("read");
    let keys: BTreeSet<_> = found.iter().map(|event| event.ordering_key.as_str()).collect();
    assert_eq!(keys, BTreeSet::from(["entity 1", "entity 3"]));
    assert_eq!(fixture.store.events(&[]).await.expect("read").len(), 0);
}
