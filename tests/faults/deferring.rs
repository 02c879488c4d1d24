//! Events that came too early, while gateways are killed and replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portero_client::{Outcome, v1};

use super::PATIENCE;
use crate::harness::{Consumer, Gateway, Kind, Setup, Site, eventually, stripe_event, subscription};

const REFUNDS: [&str; 3] = ["evt_refund_1", "evt_refund_2", "evt_refund_3"];

/// Defers refunds as long as the payment was not seen.
async fn bookkeeper(gateway: &Gateway, is_paid: &Arc<AtomicBool>) -> Consumer {
    let is_paid = Arc::clone(is_paid);
    Consumer::with(gateway, "early", move |handled| {
        let is_paid = Arc::clone(&is_paid);
        async move {
            match handled.event_id.as_str() {
                id if id.starts_with("evt_refund") && !is_paid.load(Ordering::SeqCst) => {
                    Outcome::defer("NO_PAYMENT", "too early")
                }
                "evt_payment" => {
                    is_paid.store(true, Ordering::SeqCst);
                    Outcome::Ack
                }
                _ => Outcome::Ack,
            }
        }
    })
    .await
}

/// Waits until each refund was offered so often.
async fn refunds_were_offered(consumer: &Consumer, times: usize) {
    eventually(&format!("refunds were offered {times} times"), PATIENCE, async || {
        let handled = consumer.handled();
        let offers = |id: &&str| handled.iter().filter(|handled| handled.event_id == **id).count();
        REFUNDS.iter().all(|id| offers(id) >= times).then_some(())
    })
    .await;
}

/// Fails when a round of refunds was not offered in their order.
fn check_rounds(consumer: &Consumer) {
    let handled = consumer.handled();
    let offered: Vec<&str> =
        handled.iter().map(|handled| handled.event_id.as_str()).filter(|id| REFUNDS.contains(id)).collect();
    assert_eq!(offered.len() % REFUNDS.len(), 0, "{offered:?}");
    for round in offered.chunks(REFUNDS.len()) {
        assert_eq!(round, REFUNDS, "of {offered:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deferred_events_survive_takeover_and_restart_and_come_in_order_after_each_later_ack() {
    let site = Site::new(Kind::Postgres);
    let (mut first, mut second) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let mut setup = Setup::new(&first).await;
    setup.admin.create_subscription(subscription("early", |_| {})).await.expect("made");
    second.is_up_to_date().await;
    let is_paid = Arc::<AtomicBool>::default();

    let mut sequence = 0;
    let mut send = async |setup: &Setup, gateway: &Gateway, id: &str| {
        sequence += 1;
        let answer = setup.provider(gateway).send(&stripe_event(id, "invoice", sequence)).await;
        assert_eq!(answer.field("status"), "accepted", "{answer:?}");
    };
    let consumer = bookkeeper(&first, &is_paid).await;
    for id in REFUNDS {
        send(&setup, &first, id).await;
    }
    refunds_were_offered(&consumer, 1).await;
    // A later event of the entity goes on, and after its ack they are offered again.
    send(&setup, &first, "evt_note_1").await;
    refunds_were_offered(&consumer, 2).await;
    check_rounds(&consumer);
    assert_eq!(consumer.acked(), 1, "the note");

    // Takeover: the gateway is killed, and the consumer goes to the other one, which waits for the session to expire.
    first.kill();
    drop(consumer);
    let consumer = bookkeeper(&second, &is_paid).await;
    send(&setup, &second, "evt_note_2").await;
    refunds_were_offered(&consumer, 2).await;
    check_rounds(&consumer);

    // Restart in one place, and at last the payment.
    second.kill();
    first.launch().await;
    second.launch().await;
    refunds_were_offered(&consumer, 3).await;
    send(&setup, &second, "evt_payment").await;
    consumer.has_acked(2 + REFUNDS.len(), PATIENCE).await;
    refunds_were_offered(&consumer, 4).await;
    check_rounds(&consumer);

    let letters = v1::ListDeadLettersRequest {
        parent: "subscriptions/early".to_owned(),
        ..v1::ListDeadLettersRequest::default()
    };
    let mut admin = second.admin().await;
    let letters = admin.list_dead_letters(letters).await.expect("a page").into_inner();
    assert_eq!(letters.dead_letters, [], "being too early counts against nothing");
    assert_eq!(site.query("SELECT count(*) FROM deferred_events"), "0");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_event_becomes_a_dead_letter_at_its_deadline_even_if_its_gateway_was_killed_meanwhile() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let deadline = prost_types::Duration { seconds: 5, nanos: 0 };
    let request = subscription("early", |early| early.defer_deadline = Some(deadline));
    setup.admin.create_subscription(request).await.expect("made");
    let consumer = bookkeeper(&gateway, &Arc::default()).await;
    let answer = setup.provider(&gateway).send(&stripe_event("evt_refund_1", "invoice", 1)).await;
    assert_eq!(answer.field("status"), "accepted", "{answer:?}");
    eventually("it is deferred", PATIENCE, async || {
        (site.query("SELECT count(*) FROM deferred_events") == "1").then_some(())
    })
    .await;
    gateway.kill();
    gateway.launch().await;
    let mut admin = gateway.admin().await;
    let letter = eventually("it is a dead letter", PATIENCE, async || {
        let request = v1::ListDeadLettersRequest {
            parent: "subscriptions/early".to_owned(),
            ..v1::ListDeadLettersRequest::default()
        };
        admin.list_dead_letters(request).await.expect("a page").into_inner().dead_letters.pop()
    })
    .await;
    assert_eq!((letter.reason_code.as_str(), letter.attempts), ("DEFER_DEADLINE", 0), "{letter:?}");
    assert!(letter.reason_text.contains("NO_PAYMENT"), "{letter:?}");
    let waited = Duration::from_secs(30);
    eventually("nothing of it is left", waited, async || {
        (site.query("SELECT count(*) FROM deferred_events") == "0").then_some(())
    })
    .await;
    consumer.stop().await;
}
