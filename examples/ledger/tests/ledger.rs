//! The ledger on a real SQLite file, fed with deliveries as a gateway would offer them.

use bytes::Bytes;
use portero_client::{Delivery, Outcome, v1};
use portero_example_ledger::scenario::{self, Twist};
use portero_example_ledger::{Applied, Cents, EventKind, Ledger, OrderId, PaymentEvent, State, reconcile};

/// What a gateway makes of an event: the same receipt however often it is offered.
fn delivery(event: &PaymentEvent, position: u64) -> Delivery {
    let event = v1::Event {
        receipt_id: format!("rcpt_{}", event.id),
        tenant: "shop".to_owned(),
        provider: "pagora".to_owned(),
        event_id: event.id.clone(),
        ordering_key: format!("pagora:{}", event.order_id),
        body: Bytes::from(event.to_json()),
        ..v1::Event::default()
    };
    Delivery::detached(v1::Delivery { position, event: Some(event), ..v1::Delivery::default() })
}

fn event(kind: EventKind, cents: i64) -> PaymentEvent {
    let order_id = OrderId("order-1".to_owned());
    PaymentEvent { id: format!("evt_{kind}"), kind, order_id, amount_cents: Cents(cents) }
}

async fn on_file() -> (tempfile::TempDir, Ledger) {
    let folder = tempfile::tempdir().expect("folder");
    let ledger = Ledger::open(&folder.path().join("ledger.db")).await.expect("opens");
    (folder, ledger)
}

#[tokio::test]
async fn an_event_that_comes_again_is_acked_and_changes_nothing() {
    let (folder, ledger) = on_file().await;
    let created = delivery(&event(EventKind::OrderCreated, 500), 1);
    let approved = delivery(&event(EventKind::PaymentApproved, 500), 2);
    assert_eq!(ledger.handle(created).await, Outcome::Ack);
    assert!(matches!(ledger.apply(&approved).await, Ok(Applied::Now(_))));
    assert!(matches!(ledger.apply(&approved).await, Ok(Applied::Before)));
    ledger.close().await;

    // Not even after a restart.
    let ledger = Ledger::open(&folder.path().join("ledger.db")).await.expect("opens again");
    assert!(matches!(ledger.apply(&approved).await, Ok(Applied::Before)));
    let account = ledger.accounts().await.expect("accounts")[&OrderId("order-1".to_owned())];
    assert_eq!((account.state, account.credited), (State::Paid, Cents(500)));
    ledger.close().await;
}

#[tokio::test]
async fn copies_at_the_same_moment_are_credited_once() {
    let (_folder, ledger) = on_file().await;
    ledger.open_orders([(OrderId("order-1".to_owned()), Cents(500))]).await.expect("opened");
    let approved = delivery(&event(EventKind::PaymentApproved, 500), 1);
    let copies: Vec<_> = (0..8)
        .map(|_| {
            let (ledger, approved) = (ledger.clone(), approved.clone());
            tokio::spawn(async move { ledger.apply(&approved).await })
        })
        .collect();
    let mut applied = 0;
    for copy in copies {
        if matches!(copy.await.expect("no panic").expect("applied or known"), Applied::Now(_)) {
            applied += 1;
        }
    }
    assert_eq!(applied, 1);
    ledger.close().await;
}

#[tokio::test]
async fn a_refund_before_its_payment_is_deferred_and_applies_when_it_is_offered_again() {
    let ledger = Ledger::in_memory().await.expect("opens");
    ledger.open_orders([(OrderId("order-1".to_owned()), Cents(500))]).await.expect("opened");
    let refunded = delivery(&event(EventKind::PaymentRefunded, 500), 1);
    let approved = delivery(&event(EventKind::PaymentApproved, 500), 2);
    let early = ledger.handle(refunded.clone()).await;
    assert!(matches!(&early, Outcome::Defer { code, .. } if code == "TOO_EARLY"), "{early:?}");
    assert_eq!(ledger.handle(approved).await, Outcome::Ack);
    assert_eq!(ledger.handle(refunded).await, Outcome::Ack);
    let account = ledger.accounts().await.expect("accounts")[&OrderId("order-1".to_owned())];
    assert_eq!((account.state, account.credited), (State::Refunded, Cents(0)));
}

#[tokio::test]
async fn what_can_never_be_right_is_rejected_and_leaves_no_trace() {
    let ledger = Ledger::in_memory().await.expect("opens");
    ledger.open_orders([(OrderId("order-1".to_owned()), Cents(500))]).await.expect("opened");
    let before = ledger.accounts().await.expect("accounts");
    let wrong_amount = ledger.handle(delivery(&event(EventKind::PaymentApproved, 499), 1)).await;
    assert!(matches!(&wrong_amount, Outcome::Reject { code, .. } if code == "WRONG_AMOUNT"));
    let created_again = ledger.handle(delivery(&event(EventKind::OrderCreated, 500), 2)).await;
    assert!(matches!(&created_again, Outcome::Reject { code, .. } if code == "INVALID_TRANSITION"));
    let no_event = Delivery::detached(v1::Delivery::default());
    assert!(matches!(ledger.handle(no_event).await, Outcome::Reject { code, .. } if code == "MALFORMED"));
    assert_eq!(ledger.accounts().await.expect("accounts"), before);
}

#[tokio::test]
async fn a_database_that_is_away_means_a_retry() {
    let (_folder, ledger) = on_file().await;
    ledger.close().await;
    let outcome = ledger.handle(delivery(&event(EventKind::OrderCreated, 500), 1)).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
}

#[tokio::test]
async fn the_laboratory_ends_clean_behind_a_gateway() {
    let ledger = Ledger::in_memory().await.expect("opens");
    ledger.open_orders(scenario::orders()).await.expect("opened");
    let mut deferred = Vec::new();
    for (planned, position) in scenario::deliveries().iter().zip(1..) {
        // The gateway lets neither forgeries nor replays through; duplicates are offered here to test the inbox too.
        if matches!(planned.twist, Twist::Forged | Twist::ReplayAfter(_)) {
            continue;
        }
        let offer = delivery(&planned.event, position);
        match ledger.handle(offer.clone()).await {
            Outcome::Ack => {}
            Outcome::Defer { .. } => deferred.push(offer),
            outcome @ (Outcome::Retry { .. } | Outcome::Release | Outcome::Reject { .. }) => {
                panic!("{:?}: {outcome:?}", planned.event)
            }
        }
    }
    assert_eq!(deferred.len(), 1);
    for offer in deferred {
        assert_eq!(ledger.handle(offer).await, Outcome::Ack);
    }
    let accounts = ledger.accounts().await.expect("accounts");
    assert!(reconcile(&scenario::provider_truth(), &accounts).is_clean());
}
