//! Stores that lose answers or wait, processes that pause, code that panics: nothing is told that is not so, nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portero_dispatcher::{AttachError, EndReason, Flow, Outcome, Status, StreamSpec};
use portero_store::DynStore;
use portero_store::testing::fixture::NOW;
use portero_types::{Clock, ManualClock, ReceiptId, Timestamp};

use crate::faulty::{Faulty, Flushes};
use crate::support::{
    Options, PATIENCE, Place, Run, accept, deliveries, ids, settle, settlement, until, until_the_end,
};

async fn faulty(place: &Place, options: Options) -> (Run, Arc<Faulty>) {
    let store = place.open().await;
    let faulty = Faulty::new(store.clone());
    let run = Run::start_with(store, Options { deliveries: Some(faulty.clone()), ..options }).await;
    (run, faulty)
}

/// F19. The commit happened and its answer was lost: the outcome is durable, and said so once that is certain.
#[tokio::test(flavor = "multi_thread")]
async fn an_ack_whose_commit_lost_its_answer_is_told_durable_only_once_it_is_certain() {
    let place = Place::sqlite().await;
    let (run, faulty) = faulty(&place, Options::new("test")).await;
    run.accept("a", &["a1", "a2"]).await;
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 1).await;
    faulty.flushes(Flushes::LoseAnswer);
    let settler = stream.settler();
    let token = first[0].token;
    let settling = tokio::spawn(async move { settler.settle(vec![settlement(token, Outcome::Ack)]).await });
    until("the same flush came again", async || {
        let asked = faulty.asked.lock().expect("sound");
        asked.iter().filter(|(lane, seq, _)| (*lane, *seq) == (token.lane, asked[0].1)).count() >= 3
    })
    .await;
    assert!(!settling.is_finished(), "nothing is certain yet");
    faulty.flushes(Flushes::Work);
    assert_eq!(settling.await.expect("settled"), [Status::Durable]);
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["a2"]);
    run.stop().await;
}

/// F19. The commit did not happen and its answer was lost: the same is written again, and the event is not offered before.
#[tokio::test(flavor = "multi_thread")]
async fn an_ack_whose_commit_was_lost_is_written_again_before_anything_follows() {
    let place = Place::postgres().await;
    let (run, faulty) = faulty(&place, Options::new("test")).await;
    run.accept("a", &["a1", "a2"]).await;
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 1).await;
    faulty.flushes(Flushes::LoseBoth);
    let settler = stream.settler();
    let token = first[0].token;
    let settling = tokio::spawn(async move { settler.settle(vec![settlement(token, Outcome::Ack)]).await });
    until("it was tried again", async || faulty.asked.lock().expect("sound").len() >= 3).await;
    assert!(!settling.is_finished(), "nothing is certain yet");
    run.dispatcher.stop(Duration::from_millis(300)).await;
    let statuses = settling.await.expect("answered");
    assert_eq!(statuses, [Status::TryAgain], "it was never written");
    drop((stream, run, faulty));

    let run = Run::start(&place).await;
    let mut stream = run.attach("c").await;
    let again = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&again), ["a1"], "what was not written comes again, and first");
    assert_eq!(settle(&stream, &again[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

/// F18. While one flush is on its way there is no other of that lane, so that none can overtake it.
#[tokio::test(flavor = "multi_thread")]
async fn flushes_of_a_lane_never_overtake_each_other() {
    let place = Place::sqlite().await;
    let (run, faulty) = faulty(&place, Options::new("test")).await;
    for entity in 0..40 {
        run.accept(&format!("e{entity}"), &[&format!("id{entity}")]).await;
    }
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 40).await;
    faulty.flush_gate.close();
    let settler = stream.settler();
    let first = settlement(got[0].token, Outcome::Ack);
    let held = tokio::spawn({
        let settler = settler.clone();
        async move { settler.settle(vec![first]).await }
    });
    until("a flush is held", async || !faulty.asked.lock().expect("sound").is_empty()).await;
    let rest: Vec<_> = got[1..].iter().map(|delivery| settlement(delivery.token, Outcome::Ack)).collect();
    let waiting = tokio::spawn(async move { settler.settle(rest).await });
    let before = faulty.asked.lock().expect("sound").len();
    // Whatever the actor does now it does before it answers this.
    stream.backlog().await;
    assert_eq!(faulty.asked.lock().expect("sound").len(), before, "one flush at a time");
    faulty.flush_gate.open();
    assert_eq!(held.await.expect("settled"), [Status::Durable]);
    assert!(waiting.await.expect("settled").iter().all(|status| *status == Status::Durable));
    let asked = faulty.asked.lock().expect("sound").clone();
    for lane in run.subscription.lanes.lanes() {
        let of_lane: Vec<_> = asked.iter().filter(|(no, ..)| *no == lane).collect();
        assert!(of_lane.is_sorted_by(|a, b| a.1 < b.1 && a.2 <= b.2), "{lane}: {of_lane:?}");
    }
    run.stop().await;
}

/// F15. A process that cannot renew its session stops by its own monotonic clock, before others may take over.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_cannot_renew_its_session_delivers_nothing_after_three_quarters_of_its_life() {
    let place = Place::sqlite().await;
    let options = Options { session_ttl: Duration::from_secs(2), ..Options::new("test") };
    let (run, faulty) = faulty(&place, options).await;
    let mut stream = run.attach("c").await;
    run.accept("a", &["a1"]).await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    faulty.renew_gate.close();
    until("it does not trust itself any more", async || !run.dispatcher.is_alive()).await;
    run.accept("b", &["b1"]).await;
    stream.backlog().await;
    let nothing = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    faulty.renew_gate.open();
    // Nobody took over meanwhile, so it goes on with the same session.
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["b1"]);
    assert!(run.dispatcher.is_alive());
    run.stop().await;
}

/// F17. Wall clocks decide nothing about ownership: one that is ten minutes off, either way, loses no lane.
#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_wrong_by_ten_minutes_takes_no_lanes_and_loses_none() {
    let place = Place::postgres().await;
    let one = Run::start_as(&place, "one").await;
    let mut stream = one.attach("c").await;
    until("it has all lanes", async || one.share().await.0 == 16).await;
    for skew in [-600, 600] {
        let clock = ManualClock::at(Timestamp::from_secs(NOW.as_secs() + skew));
        let options = Options { clock: Some(Arc::new(clock)), ..Options::new(&format!("skewed{skew}")) };
        let skewed = Run::start_with(place.open().await, options).await;
        skewed
            .store
            .claim_lanes(skewed.session, skewed.subscription.no, skewed.subscription.lanes, 1)
            .await
            .expect("asked");
        assert_eq!(skewed.share().await.0, 0, "the owner is alive by the database's clock");
        assert_eq!(one.share().await.0, 16);
        skewed.stop().await;
    }
    one.accept("a", &["a1"]).await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    one.stop().await;
}

/// F39. A job that panics on an event blames that delivery, so that the event ends as a dead letter and others go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_breaks_the_gateway_ends_as_a_dead_letter_and_the_others_are_delivered() {
    let place = Place::sqlite().await;
    let (run, faulty) = faulty(&place, Options::new("test")).await;
    accept(&run.store, "bad", &["bad1", "bad2"]).await;
    accept(&run.store, "good", &["good1"]).await;
    faulty.poison(receipt_of(&run.store, "bad1").await);
    let mut stream = run
        .attach_with(StreamSpec { flow: Flow { events_max: 8, ..Flow::default() }, ..run.spec("c") })
        .await
        .expect("attached");
    let clock = run.clock.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let ticking = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            while !stop.load(Ordering::SeqCst) {
                clock.advance(Duration::from_millis(200));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let mut got = Vec::new();
    while got.len() < 2 {
        for delivery in deliveries(&mut stream, 1).await {
            assert_eq!(settle(&stream, &delivery, Outcome::Ack).await, Status::Durable);
            got.push(delivery.event.event_id);
        }
    }
    got.sort_unstable();
    assert_eq!(got, ["bad2", "good1"]);
    stop.store(true, Ordering::SeqCst);
    ticking.await.expect("ticked");
    let dead = run.store.dead_letters(run.subscription.no, None, 10).await.expect("read");
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].1.attempts, dead[0].1.reason_code.as_str()), (0, "INTERRUPTED"));
    run.stop().await;
}

async fn receipt_of(store: &DynStore, event_id: &str) -> ReceiptId {
    let heads = store.heads().await.expect("heads");
    for (shard, _) in heads.iter().enumerate() {
        let shard = portero_types::Shard(u8::try_from(shard).expect("few"));
        let page = store.page(portero_store::PageRequest::new(shard, 0, 100)).await.expect("a page");
        for entry in page.entries {
            let event = store.events(&[entry.receipt_id]).await.expect("read").remove(0);
            if event.event_id == event_id {
                return event.receipt_id;
            }
        }
    }
    panic!("{event_id} is not in the log");
}

/// A clock that panics on demand, for a defect in the actor itself.
struct Trap {
    inner: ManualClock,
    armed: AtomicBool,
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        assert!(!self.armed.swap(false, Ordering::SeqCst), "a defect in the actor");
        self.inner.now()
    }
}

/// F39. A panicking actor takes its streams with it; consumers reconnect, and the next actor goes on from what is written.
#[tokio::test(flavor = "multi_thread")]
async fn an_actor_that_panics_ends_its_streams_and_the_next_one_goes_on_from_the_journal() {
    let place = Place::sqlite().await;
    let trap = Arc::new(Trap { inner: ManualClock::at(NOW), armed: AtomicBool::new(false) });
    let options = Options { clock: Some(trap.clone()), ..Options::new("test") };
    let run = Run::start_with(place.open().await, options).await;
    run.accept("a", &["a1", "a2"]).await;
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &first[0], Outcome::Ack).await, Status::Durable);
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["a2"]);

    trap.armed.store(true, Ordering::SeqCst);
    assert_eq!(until_the_end(&mut stream).await.1, EndReason::Broken);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut stream = loop {
        match run.attach_with(run.spec("c")).await {
            Ok(stream) => break stream,
            Err(error) => assert_eq!(error, AttachError::Recovering),
        }
        assert!(tokio::time::Instant::now() < deadline, "no actor starts");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let again = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&again), ["a2"]);
    assert_eq!(settle(&stream, &again[0], Outcome::Ack).await, Status::Durable);
    drop(stream);
    // A stream that was counted twice, or for ever, would hold this up.
    tokio::time::timeout(PATIENCE, run.dispatcher.drain(NOW)).await.expect("no stream is left");
    run.stop().await;
}
