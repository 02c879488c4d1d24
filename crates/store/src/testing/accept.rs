//! Accepting: one receipt and one log entry per key, or nothing.

use std::collections::BTreeSet;

use bytes::Bytes;
use portero_types::limits::{
    EVENT_ID_BYTES_MAX, EVENT_TYPE_BYTES_MAX, EVENTS_PER_REQUEST_MAX, ORDERING_KEY_BYTES_MAX,
};
use portero_types::{Position, ProviderName, SecretNo, Shard};
use tokio::task::JoinSet;

use super::fixture::{
    Fixture, again, event_of, new_source, new_tenant, opened, position, provider, tester, with_body,
};
use super::{Database, assert_fails, eventually};
use crate::{ErrorKind, LogEntry, PageRequest, Receipt, Verdict};

async fn entries(fixture: &Fixture, shard: Shard) -> Vec<LogEntry> {
    let request = PageRequest::new(shard, 0, 10_000);
    fixture.store.page(request).await.expect("a page").entries
}

async fn all_entries(fixture: &Fixture) -> Vec<LogEntry> {
    let mut all = Vec::new();
    for shard in fixture.shards.shards() {
        all.extend(entries(fixture, shard).await);
    }
    all
}

pub async fn a_new_event_gets_a_receipt_an_event_and_a_log_entry(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut event = fixture.event("evt_1");
    event.secret_no = Some(SecretNo(42));
    event.id_derived = true;
    let stands_at = fixture.accepted(&event).await;
    assert_eq!(stands_at.shard, event.shard(fixture.shards));
    assert!(stands_at.n >= 1);

    let receipt = fixture.store.receipt(event.tenant_no, event.receipt_id).await.expect("read");
    let expected = Receipt {
        receipt_id: event.receipt_id,
        tenant_no: event.tenant_no,
        source_no: event.source_no,
        secret_no: event.secret_no,
        provider: event.provider.clone(),
        event_id: event.event_id.clone(),
        id_derived: true,
        event_type: event.event_type.clone(),
        ordering_key: event.ordering_key.clone(),
        body_digest: event.body_digest,
        received_at: event.received_at,
        expires_at: event.expires_at,
        request_id: event.request_id,
        position: Some(stands_at),
        duplicates: 0,
        conflicts: 0,
    };
    assert_eq!(receipt, Some(expected));

    let log = entries(&fixture, stands_at.shard).await;
    assert_eq!(
        log.iter().map(|e| (e.n, e.receipt_id)).collect::<Vec<_>>(),
        [(stands_at.n, event.receipt_id)]
    );

    let stored = fixture.store.events(&[event.receipt_id]).await.expect("read");
    assert_eq!(stored.len(), 1);
    assert_eq!((&stored[0].tenant, &stored[0].source), (&fixture.tenant.id, &fixture.source.id));
    assert_eq!((stored[0].tenant_no, stored[0].is_erased), (fixture.tenant.no, false));
    assert_eq!(stored[0].content, event.content);
    assert_eq!(opened(&stored[0]).body, "{\"id\":\"evt_1\"}");
    assert_eq!(stored[0].trace_parent, event.trace_parent);
    assert_eq!(stored[0].request_id, event.request_id);
    assert_eq!(stored[0].received_at, event.received_at);
}

pub async fn the_same_bytes_again_are_a_duplicate_of_the_first(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let first = fixture.event("evt_1");
    fixture.accepted(&first).await;
    let verdicts = fixture.store.accept(&[again(&first)]).await.expect("accepted");
    assert_eq!(verdicts, [Verdict::Duplicate { first: first.receipt_id }]);
    assert_eq!(all_entries(&fixture).await.len(), 1);
}

pub async fn other_bytes_under_the_same_id_are_a_conflict_and_the_first_stays(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let first = fixture.event("evt_1");
    fixture.accepted(&first).await;
    let verdicts = fixture.store.accept(&[with_body(&first, b"other")]).await.expect("accepted");
    assert_eq!(verdicts, [Verdict::Conflict { first: first.receipt_id }]);
    let stored = fixture.store.events(&[first.receipt_id]).await.expect("read");
    assert_eq!(stored[0].content, first.content);
    assert_eq!(all_entries(&fixture).await.len(), 1);
}

pub async fn a_key_twice_in_one_batch_is_accepted_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let first = fixture.event("evt_1");
    let batch = [first.clone(), again(&first), with_body(&first, b"other"), fixture.event("evt_2")];
    let verdicts = fixture.store.accept(&batch).await.expect("accepted");
    position(verdicts[0]);
    assert_eq!(verdicts[1], Verdict::Duplicate { first: first.receipt_id });
    assert_eq!(verdicts[2], Verdict::Conflict { first: first.receipt_id });
    position(verdicts[3]);
    assert_eq!(all_entries(&fixture).await.len(), 2);
}

pub async fn new_and_known_events_of_a_batch_get_their_own_verdicts(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let known = fixture.event("evt_5");
    fixture.accepted(&known).await;
    let batch = [fixture.event("evt_9"), again(&known), fixture.event("evt_1"), with_body(&known, b"?")];
    let verdicts = fixture.store.accept(&batch).await.expect("accepted");
    position(verdicts[0]);
    assert_eq!(verdicts[1], Verdict::Duplicate { first: known.receipt_id });
    position(verdicts[2]);
    assert_eq!(verdicts[3], Verdict::Conflict { first: known.receipt_id });
}

pub async fn a_batch_may_touch_every_shard(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let batch: Vec<_> = (0..32)
        .flat_map(|n| fixture.shards.shards().map(move |shard| (n, shard)))
        .map(|(n, shard)| fixture.event_in(shard, &format!("evt_{n}_{shard}")))
        .collect();
    let verdicts = fixture.store.accept(&batch).await.expect("accepted");
    for (event, verdict) in batch.iter().zip(verdicts) {
        assert_eq!(position(verdict).shard, event.shard(fixture.shards));
    }
    for shard in fixture.shards.shards() {
        assert_eq!(entries(&fixture, shard).await.len(), 32);
    }
}

pub async fn order_within_a_shard_follows_the_batch(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    // Ids and receipts fall while the batch rises, so that no other order passes for the batch's.
    let mut batch: Vec<_> = (0..50).map(|n| fixture.keyed(&format!("evt_{:03}", 999 - n), "one")).collect();
    let mut receipts: Vec<_> = batch.iter().map(|event| event.receipt_id).collect();
    receipts.reverse();
    batch.iter_mut().zip(receipts).for_each(|(event, receipt)| event.receipt_id = receipt);
    let verdicts = fixture.store.accept(&batch).await.expect("accepted");
    let positions: Vec<_> = verdicts.into_iter().map(|verdict| position(verdict).n).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    let log: Vec<_> =
        entries(&fixture, batch[0].shard(fixture.shards)).await.iter().map(|e| e.receipt_id).collect();
    assert_eq!(log, batch.iter().map(|event| event.receipt_id).collect::<Vec<_>>());
}

pub async fn sixty_four_identical_accepts_at_once_make_one_receipt(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let first = fixture.event("evt_1");
    let handles = [database.open().await, database.open().await];
    let mut tasks = JoinSet::new();
    for n in 0..64 {
        let (store, event) = (handles[n % 2].clone(), again(&first));
        tasks.spawn(async move { (event.receipt_id, store.accept(&[event]).await.expect("accepted")[0]) });
    }
    let outcomes = tasks.join_all().await;
    let winners: Vec<_> =
        outcomes.iter().filter(|(_, v)| matches!(v, Verdict::Accepted { .. })).map(|(id, _)| *id).collect();
    assert_eq!(winners.len(), 1);
    for (id, verdict) in outcomes {
        assert!(id == winners[0] || verdict == Verdict::Duplicate { first: winners[0] }, "{verdict:?}");
    }
    assert_eq!(all_entries(&fixture).await.len(), 1);
    assert_eq!(fixture.store.events(&[winners[0]]).await.expect("read").len(), 1);
}

/// F3.
pub async fn overlapping_batches_in_opposite_order_all_finish(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let other = database.open().await;
    for round in 0..10 {
        let batch: Vec<_> = (0..40).map(|n| fixture.event(&format!("evt_{round}_{n}"))).collect();
        let mirrored: Vec<_> = batch.iter().rev().map(again).collect();
        let (one, two) = tokio::join!(fixture.store.accept(&batch), other.accept(&mirrored));
        let accepted = one
            .expect("accepted")
            .into_iter()
            .chain(two.expect("accepted"))
            .filter(|verdict| matches!(verdict, Verdict::Accepted { .. }))
            .count();
        assert_eq!(accepted, 40);
    }
    assert_eq!(all_entries(&fixture).await.len(), 400);
}

pub async fn tenants_and_providers_keep_equal_ids_apart(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let tenant = fixture.store.create_tenant(new_tenant("globex"), &tester()).await.expect("a tenant");
    let source =
        fixture.store.create_source(new_source("globex", "stripe"), &tester()).await.expect("a source");
    let mut github = fixture.event("evt_1");
    github.provider = provider("github");
    let batch = [fixture.event("evt_1"), event_of(&tenant, &source, "evt_1", "stripe:evt_1"), github];
    let verdicts = fixture.store.accept(&batch).await.expect("accepted");
    let positions: BTreeSet<Position> = verdicts.into_iter().map(position).collect();
    assert_eq!(positions.len(), 3);
}

pub async fn sealed_contents_are_kept_byte_for_byte(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let contents: Vec<Vec<u8>> = vec![
        vec![0],
        (0..=255).collect(),
        b"\xef\xbb\xbf{\"bom\":true}".to_vec(),
        b"\\x00\\\\ '' \" not utf-8: \xff\xfe".to_vec(),
        (0..1_048_576_u32).map(|n| n.to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect(),
    ];
    for (n, content) in contents.into_iter().enumerate() {
        let mut event = fixture.event(&format!("evt_{n}"));
        event.body_bytes = u32::try_from(n).expect("few");
        event.content = Bytes::from(content);
        let stands_at = fixture.accepted(&event).await;
        let stored = fixture.store.events(&[event.receipt_id]).await.expect("read");
        assert!(stored[0].content == event.content, "content {n} changed");
        let entry = fixture.store.entries_at(stands_at.shard, &[stands_at.n]).await.expect("read");
        assert_eq!(entry[0].body_bytes, event.body_bytes, "the body's length, not what it became");
    }
}

pub async fn texts_are_kept_up_to_their_limits(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut long = fixture.keyed(&"ü".repeat(EVENT_ID_BYTES_MAX / 2), &"k".repeat(ORDERING_KEY_BYTES_MAX));
    long.event_type = "t".repeat(EVENT_TYPE_BYTES_MAX);
    let mut short = fixture.keyed("'; --\u{1}\u{7f}\u{10ffff}", "");
    short.event_type = String::new();
    short.trace_parent = String::new();
    for event in [long, short] {
        let stands_at = fixture.accepted(&event).await;
        let stored = fixture.store.events(&[event.receipt_id]).await.expect("read");
        assert_eq!(stored[0].event_id, event.event_id);
        assert_eq!(stored[0].event_type, event.event_type);
        assert_eq!(stored[0].ordering_key, event.ordering_key);
        assert_eq!(stored[0].trace_parent, event.trace_parent);
        let entry = fixture.store.entries_at(stands_at.shard, &[stands_at.n]).await.expect("read");
        assert_eq!(entry[0].event_type, event.event_type);
        let found =
            fixture.store.receipt_by_event_id(event.tenant_no, &event.provider, &event.event_id).await;
        assert_eq!(found.expect("read").map(|r| r.receipt_id), Some(event.receipt_id));
    }
}

pub async fn a_refused_event_takes_its_batch_along_but_not_its_neighbours_alone(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let good = fixture.event("evt_1");
    let mut texts = Vec::new();
    for field in ["event_id", "event_type", "ordering_key"] {
        let mut bad = fixture.event("evt_bad");
        let text = match field {
            "event_id" => &mut bad.event_id,
            "event_type" => &mut bad.event_type,
            _ => &mut bad.ordering_key,
        };
        text.push_str("secret\0text");
        let outcome = fixture.store.accept(&[good.clone(), bad]).await;
        texts.push(outcome.as_ref().map_or_else(ToString::to_string, |_| field.to_owned()));
        assert_fails(outcome, ErrorKind::Refused);
    }
    assert!(texts.iter().all(|text| !text.contains("secret")), "payload in an error: {texts:?}");
    assert_eq!(all_entries(&fixture).await, []);
    let found = fixture.store.receipt_by_event_id(good.tenant_no, &good.provider, &good.event_id).await;
    assert_eq!(found.expect("read"), None);
    fixture.accepted(&good).await;
}

pub async fn an_empty_batch_is_nothing(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    assert_eq!(fixture.store.accept(&[]).await.expect("accepted"), []);
}

pub async fn repeats_are_counted_on_the_receipt(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let first = fixture.event("evt_1");
    fixture.store.accept(&[first.clone(), again(&first)]).await.expect("accepted");
    let batch = [again(&first), again(&first), with_body(&first, b"other")];
    fixture.store.accept(&batch).await.expect("accepted");
    eventually("three duplicates and one conflict are counted", async || {
        let receipt = fixture.store.receipt(first.tenant_no, first.receipt_id).await.expect("read");
        let receipt = receipt.expect("the receipt");
        ((receipt.duplicates, receipt.conflicts) == (3, 1)).then_some(())
    })
    .await;
}

pub async fn repeats_that_were_recognised_before_are_counted_too(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (first, second, gone) = (fixture.event("evt_1"), fixture.event("evt_2"), fixture.event("evt_3"));
    fixture.store.accept(&[first.clone(), second.clone()]).await.expect("accepted");
    let counts = [(second.receipt_id, 1), (gone.receipt_id, 7), (first.receipt_id, 5)];
    fixture.store.count_repeats(&counts).await.expect("counted");
    fixture.store.count_repeats(&counts[2..]).await.expect("counted");
    fixture.store.count_repeats(&[]).await.expect("nothing to count");
    for (event, duplicates) in [(first, 10), (second, 1)] {
        let receipt = fixture.store.receipt(event.tenant_no, event.receipt_id).await.expect("read");
        assert_eq!(receipt.map(|receipt| (receipt.duplicates, receipt.conflicts)), Some((duplicates, 0)));
    }
}

pub async fn receipts_are_found_only_by_their_tenant(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let stranger = fixture.store.create_tenant(new_tenant("globex"), &tester()).await.expect("a tenant");
    let event = fixture.event("evt_1");
    fixture.accepted(&event).await;
    let by_key = async |tenant_no, provider: &ProviderName, id: &str| {
        fixture.store.receipt_by_event_id(tenant_no, provider, id).await.expect("read")
    };
    assert!(by_key(event.tenant_no, &event.provider, "evt_1").await.is_some());
    assert_eq!(by_key(stranger.no, &event.provider, "evt_1").await, None);
    assert_eq!(by_key(event.tenant_no, &provider("github"), "evt_1").await, None);
    assert_eq!(by_key(event.tenant_no, &event.provider, "evt_2").await, None);
    assert!(fixture.store.receipt(event.tenant_no, event.receipt_id).await.expect("read").is_some());
    assert_eq!(fixture.store.receipt(stranger.no, event.receipt_id).await.expect("read"), None);
}

pub async fn the_largest_request_fits_one_batch(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let batch: Vec<_> = (0..EVENTS_PER_REQUEST_MAX).map(|n| fixture.event(&format!("evt_{n}"))).collect();
    let verdicts = fixture.store.accept(&batch).await.expect("accepted");
    assert_eq!(verdicts.into_iter().map(position).collect::<BTreeSet<_>>().len(), EVENTS_PER_REQUEST_MAX);
    let repeats = fixture.store.accept(&batch).await.expect("accepted");
    assert!(repeats.iter().all(|verdict| matches!(verdict, Verdict::Duplicate { .. })));
    let ids: Vec<_> = batch.iter().map(|event| event.receipt_id).collect();
    assert_eq!(fixture.store.events(&ids).await.expect("read").len(), EVENTS_PER_REQUEST_MAX);
}
