//! Leaving in an orderly way: nothing is counted, nothing comes twice, and others go on at once.

use std::time::Duration;

use portero_dispatcher::{DrainReason, EndReason, Frame, Outcome, Status};
use portero_store::testing::fixture::NOW;
use tokio::time::Instant;

use crate::support::{
    Options, PATIENCE, Place, Run, accept, deliveries, ids, settle, settlement, until, until_the_end,
};

/// The next frame that asks to leave.
async fn drain_frame(stream: &mut portero_dispatcher::StreamHandle) -> DrainReason {
    loop {
        match tokio::time::timeout(PATIENCE, stream.next()).await.expect("in time").expect("it goes on") {
            Frame::Drain { reason, .. } => return reason,
            Frame::Deliver(_) | Frame::Revoke { .. } => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_gateway_hands_each_lane_over_as_it_goes_quiet_and_waits_for_what_is_in_hand() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut a = one.attach("a").await;
    accept(&one.store, "slow", &["slow1", "slow2"]).await;
    let slow = deliveries(&mut a, 1).await;
    let mut b = two.attach("b").await;
    let drain = tokio::spawn({
        let dispatcher = one.dispatcher.clone();
        async move { dispatcher.drain(NOW.plus(Duration::from_secs(20))).await }
    });
    assert_eq!(drain_frame(&mut a).await, DrainReason::ShuttingDown);
    let began = Instant::now();
    until("all but the busy lane are the other's", async || two.share().await.0 == 15).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // The busy one waits for its consumer, and its next event goes to the other gateway.
    assert_eq!(settle(&a, &slow[0], Outcome::Ack).await, Status::Durable);
    let next = deliveries(&mut b, 1).await;
    assert_eq!(ids(&next), ["slow2"]);
    assert_eq!(next[0].attempt, 1);
    assert_eq!(until_the_end(&mut a).await.1, EndReason::ShuttingDown);
    drain.await.expect("drained");
    one.stop().await;
    assert_eq!(settle(&b, &next[0], Outcome::Ack).await, Status::Durable);
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_consumer_does_not_settle_by_the_deadline_is_taken_back_uncounted() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut a = one.attach("a").await;
    accept(&one.store, "e", &["e1"]).await;
    let stuck = deliveries(&mut a, 1).await;
    let mut b = two.attach("b").await;
    let took = Instant::now();
    let (drained, reason) = tokio::join!(
        tokio::time::timeout(PATIENCE, one.dispatcher.drain(NOW.plus(Duration::from_secs(1)))),
        async { until_the_end(&mut a).await.1 }
    );
    drained.expect("it ends by itself");
    assert_eq!(reason, EndReason::ShuttingDown);
    assert!(took.elapsed() < Duration::from_secs(4), "{:?}", took.elapsed());
    let again = deliveries(&mut b, 1).await;
    assert_eq!(ids(&again), ["e1"]);
    let parked = two.store.parked_entities(two.subscription.no, None, 10).await.expect("read");
    assert!(parked.iter().all(|row| row.attempts == 0 && row.interruptions == 0), "{parked:?}");
    // The one that was taken back was processed after all: the late ack still counts.
    let late =
        two.dispatcher.settle(two.subscription.no, vec![settlement(stuck[0].token, Outcome::Ack)]).await;
    assert_eq!(late.expect("taken"), [Status::DurableLate]);
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_asked_to_leave_at_its_age_alone_and_loses_nothing() {
    let place = Place::sqlite().await;
    let options = Options { stream_age: Duration::from_millis(500), ..Options::new("test") };
    let run = Run::start_with(place.open().await, options).await;
    let mut old = run.attach("old").await;
    run.accept("a", &["a1", "a2"]).await;
    let got = deliveries(&mut old, 1).await;
    assert_eq!(drain_frame(&mut old).await, DrainReason::StreamAge);
    let mut young = run.attach("young").await;
    assert_eq!(settle(&old, &got[0], Outcome::Ack).await, Status::Durable);
    assert_eq!(until_the_end(&mut old).await.1, EndReason::Aged);
    let next = deliveries(&mut young, 1).await;
    assert_eq!((ids(&next), next[0].attempt), (vec!["a2"], 1));
    assert_eq!(settle(&young, &next[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_client_is_distrusted_settles_what_it_has_and_gets_no_more() {
    let run = Run::start_with(Place::sqlite().await.open().await, Options::new("test")).await;
    let mut distrusted = run.attach("distrusted").await;
    run.accept("a", &["a1", "a2"]).await;
    let got = deliveries(&mut distrusted, 1).await;
    distrusted.distrust(PATIENCE).await;
    assert_eq!(drain_frame(&mut distrusted).await, DrainReason::Distrusted);
    assert_eq!(settle(&distrusted, &got[0], Outcome::Ack).await, Status::Durable);
    assert_eq!(until_the_end(&mut distrusted).await.1, EndReason::Distrusted);
    let mut other = run.attach("other").await;
    let next = deliveries(&mut other, 1).await;
    assert_eq!((ids(&next), next[0].attempt), (vec!["a2"], 1));

    // One that settles nothing ends all the same, and nothing is counted.
    other.distrust(Duration::from_millis(100)).await;
    assert_eq!(until_the_end(&mut other).await.1, EndReason::Distrusted);
    let mut last = run.attach("last").await;
    let again = deliveries(&mut last, 1).await;
    assert_eq!((ids(&again), again[0].attempt), (vec!["a2"], 1));
    assert_eq!(settle(&last, &again[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_three_gateways_under_load_stops_no_entity_for_two_seconds() {
    let place = Place::postgres().await;
    let longest = super::rolling::restart(&place).await;
    println!("the longest pause of an entity: {longest:?}");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}
