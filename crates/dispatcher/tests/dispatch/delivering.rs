//! What one consumer gets from one gateway.

use std::collections::HashMap;
use std::time::Duration;

use portero_dispatcher::{
    AttachError, EndReason, Ending, Flow, Outcome, Reason, Settlement, Status, StreamSpec,
};
use portero_store::testing::fixture::NOW;
use portero_types::SubscriptionNo;

use crate::support::{PATIENCE, Place, Run, deliveries, ids, settle, settlement};

#[tokio::test(flavor = "multi_thread")]
async fn an_entitys_events_come_one_after_the_other_in_order() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["a1", "a2", "a3"]).await;
    let mut stream = run.attach("c").await;
    for id in ["a1", "a2", "a3"] {
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), [id]);
        assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_durably_acked_does_not_come_again_after_a_restart_and_the_rest_does() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    for entity in ["a", "b", "c", "d"] {
        run.accept(entity, &[&format!("{entity}1"), &format!("{entity}2")]).await;
    }
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 4).await;
    for delivery in &first[..2] {
        assert_eq!(settle(&stream, delivery, Outcome::Ack).await, Status::Durable);
    }
    let acked: Vec<String> = ids(&first[..2]).iter().map(ToString::to_string).collect();
    run.stop().await;

    let run = Run::start(&place).await;
    let mut stream = run.attach("c").await;
    let mut seen: HashMap<String, Vec<String>> = HashMap::new();
    while seen.values().map(Vec::len).sum::<usize>() < 6 {
        for delivery in deliveries(&mut stream, 1).await {
            seen.entry(delivery.event.ordering_key.clone())
                .or_default()
                .push(delivery.event.event_id.clone());
            assert_eq!(settle(&stream, &delivery, Outcome::Ack).await, Status::Durable);
        }
    }
    for (entity, events) in seen {
        let mut wanted = vec![format!("{entity}1"), format!("{entity}2")];
        wanted.retain(|id| !acked.contains(id));
        assert_eq!(events, wanted);
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_never_holds_more_than_its_limit() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    for n in 0..20 {
        run.accept(&format!("e{n}"), &[&format!("id{n}")]).await;
    }
    let flow = Flow { events_max: 3, bytes_max: 1 << 20 };
    let mut stream = run.attach_with(StreamSpec { flow, ..run.spec("c") }).await.expect("attached");
    let mut held = deliveries(&mut stream, 3).await;
    for _ in 3..20 {
        let done = held.remove(0);
        assert_eq!(settle(&stream, &done, Outcome::Ack).await, Status::Durable);
        held.extend(deliveries(&mut stream, 1).await);
        assert_eq!(held.len(), 3);
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_leaves_gracefully_leaves_its_events_uncounted_to_the_next() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["a1"]).await;
    let mut first = run.attach("one").await;
    assert_eq!(ids(&deliveries(&mut first, 1).await), ["a1"]);
    first.end(Ending::Graceful).await;
    let mut second = run.attach("two").await;
    let got = deliveries(&mut second, 1).await;
    assert_eq!(ids(&got), ["a1"]);
    assert_eq!(settle(&second, &got[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_stream_of_the_same_instance_ends_the_older_one() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    let mut ghost = run.attach("same").await;
    let _newer = run.attach("same").await;
    let end = tokio::time::timeout(PATIENCE, ghost.next()).await.expect("ends in time");
    assert_eq!(end.expect_err("the stream is over"), EndReason::Replaced);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_fails_too_often_becomes_a_dead_letter_and_its_entity_goes_on() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["bad", "good"]).await;
    let mut stream = run.attach("c").await;
    for _ in 0..2 {
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), ["bad"]);
        let retry = Outcome::Retry { delay: Some(Duration::ZERO) };
        assert_eq!(settle(&stream, &got[0], retry).await, Status::Durable);
        run.clock.advance(Duration::from_secs(1));
    }
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&got), ["good"]);
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    let dead = run.store.dead_letters(run.subscription.no, None, 10).await.expect("read");
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].1.attempts, dead[0].1.reason_code.as_str()), (2, "TEST"));
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_event_is_offered_again_after_a_later_ack_of_its_entity_across_a_restart() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("order", &["refund"]).await;
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Defer).await, Status::Durable);
    run.stop().await;

    let run = Run::start(&place).await;
    let mut stream = run.attach("c").await;
    // Whether an ack of the entity came in the last moment is not known after a restart, so it is offered once.
    let refund = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&refund), ["refund"]);
    assert_eq!(settle(&stream, &refund[0], Outcome::Defer).await, Status::Durable);
    run.accept("order", &["payment"]).await;
    let payment = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&payment), ["payment"]);
    assert_eq!(settle(&stream, &payment[0], Outcome::Ack).await, Status::Durable);
    let refund = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&refund), ["refund"]);
    assert_eq!(settle(&stream, &refund[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_may_come_outside_of_the_stream_and_twice() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["a1"]).await;
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    let items = vec![settlement(got[0].token, Outcome::Ack)];
    let unary = run.dispatcher.settle(run.subscription.no, items).await;
    assert_eq!(unary.expect("taken"), [Status::Durable]);
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Already);
    let unknown = Settlement { token: None, outcome: Outcome::Ack, reason: Reason::default() };
    assert_eq!(stream.settler().settle(vec![unknown]).await, [Status::UnknownToken]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_the_session_has_and_nobody_here_holds_are_taken_up_again() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    let subscription = &run.subscription;
    // As after an outage in which the actor dropped its lanes, or a claim whose answer was lost.
    let claimed = run.store.claim_lanes(run.session, subscription.no, subscription.lanes, 1).await;
    assert_eq!(claimed.expect("claimed").len(), 16);
    run.accept("a", &["a1"]).await;
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_unknown_subscriptions_and_streams_while_draining_are_refused() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    let unknown = SubscriptionNo(i64::MAX);
    assert_eq!(run.dispatcher.settle(unknown, Vec::new()).await, Err(AttachError::NotFound));
    tokio::time::timeout(PATIENCE, run.dispatcher.drain(NOW)).await.expect("nobody to wait for");
    assert_eq!(run.attach_with(run.spec("late")).await.err(), Some(AttachError::ShuttingDown));
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_written_although_no_stream_is_left_and_the_gateway_is_another_one() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    run.accept("a", &["a1", "a2"]).await;
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 1).await;
    drop(stream);
    run.stop().await;

    let run = Run::start(&place).await;
    let items = vec![settlement(first[0].token, Outcome::Ack)];
    let statuses = run.dispatcher.settle(run.subscription.no, items).await;
    assert_eq!(statuses.expect("statuses"), [Status::DurableLate]);
    let mut stream = run.attach("c").await;
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["a2"]);
    run.stop().await;
}
