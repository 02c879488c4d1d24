//! The stream's promises, outcome by outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use portero_client::Outcome;
use portero_client::v1::{self, subscribe_request};
use tonic::Code;

use crate::harness::{
    Bare, Consumer, Gateway, Kind, Setup, Site, eventually, next_delivery, stripe_event, subscription,
};
use crate::kinds::on_each_store;

const PATIENCE: Duration = Duration::from_secs(60);

fn ids(consumer: &Consumer) -> Vec<String> {
    consumer.handled().into_iter().map(|handled| handled.event_id).collect()
}

async fn dead_letters(setup: &mut Setup) -> Vec<v1::DeadLetter> {
    let request =
        v1::ListDeadLettersRequest { parent: "subscriptions/billing".to_owned(), ..Default::default() };
    setup.admin.list_dead_letters(request).await.expect("a list").into_inner().dead_letters
}

on_each_store!(a_retried_event_comes_again_before_its_entity_goes_on);

async fn a_retried_event_comes_again_before_its_entity_goes_on(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    for (number, id) in ["evt_0", "evt_1"].iter().enumerate() {
        assert_eq!(provider.send(&stripe_event(id, "entity", number)).await.status, 200);
    }
    assert_eq!(provider.send(&stripe_event("evt_other", "other", 0)).await.status, 200);
    let consumer = Consumer::with(&gateway, "billing", |handled| async move {
        if handled.event_id == "evt_0" && handled.attempt < 3 {
            Outcome::retry_after(Duration::from_millis(300), "NOT_YET", "the ledger is closed")
        } else {
            Outcome::Ack
        }
    })
    .await;
    consumer.has_acked(3, PATIENCE).await;
    let of_entity: Vec<(String, u32)> = consumer
        .handled()
        .into_iter()
        .filter(|handled| handled.ordering_key == "stripe:entity")
        .map(|handled| (handled.event_id, handled.attempt))
        .collect();
    let expected = [("evt_0", 1), ("evt_0", 2), ("evt_0", 3), ("evt_1", 1)];
    assert_eq!(of_entity, expected.map(|(id, attempt)| (id.to_owned(), attempt)));
    let all = ids(&consumer);
    let place = |id: &str| all.iter().position(|known| known == id);
    assert!(place("evt_other") < place("evt_1"), "a failing entity delays only itself: {all:?}");
}

on_each_store!(a_rejected_event_and_one_that_failed_too_often_become_dead_letters_with_their_reasons);

async fn a_rejected_event_and_one_that_failed_too_often_become_dead_letters_with_their_reasons(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let name = "subscriptions/billing".to_owned();
    let request = v1::UpdateSubscriptionRequest {
        subscription: Some(v1::Subscription { name, attempts_max: 2, ..v1::Subscription::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["attempts_max".to_owned()] }),
    };
    setup.admin.update_subscription(request).await.expect("changed");
    let provider = setup.provider(&gateway);
    for (id, entity, number) in
        [("evt_bad", "a", 0), ("evt_after", "a", 1), ("evt_weak", "b", 0), ("evt_last", "b", 1)]
    {
        assert_eq!(provider.send(&stripe_event(id, entity, number)).await.status, 200);
    }
    let consumer = Consumer::with(&gateway, "billing", |handled| async move {
        match handled.event_id.as_str() {
            "evt_bad" => Outcome::reject("NO_SUCH_ORDER", "order 7 is unknown"),
            "evt_weak" => Outcome::retry_after(Duration::from_millis(100), "DB_DOWN", "no connection"),
            _ => Outcome::Ack,
        }
    })
    .await;
    consumer.has_acked(2, PATIENCE).await;
    let mut letters = eventually("both are listed", PATIENCE, async || {
        let letters = dead_letters(&mut setup).await;
        (letters.len() == 2).then_some(letters)
    })
    .await;
    letters.sort_by(|a, b| b.reason_code.cmp(&a.reason_code));
    let found: Vec<_> = letters
        .iter()
        .map(|letter| (letter.reason_code.as_str(), letter.reason_text.as_str(), letter.attempts))
        .collect();
    assert_eq!(found, [("NO_SUCH_ORDER", "order 7 is unknown", 1), ("DB_DOWN", "no connection", 2)]);
    let bad = setup.receipt("evt_bad").await.expect("a receipt");
    assert_eq!(letters[0].receipt_id, bad.receipt_id);
}

on_each_store!(a_deferred_event_steps_aside_and_comes_again_after_a_later_ack_of_its_entity);

async fn a_deferred_event_steps_aside_and_comes_again_after_a_later_ack_of_its_entity(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    for (number, id) in ["evt_refund", "evt_payment", "evt_note"].iter().enumerate() {
        assert_eq!(provider.send(&stripe_event(id, "order", number)).await.status, 200);
    }
    let paid = Arc::new(AtomicU32::new(0));
    let consumer = Consumer::with(&gateway, "billing", move |handled| {
        let paid = Arc::clone(&paid);
        async move {
            match handled.event_id.as_str() {
                "evt_refund" if paid.load(Ordering::SeqCst) == 0 => Outcome::defer("NO_PAYMENT", "too early"),
                "evt_payment" => {
                    paid.fetch_add(1, Ordering::SeqCst);
                    Outcome::Ack
                }
                _ => Outcome::Ack,
            }
        }
    })
    .await;
    consumer.has_acked(3, PATIENCE).await;
    let all = ids(&consumer);
    assert_eq!(all[..2], ["evt_refund", "evt_payment"]);
    assert_eq!(all.iter().filter(|id| *id == "evt_refund").count(), 2, "{all:?}");
}

on_each_store!(work_that_was_finished_as_the_stream_broke_is_settled_by_a_call_and_not_done_again);

async fn work_that_was_finished_as_the_stream_broke_is_settled_by_a_call_and_not_done_again(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    assert_eq!(provider.send(&stripe_event("evt_done", "entity", 0)).await.status, 200);
    let mut bare = Bare::new(&gateway, "billing").await;
    let (sender, mut stream) = bare.open(v1::Flow::default()).await;
    let offered = next_delivery(&mut stream).await;
    drop((sender, stream));
    let status = bare.ack(&offered.token).await;
    let recorded = [v1::SettlementStatus::Durable, v1::SettlementStatus::DurableLate];
    assert!(recorded.contains(&status), "{status:?}");
    assert_eq!(bare.ack(&offered.token).await, v1::SettlementStatus::Already);
    let nothing = bytes::Bytes::from_static(b"nothing");
    assert_eq!(bare.ack(&nothing).await, v1::SettlementStatus::UnknownToken);

    assert_eq!(provider.send(&stripe_event("evt_next", "entity", 1)).await.status, 200);
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(1, PATIENCE).await;
    assert_eq!(ids(&consumer), ["evt_next"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_hurts_no_other_stream() {
    const EVENTS: usize = 200;
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    setup.admin.create_subscription(subscription("stuck", |_| {})).await.expect("a subscription");
    let mut stuck = Bare::new(&gateway, "stuck").await;
    let greedy = v1::Flow { max_inflight_events: 10_000, max_inflight_bytes: 1 << 40 };
    let never_read = stuck.open(greedy).await;
    let consumer = Consumer::start(&gateway).await;
    let provider = setup.provider(&gateway);
    let padding = "x".repeat(100_000);
    for event in 0..EVENTS {
        let (id, entity) = (format!("evt_{event}"), format!("entity-{}", event % 50));
        let body = serde_json::json!({ "id": id, "type": "a", "padding": padding, "data": { "object": { "id": entity } } });
        assert_eq!(provider.send(body.to_string().as_bytes()).await.status, 200);
    }
    consumer.has_acked(EVENTS, PATIENCE).await;
    consumer.check_promises();
    drop(never_read);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_does_not_begin_with_hello_is_told_so() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let _setup = Setup::new(&gateway).await;
    let mut bare = Bare::new(&gateway, "billing").await;
    let (_sender, mut stream) = bare.open_with(subscribe_request::Frame::Heartbeat(v1::Heartbeat {})).await;
    let refused = stream.message().await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");

    let mut other = Bare::new(&gateway, "billing").await;
    other.subscription = "subscriptions/other".to_owned();
    let (_sender, mut stream) = other.open(v1::Flow::default()).await;
    let refused = stream.message().await.expect_err("refused");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
}
