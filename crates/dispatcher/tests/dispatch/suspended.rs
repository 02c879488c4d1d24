//! While a session is not trusted nothing is done, and that costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portero_dispatcher::{DeliveryToken, StreamSpec, Token};
use portero_store::testing::fixture::NOW;
use portero_types::{Clock, Epoch, LaneNo, Timestamp};

use crate::faulty::Faulty;
use crate::support::{Options, PATIENCE, Place, Run, until};

/// Counts how often it is read: an actor that goes round reads it each time.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        self.0.fetch_add(1, Ordering::SeqCst);
        NOW
    }
}

const CONSUMERS: usize = 20;

/// A gateway whose session cannot be renewed any more.
async fn suspended() -> (Run, Arc<Faulty>, Arc<Counting>) {
    let place = Place::sqlite().await;
    let store = place.open().await;
    let (faulty, clock) = (Faulty::new(store.clone()), Arc::new(Counting::default()));
    let options = Options {
        session_ttl: Duration::from_millis(400),
        deliveries: Some(faulty.clone()),
        clock: Some(clock.clone()),
        ..Options::new("test")
    };
    let run = Run::start_with(store, options).await;
    faulty.renew_gate.close();
    until("nobody trusts the session", async || !run.dispatcher.is_alive()).await;
    (run, faulty, clock)
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_cannot_be_claimed_yet_are_waited_for_without_going_round() {
    let (run, faulty, clock) = suspended().await;
    let _stream = run.attach("c0").await;
    // Each of these takes a turn of the actor; an actor that goes round takes thousands beside them.
    let before = clock.0.load(Ordering::SeqCst);
    let mut streams = Vec::new();
    for n in 1..=CONSUMERS {
        streams.push(run.attach(&format!("c{n}")).await);
    }
    let read = clock.0.load(Ordering::SeqCst) - before;
    assert!(read < CONSUMERS * 20, "the clock was read {read} times while {CONSUMERS} consumers came");
    faulty.renew_gate.open();
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_with_work_in_its_hands_is_welcomed_in_time_and_resumes_nothing() {
    let (run, faulty, clock) = suspended().await;
    let token = Token { epoch: Epoch(1), position: 1, delivery: 1 };
    let unsettled = vec![DeliveryToken { lane: LaneNo(0), token }];
    let attached = run.attach_with(StreamSpec { unsettled, ..run.spec("c") });
    let stream = tokio::time::timeout(PATIENCE / 3, attached).await.expect("in time").expect("attached");
    assert!(stream.resumed().is_empty());
    assert!(clock.0.load(Ordering::SeqCst) < 1_000, "it went round meanwhile");
    faulty.renew_gate.open();
    run.stop().await;
}
