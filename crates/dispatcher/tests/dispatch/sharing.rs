//! Several gateways on one database: who has which lanes, and that nothing is lost, doubled or out of order while they move.

use std::collections::HashSet;
use std::time::Duration;

use portero_dispatcher::{EndReason, Ending, Flow, Frame, Outcome, Status, StreamHandle, StreamSpec};
use portero_store::ParkedState;
use tokio::time::Instant;

use crate::faulty::Faulty;
use crate::support::{
    History, Options, PATIENCE, Place, Run, accept, deliveries, ids, settle, settle_for_good, settlement,
    until, until_the_end,
};

async fn owns(run: &Run, lanes: u16) -> bool {
    run.share().await.0 == lanes
}

/// Acks what comes until so many events of the history are acked.
async fn work(run: &Run, streams: &mut [&mut StreamHandle], history: &mut History, events: usize) {
    let deadline = Instant::now() + PATIENCE;
    while history.len() < events {
        assert!(Instant::now() < deadline, "{} of {events} events came", history.len());
        for stream in streams.iter_mut() {
            let Ok(frame) = tokio::time::timeout(Duration::from_millis(20), stream.next()).await else {
                continue;
            };
            let Frame::Deliver(got) = frame.expect("the stream goes on") else { continue };
            for delivery in got {
                let mut status = settle(stream, &delivery, Outcome::Ack).await;
                if status == Status::TryAgain {
                    status = settle_for_good(run, &delivery, Outcome::Ack).await;
                }
                if status == Status::Durable {
                    history.acked(&delivery);
                }
            }
        }
    }
}

/// Behind a load balancer outcomes may come to a gateway that has no consumer: lanes there would be nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_that_keep_coming_to_another_gateway_draw_no_lane_away_from_the_consumers() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut stream = one.attach("a").await;
    one.accept("e", &["e1"]).await;
    let got = deliveries(&mut stream, 1).await;
    until("the first has all lanes", async || owns(&one, 16).await).await;
    for _ in 0..7 {
        let items = vec![settlement(got[0].token, Outcome::Ack)];
        let statuses = two.dispatcher.settle(two.subscription.no, items).await.expect("taken");
        assert_eq!(statuses, [Status::TryAgain]);
        assert!(owns(&one, 16).await, "a lane went where nobody listens");
    }
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    one.stop().await;
    two.stop().await;
}

/// Lanes follow the consumers' windows, and moving them loses, doubles and reorders nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_move_to_a_second_gateway_with_consumers_and_back_when_they_leave() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut a = one.attach("a").await;
    until("the first has all lanes", async || owns(&one, 16).await).await;
    let mut b = two.attach("b").await;
    let mut history = History::default();
    for round in 0..20 {
        for entity in 0..20 {
            accept(&one.store, &format!("e{entity}"), &[&format!("e{entity}-{round}")]).await;
        }
        work(&one, &mut [&mut a, &mut b], &mut history, (round + 1) * 20).await;
    }
    until("both have half of them", async || owns(&one, 8).await && owns(&two, 8).await).await;
    for entity in 0..20 {
        accept(&one.store, &format!("e{entity}"), &[&format!("e{entity}-last")]).await;
    }
    work(&one, &mut [&mut a, &mut b], &mut history, 420).await;
    history.assert_in_order();
    b.end(Ending::Graceful).await;
    until("the first has all lanes again", async || owns(&one, 16).await).await;
    one.stop().await;
    two.stop().await;
}

/// F34. Only a gateway with a live stream owns lanes: they follow the only consumer, in less than a second.
#[tokio::test(flavor = "multi_thread")]
async fn the_lanes_follow_the_only_consumer_to_another_gateway_within_a_second() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut stream = one.attach("c").await;
    accept(&one.store, "a", &["a1", "a2", "a3"]).await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    for (from, to, id) in [(&one, &two, "a2"), (&two, &one, "a3")] {
        stream.end(Ending::Graceful).await;
        let left = Instant::now();
        stream = to.attach("c").await;
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), [id]);
        assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
        assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
        until("the other one has no lane", async || owns(from, 0).await).await;
    }
    one.stop().await;
    two.stop().await;
}

/// F16. A takeover reads the journal only after the fence has waited for the old owner's flush that is under way: what that
/// flush acked is not delivered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_finds_what_the_old_owners_last_flush_wrote() {
    let place = Place::postgres().await;
    let (plain, slow) = (place.open().await, Faulty::new(place.open().await));
    let ttl = Duration::from_secs(2);
    let options = Options { session_ttl: ttl, deliveries: Some(slow.clone()), ..Options::new("old") };
    let old = Run::start_with(plain, options).await;
    accept(&old.store, "a", &["a1", "a2"]).await;
    let mut stream = old.attach("c").await;
    let first = deliveries(&mut stream, 1).await;
    // The ack is held between the actor and the database, and the session is not renewed any more.
    slow.flush_gate.close();
    slow.renew_gate.close();
    let settler = stream.settler();
    let ack = settlement(first[0].token, Outcome::Ack);
    let settling = tokio::spawn(async move { settler.settle(vec![ack]).await });
    until("the flush is held", async || !slow.asked.lock().expect("sound").is_empty()).await;

    let new = Run::start_as(&place, "new").await;
    let mut next = new.attach("c").await;
    let again = deliveries(&mut next, 1).await;
    assert_eq!(
        ids(&again),
        ["a1"],
        "the old owner's flush had not reached the database when the lane was taken over"
    );
    // It arrives late, under a fenced session: nothing of it is written, and nobody is told that it was.
    slow.flush_gate.open();
    assert_eq!(settling.await.expect("answered"), [Status::TryAgain]);
    assert_eq!(settle(&next, &again[0], Outcome::Ack).await, Status::Durable);
    assert_eq!(ids(&deliveries(&mut next, 1).await), ["a2"]);
    new.stop().await;
    slow.renew_gate.open();
    old.dispatcher.stop(Duration::from_millis(200)).await;
}

/// F23. The new owner of a lane knows what is parked before it offers anything: a later event does not overtake a failed one.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_offers_nothing_past_a_failed_event_of_the_same_entity() {
    let place = Place::postgres().await;
    let one = Run::start_as(&place, "one").await;
    accept(&one.store, "a", &["bad", "later"]).await;
    let mut stream = one.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    let retry = Outcome::Retry { delay: Some(Duration::from_secs(3_600)) };
    assert_eq!(settle(&stream, &got[0], retry).await, Status::Durable);
    one.stop().await;

    let two = Run::start_as(&place, "two").await;
    accept(&two.store, "b", &["other"]).await;
    let mut stream = two.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&got), ["other"], "other entities go on");
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    let parked = two.store.parked_entities(two.subscription.no, None, 10).await.expect("read");
    assert_eq!((parked.len(), parked[0].state), (1, ParkedState::Retry));
    two.clock.advance(Duration::from_secs(3_601));
    for id in ["bad", "later"] {
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), [id]);
        assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    }
    two.stop().await;
}

/// A consumer whose connection broke without a word, and that opened a stream on another gateway, has no ghost.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_same_instance_on_another_gateway_ends_the_older_one() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut ghost = one.attach("same").await;
    let mut other = one.attach("other").await;
    until("others know of it", async || owns(&one, 16).await).await;
    let began = Instant::now();
    let _newer = two.attach("same").await;
    assert_eq!(until_the_end(&mut ghost).await.1, EndReason::Replaced);
    assert!(began.elapsed() < Duration::from_secs(5));
    let still = tokio::time::timeout(Duration::from_millis(100), other.next()).await;
    assert!(still.is_err(), "the other consumer's stream goes on: {still:?}");
    one.stop().await;
    two.stop().await;
}

/// Balance does not wait for ever for a slow handler: its delivery is taken back uncounted, said to be over, and made anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_holds_a_lane_for_five_seconds_and_then_its_event_is_delivered_elsewhere() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut a = one.attach("a").await;
    for entity in 0..40 {
        accept(&one.store, &format!("e{entity}"), &[&format!("id{entity}")]).await;
    }
    let slow = deliveries(&mut a, 40).await;
    let mut b = two.attach("b").await;
    let mut revoked = Vec::new();
    while two.share().await.0 < 8 {
        match tokio::time::timeout(Duration::from_millis(50), a.next()).await {
            Ok(Ok(Frame::Revoke { tokens })) => revoked.extend(tokens),
            Ok(Err(reason)) => panic!("{reason:?}"),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    assert!(!revoked.is_empty(), "all lanes had something in hand");
    let again = deliveries(&mut b, 1).await;
    let before =
        slow.iter().find(|delivery| delivery.event.event_id == again[0].event.event_id).expect("known");
    assert!(revoked.contains(&before.token));
    assert_eq!(settle(&a, before, Outcome::Ack).await, Status::Stale, "nobody waits for what is over");
    assert_eq!(settle(&b, &again[0], Outcome::Ack).await, Status::Durable);
    let kept =
        slow.iter().find(|delivery| !revoked.contains(&delivery.token)).expect("half of the lanes stay");
    assert_eq!(settle(&a, kept, Outcome::Ack).await, Status::Durable);
    let parked = one.store.parked_entities(one.subscription.no, None, 100).await.expect("read");
    assert!(parked.iter().all(|row| row.attempts == 0 && row.interruptions == 0), "{parked:?}");
    one.stop().await;
    two.stop().await;
}

/// F35. With more streams than lanes some serve none, and each lane is served once.
#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_streams_sixteen_serve_a_lane_each_and_the_rest_none() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    let first = run.attach("c0").await;
    until("the lanes are here", async || owns(&run, 16).await).await;
    let mut streams = vec![first];
    for number in 1..20 {
        streams.push(run.attach(&format!("c{number}")).await);
    }
    assert!(streams.iter().all(|stream| stream.subscription_lanes() == 16));
    for entity in 0..400 {
        run.accept(&format!("e{entity}"), &[&format!("id{entity}")]).await;
    }
    let (mut busy, mut lanes) = (0, HashSet::new());
    let mut total = 0;
    for stream in &mut streams {
        let mut mine = HashSet::new();
        while let Ok(frame) = tokio::time::timeout(Duration::from_millis(100), stream.next()).await {
            if let Frame::Deliver(got) = frame.expect("it goes on") {
                total += got.len();
                mine.extend(got.iter().map(|delivery| delivery.token.lane));
            }
        }
        assert!(mine.len() <= 1, "{mine:?}");
        busy += usize::from(!mine.is_empty());
        assert!(mine.is_disjoint(&lanes));
        lanes.extend(mine);
    }
    assert_eq!((busy, total), (16, 400));
    run.stop().await;
}

/// F31. Lanes that move to and fro between streams while events are in their hands leak no room and stall nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_flap_between_streams_under_load_stall_nothing_and_leak_no_room() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    let flow = Flow { events_max: 4, bytes_max: 1 << 20 };
    let mut steady = run.attach_with(StreamSpec { flow, ..run.spec("steady") }).await.expect("attached");
    let mut history = History::default();
    for round in 1..=30_usize {
        for entity in 0..10 {
            run.accept(&format!("e{entity}"), &[&format!("e{entity}-{round}")]).await;
        }
        // Half of the lanes go to the second stream while the first one has their events, and come back at once.
        let held = deliveries(&mut steady, 4).await;
        let mut flapping =
            run.attach_with(StreamSpec { flow, ..run.spec("flapping") }).await.expect("attached");
        for delivery in &held {
            assert_eq!(settle(&steady, delivery, Outcome::Ack).await, Status::Durable);
            history.acked(delivery);
        }
        if round % 2 == 0 {
            work(&run, &mut [&mut steady, &mut flapping], &mut history, round * 10 - 3).await;
        }
        flapping.end(Ending::Graceful).await;
        work(&run, &mut [&mut steady], &mut history, round * 10).await;
    }
    history.assert_in_order();
    // All room is there again: as many as the window come without an ack.
    for entity in 0..10 {
        run.accept(&format!("e{entity}"), &[&format!("e{entity}-end")]).await;
    }
    assert_eq!(deliveries(&mut steady, 4).await.len(), 4);
    run.stop().await;
}
