//! One event's trouble stays its own: large ones get their turn, suspects come alone, an outage kills nothing, work goes on
//! after a reconnect, and operators have the last word.

use std::collections::VecDeque;
use std::time::Duration;

use portero_dispatcher::{Delivery, Ending, Flow, Frame, Outcome, Status, StreamHandle, StreamSpec};
use portero_store::testing::fixture::{self, NOW};
use portero_store::{DeadLetterPolicy, LaneAction, LaneRequest, ParkedState, StartAt};
use portero_types::{EntityHash, LaneCount, SubscriptionId};

use crate::support::{Options, Place, Run, deliveries, ids, settle, settlement, until};

/// Long enough for a delivery that is going to come.
const MOMENT: Duration = Duration::from_millis(300);

const RETRY: Outcome = Outcome::Retry { delay: Some(Duration::ZERO) };

/// Deliveries that come within a moment.
async fn soon(stream: &mut StreamHandle) -> Vec<Delivery> {
    let mut got = Vec::new();
    while let Ok(frame) = tokio::time::timeout(MOMENT, stream.next()).await {
        if let Frame::Deliver(deliveries) = frame.expect("the stream goes on") {
            got.extend(deliveries);
        }
    }
    got
}

/// Accepts an event with a body of so many bytes.
async fn accept_sized(run: &Run, id: &str, bytes: usize) {
    let tenant = run.store.tenant(&fixture::tenant_id("acme")).await.expect("read").expect("there");
    let source = run
        .store
        .source(&fixture::tenant_id("acme"), &fixture::source_id("stripe-eu"))
        .await
        .expect("read")
        .expect("there");
    let event = fixture::with_body(&fixture::event_of(&tenant, &source, id, id), &vec![b'x'; bytes]);
    run.store.accept(&[event]).await.expect("accepted");
    run.dispatcher.hint();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_event_does_not_starve_behind_small_ones_when_bytes_are_tight() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    for n in 0..10 {
        accept_sized(&run, &format!("before{n}"), 30_000).await;
    }
    accept_sized(&run, "large", 95_000).await;
    for n in 0..50 {
        accept_sized(&run, &format!("small{n}"), 30_000).await;
    }
    let flow = Flow { events_max: 100, bytes_max: 100_000 };
    let mut stream = run.attach_with(StreamSpec { flow, ..run.spec("c") }).await.expect("attached");
    let mut held: VecDeque<Delivery> = deliveries(&mut stream, 3).await.into();
    let mut acked = 0;
    while !held.iter().any(|delivery| delivery.event.event_id == "large") {
        if let Some(oldest) = held.pop_front() {
            assert_eq!(settle(&stream, &oldest, Outcome::Ack).await, Status::Durable);
            acked += 1;
        }
        // As a busy consumer that always has something: without the room being kept, small ones fill it for ever.
        match tokio::time::timeout(MOMENT, stream.next()).await {
            Ok(frame) => {
                if let Frame::Deliver(more) = frame.expect("the stream goes on") {
                    held.extend(more);
                }
            }
            Err(_) => assert!(!held.is_empty(), "a stream that has nothing gets something"),
        }
        assert!(acked < 40, "it waits behind all that came later");
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_does_not_starve_behind_a_backlog_that_keeps_its_stream_busy() {
    let place = Place::sqlite().await;
    let store = place.open().await;
    let mut few = fixture::new_subscription("few");
    few.lanes = LaneCount::new(4).expect("a power of two");
    few.start_at = StartAt::Earliest;
    let few = store.create_subscription(few, &fixture::tester()).await.expect("a subscription");
    let run = Run::start_with(store, Options::new("test")).await;
    let spec = |instance| StreamSpec { subscription: few.no, ..run.spec(instance) };
    run.accept("suspect", &["suspect"]).await;
    for interruptions in 1..=2 {
        let mut stream = run.attach_with(spec("gone")).await.expect("attached");
        assert_eq!(deliveries(&mut stream, 1).await.len(), 1);
        drop(stream);
        until("the end is counted", async || {
            let parked = run.store.parked_entities(few.no, None, 10).await.expect("read");
            parked.iter().any(|row| row.interruptions == interruptions)
        })
        .await;
        if interruptions == 1 {
            run.clock.advance(Duration::from_secs(2));
        }
    }
    // Some thirty for each lane: what waits beside the suspect does not run out.
    for n in 0..120 {
        run.accept(&format!("e{n}"), &[&format!("id{n}")]).await;
    }
    let flow = Flow { events_max: 2, bytes_max: 1 << 20 };
    let mut stream = run.attach_with(StreamSpec { flow, ..spec("c") }).await.expect("attached");
    let mut held: VecDeque<Delivery> = deliveries(&mut stream, 2).await.into();
    run.clock.advance(Duration::from_secs(2));
    let mut acked = 0;
    while !held.iter().any(|delivery| delivery.event.event_id == "suspect") {
        if let Some(oldest) = held.pop_front() {
            assert_eq!(settle(&stream, &oldest, Outcome::Ack).await, Status::Durable);
            acked += 1;
        }
        match tokio::time::timeout(MOMENT, stream.next()).await {
            Ok(frame) => {
                if let Frame::Deliver(more) = frame.expect("the stream goes on") {
                    held.extend(more);
                }
            }
            Err(_) => assert!(!held.is_empty(), "a stream that has nothing gets something"),
        }
        assert!(acked < 40, "it waits behind all that came later");
    }
    assert_eq!(held.len(), 1, "it comes alone");
    run.stop().await;
}

/// F28. The event that ends its consumers is not found by condemning its neighbours.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_two_consumers_vanished_with_come_alone_one_after_the_other() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    for entity in ["a", "b", "c", "d"] {
        run.accept(entity, &[entity]).await;
    }
    for instance in ["one", "two"] {
        let mut stream = run.attach(instance).await;
        assert_eq!(deliveries(&mut stream, 4).await.len(), 4);
        drop(stream);
        // The next consumer waits for the backoff, by the clock of the test.
        until("the ends are counted", async || {
            let parked = run.store.parked_entities(run.subscription.no, None, 10).await.expect("read");
            let counted = if instance == "one" { 1 } else { 2 };
            parked.iter().filter(|row| row.interruptions == counted).count() == 4
        })
        .await;
        run.clock.advance(Duration::from_secs(2));
    }
    run.accept("e", &["e"]).await;
    let mut stream = run.attach("three").await;
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    while alone.len() + together.len() < 5 {
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(soon(&mut stream).await.len(), 0, "nothing joins it");
        assert_eq!(got.len(), 1);
        let id = got[0].event.event_id.clone();
        if id == "e" {
            together.push(id);
        } else {
            alone.push(id);
        }
        assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    }
    alone.sort();
    assert_eq!((alone, together), (vec!["a".into(), "b".into(), "c".into(), "d".into()], vec!["e".into()]));
    run.stop().await;
}

/// F27. A consumer's dependency is down: everything fails.
#[tokio::test(flavor = "multi_thread")]
async fn while_everything_fails_deliveries_are_few_and_no_attempt_counts_until_one_succeeds() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    let entities: Vec<String> = (0..30).map(|n| format!("e{n}")).collect();
    for entity in &entities {
        run.accept(entity, &[entity]).await;
    }
    let mut stream = run.attach("c").await;
    let all = deliveries(&mut stream, 30).await;
    let items = all.iter().map(|delivery| settlement(delivery.token, RETRY)).collect();
    assert!(stream.settler().settle(items).await.iter().all(|status| *status == Status::Durable));
    assert_eq!(soon(&mut stream).await.len(), 0, "it pauses");
    let mut pause = Duration::from_secs(1);
    for _ in 0..4 {
        run.clock.advance(pause);
        let probes = deliveries(&mut stream, 3).await;
        assert_eq!(probes.len() + soon(&mut stream).await.len(), 3, "a few are tried");
        for probe in &probes {
            assert_eq!(settle(&stream, probe, RETRY).await, Status::Durable);
        }
        pause *= 2;
    }
    let parked = run.store.parked_entities(run.subscription.no, None, 100).await.expect("read");
    assert_eq!(parked.len(), 30);
    assert!(parked.iter().map(|row| row.attempts).sum::<u32>() <= 19, "none after it tripped");
    run.clock.advance(pause);
    let mut acked = 0;
    while acked < 30 {
        for delivery in deliveries(&mut stream, 1).await {
            assert_eq!(settle(&stream, &delivery, Outcome::Ack).await, Status::Durable);
            acked += 1;
        }
    }
    let dead = run.store.dead_letters(run.subscription.no, None, 10).await.expect("read");
    assert!(dead.is_empty(), "an outage kills nothing: {dead:?}");
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circuit_is_closed_again_once_nobody_is_left_to_try_anything_with() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    let entities: Vec<String> = (0..30).map(|n| format!("e{n}")).collect();
    for entity in &entities {
        run.accept(entity, &[entity]).await;
    }
    let mut stream = run.attach("broken").await;
    let all = deliveries(&mut stream, 30).await;
    let items = all.iter().map(|delivery| settlement(delivery.token, RETRY)).collect();
    assert!(stream.settler().settle(items).await.iter().all(|status| *status == Status::Durable));
    assert_eq!(soon(&mut stream).await.len(), 0, "it pauses");
    stream.end(Ending::Graceful).await;
    until("the lanes are given up", || async { run.share().await.0 == 0 }).await;
    run.clock.advance(Duration::from_secs(3_600));
    let mut stream = run.attach("mended").await;
    assert_eq!(deliveries(&mut stream, 30).await.len(), 30, "everything is offered at once");
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_at_the_consumers_next_stream_under_its_token_and_is_not_delivered_again() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["a1", "a2"]).await;
    let mut stream = run.attach("c").await;
    let work = deliveries(&mut stream, 1).await.remove(0);
    for _ in 0..3 {
        // The new stream ends the old one, which breaks without a word.
        let spec = StreamSpec { unsettled: vec![work.token], ..run.spec("c") };
        stream = run.attach_with(spec).await.expect("attached");
        assert_eq!(stream.resumed(), [work.token]);
        assert_eq!(soon(&mut stream).await.len(), 0, "it is in good hands");
    }
    assert_eq!(settle(&stream, &work, Outcome::Ack).await, Status::Durable);
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["a2"]);
    let dead = run.store.dead_letters(run.subscription.no, None, 10).await.expect("read");
    assert!(dead.is_empty());
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_at_the_next_gateway_and_what_was_settled_does_not() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["a1", "a2"]).await;
    run.accept("b", &["b1"]).await;
    let mut stream = run.attach("c").await;
    let both = deliveries(&mut stream, 2).await;
    let (work, settled) = if ids(&both)[0] == "a1" { (&both[0], &both[1]) } else { (&both[1], &both[0]) };
    assert_eq!(settle(&stream, settled, Outcome::Ack).await, Status::Durable);
    drop(stream);
    run.stop().await;

    let run = Run::start(&place).await;
    let spec = StreamSpec { unsettled: vec![work.token, settled.token], ..run.spec("c") };
    let mut stream = run.attach_with(spec).await.expect("attached");
    run.clock.advance(Duration::from_secs(2));
    assert_eq!(stream.resumed(), [work.token]);
    assert_eq!(soon(&mut stream).await.len(), 0);
    assert_eq!(settle(&stream, work, Outcome::Ack).await, Status::Durable);
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["a2"]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_behind_a_dead_letter_waits_for_an_operator_where_that_is_the_policy() {
    let place = Place::sqlite().await;
    let mut strict = fixture::new_subscription("ledger");
    strict.start_at = StartAt::Earliest;
    strict.dead_letter_policy = DeadLetterPolicy::ParkEntity;
    place.open().await.create_subscription(strict, &fixture::tester()).await.expect("a subscription");
    let run = Run::start(&place).await;
    let ledger = SubscriptionId::new("ledger").expect("valid");
    let ledger = run.store.subscription(&ledger).await.expect("read").expect("there").no;
    run.accept("a", &["a1", "a2"]).await;
    run.accept("b", &["b1"]).await;
    let spec = || StreamSpec { subscription: ledger, ..run.spec("c") };
    let mut stream = run.attach_with(spec()).await.expect("attached");
    for delivery in deliveries(&mut stream, 2).await {
        let outcome = if delivery.event.event_id == "a1" { Outcome::Reject } else { Outcome::Ack };
        assert_eq!(settle(&stream, &delivery, outcome).await, Status::Durable);
    }
    assert_eq!(soon(&mut stream).await.len(), 0, "a2 waits");
    stream.end(Ending::Graceful).await;

    // Another run finds the block, and a request that was made while nobody had the lane.
    let parked = run.store.parked_entities(ledger, None, 10).await.expect("read");
    let entity = EntityHash::of(&fixture::tenant_id("acme"), "a");
    assert_eq!((parked[0].state, parked[0].entity, parked.len()), (ParkedState::Blocked, entity, 1));
    assert_eq!(run.store.dead_letters(ledger, None, 10).await.expect("read").len(), 1);
    let lane = parked[0].lane;
    let mut stream = run.attach_with(spec()).await.expect("attached");
    run.accept("a", &["a3"]).await;
    assert_eq!(soon(&mut stream).await.len(), 0, "still");
    let by = "ops".to_owned();
    let request = LaneRequest { entity, lane, position: None, action: LaneAction::Retry, by, at: NOW };
    run.store.request(ledger, request).await.expect("asked");
    for id in ["a2", "a3"] {
        let next = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&next), [id]);
        assert_eq!(settle(&stream, &next[0], Outcome::Ack).await, Status::Durable);
    }
    assert!(run.store.parked_entities(ledger, None, 10).await.expect("read").is_empty());
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_gives_up_the_event_that_he_saw_and_no_other() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["a1"]).await;
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 1).await.remove(0);
    let later = Outcome::Retry { delay: Some(Duration::from_secs(3_600)) };
    assert_eq!(settle(&stream, &first, later).await, Status::Durable);
    let parked = run.store.parked_entities(run.subscription.no, None, 10).await.expect("read").remove(0);
    let (seen, by) = (parked.position.expect("a head"), "ops".to_owned());
    let request = LaneRequest {
        entity: parked.entity,
        lane: parked.lane,
        position: Some(seen + 1),
        action: LaneAction::DeadLetter,
        by,
        at: NOW,
    };
    run.store.request(run.subscription.no, request.clone()).await.expect("asked");
    assert_eq!(soon(&mut stream).await.len(), 0);
    let dead = async || run.store.dead_letters(run.subscription.no, None, 10).await.expect("read").len();
    assert_eq!(dead().await, 0, "another one was meant");
    let request = LaneRequest { position: Some(seen), ..request };
    run.store.request(run.subscription.no, request).await.expect("asked");
    until("it is given up", || async { dead().await == 1 }).await;
    run.stop().await;
}
