//! What cannot be opened, and what nobody can open any more.

use portero_dispatcher::{Outcome, Status};
use portero_store::testing::fixture;

use crate::support::{Place, Run, accept, deliveries, ids, settle, until};

/// An event that is sealed with a version of the tenant's key that does not exist.
async fn accept_unreadable(run: &Run, event_id: &str, entity: &str) {
    let tenant = run.store.tenant(&fixture::tenant_id("acme")).await.expect("read").expect("there");
    let source = run.store.source(&fixture::tenant_id("acme"), &fixture::source_id("stripe-eu")).await;
    let source = source.expect("read").expect("there");
    let mut event = fixture::event_of(&tenant, &source, event_id, entity);
    let mut content = event.content.to_vec();
    content[2] = 7;
    event.content = content.into();
    run.store.accept(&[event]).await.expect("accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_an_unknown_key_waits_with_its_entity_and_others_go_on() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    accept_unreadable(&run, "bad", "a").await;
    accept(&run.store, "a", &["behind"]).await;
    accept(&run.store, "b", &["good"]).await;
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&got), ["good"]);
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    until("the entity is parked", || async {
        let listed = run.store.parked_entities(run.subscription.no, None, 10).await.expect("read");
        listed.iter().any(|parked| (parked.reason_code.as_str(), parked.attempts) == ("BODY_UNREADABLE", 0))
    })
    .await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_tenants_events_end_as_expired() {
    let place = Place::sqlite().await;
    let run = Run::start(&place).await;
    accept(&run.store, "a", &["a1", "a2"]).await;
    run.store.erase_tenant(&fixture::tenant_id("acme"), &fixture::tester()).await.expect("erased");
    let _stream = run.attach("c").await;
    until("both are counted", || async {
        let found = run.store.subscription(&run.subscription.id).await.expect("read").expect("there");
        found.expired == 2
    })
    .await;
    run.stop().await;
}
