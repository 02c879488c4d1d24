//! What a subscription's filter lets through.

use portero_dispatcher::{Outcome, Status, StreamSpec};
use portero_store::testing::fixture;
use portero_store::{NewSubscription, StartAt};

use crate::support::{Options, Place, Run, deliveries, ids, settle};

/// A source can be created at another gateway and have events before this one hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_source_that_this_gateway_has_not_heard_of_are_not_passed_over() {
    let place = Place::sqlite().await;
    let store = place.open().await;
    let named = NewSubscription {
        sources: vec![fixture::source_id("stripe-eu")],
        start_at: StartAt::Earliest,
        ..fixture::new_subscription("stripe-only")
    };
    let named = store.create_subscription(named, &fixture::tester()).await.expect("a subscription");
    let run = Run::start_with(store, Options::new("test")).await;
    run.accept("a", &["a1"]).await;
    let spec = StreamSpec { subscription: named.no, ..run.spec("c") };
    let mut stream = run.attach_with(spec).await.expect("attached");
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);

    let tenant =
        run.store.create_tenant(fixture::new_tenant("beta"), &fixture::tester()).await.expect("a tenant");
    let source = run
        .store
        .create_source(fixture::new_source("beta", "stripe-eu"), &fixture::tester())
        .await
        .expect("a source");
    let event = fixture::event_of(&tenant, &source, "b1", "b");
    run.store.accept(&[event]).await.expect("accepted");
    run.dispatcher.hint();
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&got), ["b1"]);
    run.stop().await;
}
