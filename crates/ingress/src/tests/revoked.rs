//! A gateway that has not heard that a secret is revoked, over a store that has.

use portero_types::{SecretNo, SourceNo};

use super::deliver::Perfect;
use super::*;

async fn gateway() -> (Gateway, Arc<Perfect>) {
    let prefilter = Arc::new(Perfect::default());
    let gateway = Gateway::with(EdgeConfig::default(), FakeStore::open(), Arc::clone(&prefilter) as _).await;
    (gateway, prefilter)
}

fn assert_revoked(reply: &Reply) {
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("SECRET_REVOKED")), "{reply:?}");
}

#[tokio::test]
async fn what_the_store_refuses_for_its_secret_is_refused_like_a_bad_signature_and_its_neighbours_go_on() {
    let (gateway, _) = gateway().await;
    gateway.store.with(|state| state.revoked.insert(SecretNo(1)));
    assert_revoked(&gateway.deliver(1, &stripe_event("evt_1")).await);
    assert_eq!(gateway.stored(), Vec::<String>::new());
    gateway.store.with(|state| state.revoked.clear());
    assert_eq!(gateway.deliver(1, &stripe_event("evt_1")).await.json()["status"], "accepted");
    gateway.stop().await;
}

#[tokio::test]
async fn what_the_store_refuses_for_its_source_is_answered_like_an_unknown_url() {
    let (gateway, _) = gateway().await;
    let unknown = gateway.post(99, &[], &stripe_event("evt_1")).await;
    gateway.store.with(|state| state.deleted.insert(SourceNo(1)));
    let deleted = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!((deleted.status, deleted.body), (404, unknown.body));
    assert_eq!(gateway.stored(), Vec::<String>::new());
    assert_eq!(gateway.edge.0.parts.secret_uses.counted(SecretNo(1)), 0);
    gateway.stop().await;
}

#[tokio::test]
async fn a_repeat_is_answered_without_the_store_only_while_the_configuration_is_new() {
    let (gateway, prefilter) = gateway().await;
    assert_eq!(gateway.deliver(1, &stripe_event("evt_1")).await.status, 200);
    while prefilter.0.lock().expect("not poisoned").is_empty() {
        tokio::task::yield_now().await;
    }
    gateway.store.with(|state| state.revoked.insert(SecretNo(1)));
    gateway.machine.advance(Duration::from_millis(1_001));
    assert_revoked(&gateway.deliver(1, &stripe_event("evt_1")).await);
    gateway.stop().await;
}

#[tokio::test]
async fn each_request_that_is_taken_is_counted_for_its_secret() {
    let (gateway, _) = gateway().await;
    for id in ["evt_1", "evt_1", "evt_2"] {
        assert_eq!(gateway.deliver(1, &stripe_event(id)).await.status, 200);
    }
    let forged = gateway.post(1, &[], &stripe_event("evt_3")).await;
    assert_eq!(forged.status, 401);
    gateway.store.with(|state| state.revoked.insert(SecretNo(1)));
    assert_revoked(&gateway.deliver(1, &stripe_event("evt_4")).await);
    assert_eq!(gateway.edge.0.parts.secret_uses.counted(SecretNo(1)), 3);
    gateway.stop().await;
}
