//! The batcher's behaviour over a store with faults on demand.

use std::collections::HashMap;
use std::sync::Mutex;

use portero_prefilter::Disabled;

use super::*;
use crate::testing::{FakeStore, Fault, event};

fn one_queue() -> AcceptConfig {
    AcceptConfig { queues: Queues::One, tenant_percent: 100, ..AcceptConfig::default() }
}

fn handle(config: AcceptConfig, store: &Arc<FakeStore>) -> AcceptHandle {
    AcceptHandle::new(config, Arc::clone(store) as _, Arc::new(Disabled), Arc::new(|_| {}))
}

fn numbered(n: u128) -> NewEvent {
    event(n, &format!("evt_{n}"), &format!("entity_{n}"))
}

/// Submits each group in a task of its own, in this order, and waits until all are queued or refused.
async fn submit_all(
    handle: &AcceptHandle,
    groups: impl IntoIterator<Item = Vec<NewEvent>>,
) -> Vec<tokio::task::JoinHandle<Vec<EventResult>>> {
    let mut tasks = Vec::new();
    for group in groups {
        let handle = handle.clone();
        tasks.push(tokio::spawn(async move { handle.submit(group).await }));
        tokio::task::yield_now().await;
    }
    tasks
}

async fn results(tasks: Vec<tokio::task::JoinHandle<Vec<EventResult>>>) -> Vec<Vec<EventResult>> {
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("no panic"));
    }
    results
}

#[tokio::test]
async fn an_idle_batcher_commits_a_request_at_once_and_alone() {
    let store = FakeStore::open();
    let handle = handle(one_queue(), &store);
    assert_eq!(handle.submit(vec![numbered(1)]).await, [Ok(Outcome::Accepted)]);
    assert_eq!(store.with(|state| state.calls.clone()), [["evt_1"]]);
}

#[tokio::test]
async fn what_queues_up_behind_commits_in_flight_becomes_one_batch_in_order() {
    let store = FakeStore::gated(0);
    let handle = handle(AcceptConfig { further_commit_events_min: 1, ..one_queue() }, &store);
    let tasks = submit_all(&handle, (1..=9).map(|n| vec![numbered(n)])).await;
    store.until_in_flight(2).await;
    store.gate.add_permits(3);
    for result in results(tasks).await {
        assert_eq!(result, [Ok(Outcome::Accepted)]);
    }
    store.with(|state| {
        assert_eq!(state.in_flight_max, 2, "bounded");
        assert_eq!(state.calls.len(), 3);
        let rest: Vec<_> = (3..=9).map(|n| format!("evt_{n}")).collect();
        assert_eq!(state.calls[2], rest);
    });
}

#[tokio::test]
async fn a_second_commit_begins_beside_the_first_only_when_enough_events_wait() {
    let store = FakeStore::gated(0);
    let handle = handle(AcceptConfig { further_commit_events_min: 3, ..one_queue() }, &store);
    let mut tasks = submit_all(&handle, (1..=3).map(|n| vec![numbered(n)])).await;
    store.until_in_flight(1).await;
    assert_eq!(store.with(|state| state.calls.clone()), [["evt_1"]], "two wait for the first");
    tasks.extend(submit_all(&handle, [vec![numbered(4)]]).await);
    store.until_in_flight(2).await;
    tasks.extend(submit_all(&handle, (5..=9).map(|n| vec![numbered(n)])).await);
    assert_eq!(store.with(|state| state.calls.clone()), [vec!["evt_1"], vec!["evt_2", "evt_3", "evt_4"]]);
    store.gate.add_permits(3);
    for result in results(tasks).await {
        assert_eq!(result, [Ok(Outcome::Accepted)]);
    }
    assert_eq!(store.with(|state| state.calls[2].len()), 5);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_hangs_holds_up_only_what_is_in_it() {
    let store = FakeStore::gated(0);
    let handle = handle(one_queue(), &store);
    let mut tasks = submit_all(&handle, (1..=2).map(|n| vec![numbered(n)])).await;
    store.until_in_flight(1).await;
    tokio::time::advance(AcceptConfig::default().further_commit_wait).await;
    tasks.extend(submit_all(&handle, [vec![numbered(3)]]).await);
    store.until_in_flight(2).await;
    assert_eq!(store.with(|state| state.calls.clone()), [vec!["evt_1"], vec!["evt_2", "evt_3"]]);
    store.gate.add_permits(2);
    results(tasks).await;
}

#[tokio::test]
async fn batches_are_bounded_and_a_request_is_never_torn() {
    let store = FakeStore::gated(0);
    let config = AcceptConfig { batch_events_max: 4, commits_in_flight_max: 1, ..one_queue() };
    let handle = handle(config, &store);
    let sizes = [1_u128, 3, 2, 9, 1];
    let groups = sizes.iter().enumerate().map(|(group, size)| {
        (0..*size).map(|n| numbered(u128::try_from(group).expect("small") * 100 + n)).collect::<Vec<_>>()
    });
    let tasks = submit_all(&handle, groups).await;
    store.gate.add_permits(10);
    results(tasks).await;
    let batches: Vec<_> = store.with(|state| state.calls.iter().map(Vec::len).collect());
    assert_eq!(batches, [1, 3, 2, 9, 1]);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_keeps_what_it_took() {
    let store = FakeStore::gated(0);
    let config = AcceptConfig { queue_events_max: 2, commits_in_flight_max: 1, ..one_queue() };
    let handle = handle(config, &store);
    let mut tasks = submit_all(&handle, (1..=3).map(|n| vec![numbered(n)])).await;
    store.until_in_flight(1).await;
    tasks.extend(submit_all(&handle, [vec![numbered(4)]]).await);
    assert_eq!(tasks.pop().expect("pushed").await.expect("no panic"), [Err(Failure::Overloaded)]);
    store.gate.add_permits(10);
    for result in results(tasks).await {
        assert_eq!(result, [Ok(Outcome::Accepted)]);
    }
}

#[tokio::test]
async fn the_largest_request_finds_room_behind_others_and_commits_in_one_call() {
    let store = FakeStore::gated(0);
    let handle = handle(AcceptConfig { commits_in_flight_max: 1, ..one_queue() }, &store);
    let mut tasks = submit_all(&handle, (1..=3).map(|n| vec![numbered(n)])).await;
    store.until_in_flight(1).await;
    let largest: Vec<_> = (0..limits::EVENTS_PER_REQUEST_MAX)
        .map(|n| numbered(100 + u128::try_from(n).expect("small")))
        .collect();
    tasks.extend(submit_all(&handle, [largest]).await);
    store.gate.add_permits(10);
    assert!(results(tasks).await.iter().flatten().all(|result| *result == Ok(Outcome::Accepted)));
    let batches: Vec<_> = store.with(|state| state.calls.iter().map(Vec::len).collect());
    assert_eq!(batches, [1, 2, limits::EVENTS_PER_REQUEST_MAX]);
}

#[tokio::test]
async fn a_full_queue_counts_bytes_too() {
    let store = FakeStore::gated(0);
    let config = AcceptConfig { queue_bytes_max: 1_500, commits_in_flight_max: 1, ..one_queue() };
    let handle = handle(config, &store);
    let mut tasks = submit_all(&handle, [vec![numbered(1)]]).await;
    store.until_in_flight(1).await;
    tasks.extend(submit_all(&handle, (2..=4).map(|n| vec![numbered(n)])).await);
    assert_eq!(tasks.pop().expect("pushed").await.expect("no panic"), [Err(Failure::Overloaded)]);
    store.gate.add_permits(10);
    results(tasks).await;
}

#[tokio::test]
async fn a_refused_row_fails_alone_wherever_it_stands() {
    for bad in 1..=7_u128 {
        let store = FakeStore::gated(0);
        store.with(|state| state.refused.insert(format!("evt_{bad}")));
        let handle = handle(AcceptConfig { commits_in_flight_max: 1, ..one_queue() }, &store);
        let mut tasks = submit_all(&handle, [vec![numbered(100)]]).await;
        store.until_in_flight(1).await;
        // Requests of one, two, three and one event.
        let groups = [1..=1, 2..=3, 4..=6, 7..=7].map(|range| range.map(numbered).collect::<Vec<_>>());
        tasks.extend(submit_all(&handle, groups).await);
        store.gate.add_permits(100);
        let all: Vec<_> = results(tasks).await.into_iter().skip(1).flatten().collect();
        for (n, result) in (1..).zip(all) {
            let expected = if n == bad { Err(Failure::Refused) } else { Ok(Outcome::Accepted) };
            assert_eq!(result, expected, "event {n} beside refused {bad}");
        }
        let expected: Vec<_> =
            [100].into_iter().chain((1..=7).filter(|n| *n != bad)).map(|n| format!("evt_{n}")).collect();
        assert_eq!(store.with(|state| state.log.clone()), expected, "order is kept while splitting");
    }
}

#[tokio::test]
async fn a_store_that_is_down_fails_the_batch_and_the_next_one_succeeds() {
    let store = FakeStore::open();
    store.with(|state| state.faults.push_back(Fault::Unavailable));
    let handle = handle(one_queue(), &store);
    assert_eq!(handle.submit(vec![numbered(1), numbered(2)]).await, [Err(Failure::Unavailable); 2]);
    assert_eq!(handle.submit(vec![numbered(1)]).await, [Ok(Outcome::Accepted)]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_tried_again_and_its_own_receipt_counts_as_accepted() {
    for fault in [Fault::LostAnswer, Fault::LostCommit] {
        let store = FakeStore::open();
        store.with(|state| state.faults.push_back(fault));
        let handle = handle(one_queue(), &store);
        assert_eq!(handle.submit(vec![numbered(1)]).await, [Ok(Outcome::Accepted)], "{fault:?}");
        assert_eq!(store.with(|state| state.log.len()), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_of_an_unknown_outcome_end() {
    let store = FakeStore::open();
    store.with(|state| state.faults.extend([Fault::LostAnswer, Fault::Unavailable, Fault::Unavailable]));
    let handle = handle(one_queue(), &store);
    assert_eq!(
        handle.submit(vec![numbered(1)]).await,
        [Err(Failure::OutcomeUnknown)],
        "never reported as lost"
    );
    assert_eq!(store.with(|state| state.calls.len()), 3);
    let again = NewEvent { receipt_id: numbered(2).receipt_id, ..numbered(1) };
    let first = numbered(1).receipt_id;
    assert_eq!(handle.submit(vec![again]).await, [Ok(Outcome::Duplicate { first })]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_store_ends_neither_worker_nor_queue() {
    let store = FakeStore::open();
    store.with(|state| state.faults.extend([Fault::Panic; 3]));
    let handle = handle(one_queue(), &store);
    assert_eq!(handle.submit(vec![numbered(1)]).await, [Err(Failure::OutcomeUnknown)]);
    assert_eq!(handle.submit(vec![numbered(1)]).await, [Ok(Outcome::Accepted)]);
}

#[tokio::test]
async fn a_store_that_needs_a_person_is_not_reported_as_anything_better() {
    let store = FakeStore::open();
    store.with(|state| state.faults.push_back(Fault::Corrupt));
    let handle = handle(one_queue(), &store);
    assert_eq!(handle.submit(vec![numbered(1)]).await, [Err(Failure::Broken)]);
}

#[tokio::test]
async fn a_submitter_that_goes_away_does_not_stop_the_commit() {
    let store = FakeStore::gated(0);
    let handle = handle(one_queue(), &store);
    let tasks = submit_all(&handle, [vec![numbered(1)]]).await;
    store.until_in_flight(1).await;
    tasks[0].abort();
    store.gate.add_permits(1);
    handle.drain().await;
    assert_eq!(store.with(|state| state.log.clone()), ["evt_1"]);
    assert_eq!(handle.submit(vec![numbered(2)]).await, [Err(Failure::ShuttingDown)]);
}

#[tokio::test]
async fn shards_do_not_wait_for_each_other_and_spanning_requests_commit_in_one_call() {
    let store = FakeStore::gated(0);
    let config = AcceptConfig { commits_in_flight_max: 1, ..AcceptConfig::default() };
    let shards = config.shards;
    let handle = handle(config, &store);
    // One event per shard, found by trying entities.
    let per_shard: Vec<NewEvent> = shards
        .shards()
        .map(|shard| {
            (0..).map(numbered).find(|event| event.shard(shards) == shard).expect("every shard is hit")
        })
        .collect();
    let mut groups: Vec<_> = per_shard.iter().map(|event| vec![event.clone()]).collect();
    groups.push(
        per_shard
            .iter()
            .map(|e| NewEvent { event_id: format!("span_{}", e.event_id), ..e.clone() })
            .collect(),
    );
    let tasks = submit_all(&handle, groups).await;
    store.until_in_flight(usize::from(shards.get()) + 1).await;
    store.gate.add_permits(100);
    for result in results(tasks).await.into_iter().flatten() {
        assert_eq!(result, Ok(Outcome::Accepted));
    }
    assert!(store.with(|state| state.calls.iter().any(|call| call.len() == usize::from(shards.get()))));
}

#[tokio::test]
async fn hints_name_each_shard_that_got_something_new() {
    let store = FakeStore::open();
    let hinted = Arc::new(Mutex::new(Vec::new()));
    let hint: Hint = {
        let hinted = Arc::clone(&hinted);
        Arc::new(move |shard| hinted.lock().expect("not poisoned").push(shard))
    };
    let handle =
        AcceptHandle::new(AcceptConfig::default(), Arc::clone(&store) as _, Arc::new(Disabled), hint);
    let (one, two) = (event(1, "evt_1", "same"), event(2, "evt_2", "same"));
    let shard = one.shard(ShardCount::DEFAULT);
    handle.submit(vec![one.clone(), two]).await;
    assert_eq!(*hinted.lock().expect("not poisoned"), [shard]);
    handle.submit(vec![NewEvent { receipt_id: numbered(9).receipt_id, ..one }]).await;
    assert_eq!(hinted.lock().expect("not poisoned").len(), 1, "a duplicate is nothing new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_submitter_gets_exactly_one_verdict_per_event_under_load() {
    let store = FakeStore::open();
    store.with(|state| {
        state.refused.extend((0..400).step_by(37).map(|n| format!("evt_{n}")));
        state.faults.extend([Fault::Unavailable, Fault::LostAnswer, Fault::LostCommit, Fault::Panic]);
    });
    let config = AcceptConfig { batch_events_max: 16, ..AcceptConfig::default() };
    let handle = handle(config, &store);
    let tasks: Vec<_> = (0..400_u128)
        .map(|n| {
            let handle = handle.clone();
            tokio::spawn(async move { (n, handle.submit(vec![numbered(n)]).await) })
        })
        .collect();
    let mut accepted = 0;
    for task in tasks {
        let (n, result) = task.await.expect("no panic");
        let stored = store.with(|state| state.log.iter().filter(|id| **id == format!("evt_{n}")).count());
        match result[..] {
            [Ok(Outcome::Accepted)] => {
                assert_eq!(stored, 1, "evt_{n} was answered as accepted");
                accepted += 1;
            }
            [Err(Failure::Refused)] => assert_eq!((stored, n % 37), (0, 0), "evt_{n} was refused"),
            [Err(Failure::Unavailable)] => assert_eq!(stored, 0, "evt_{n} was answered as not written"),
            ref other => panic!("evt_{n}: {other:?}"),
        }
    }
    assert!(accepted > 300, "one call of four faults fails its own batch only: {accepted}");
}

#[tokio::test(start_paused = true)]
async fn recognised_repeats_are_counted_together_and_kept_while_the_store_is_away() {
    let store = FakeStore::open();
    let handle = handle(one_queue(), &store);
    let (one, other) = (numbered(1).receipt_id, numbered(2).receipt_id);
    store.with(|state| state.faults.push_back(Fault::Unavailable));
    for receipt_id in [one, other, one] {
        handle.count_repeat(receipt_id);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(store.with(|state| state.repeats.is_empty()), "the first attempt fails");
    handle.count_repeat(one);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(store.with(|state| state.repeats.clone()), HashMap::from([(one, 3), (other, 1)]));
    handle.count_repeat(other);
    handle.drain().await;
    assert_eq!(store.with(|state| state.repeats[&other]), 2, "a shutdown writes what waits");
}
