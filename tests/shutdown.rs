//! SIGTERM: nothing is lost, nothing is counted against consumers.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portero_client::Outcome;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::harness::{Consumer, Gateway, Kind, Setup, Site, eventually, get, stripe_event};
use crate::kinds::on_each_store;

const PATIENCE: Duration = Duration::from_secs(60);
/// Drain time-out (5 s), the journal's last flush (5 s), connections (5 s), and some for a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(25);

on_each_store!(a_stop_under_load_loses_no_event_counts_no_attempt_and_ends_with_0);

async fn a_stop_under_load_loses_no_event_counts_no_attempt_and_ends_with_0(kind: Kind) {
    const ENTITIES: usize = 20;
    const EVENTS_PER_ENTITY: usize = 30;
    const EVENTS: usize = ENTITIES * EVENTS_PER_ENTITY;
    let site = Site::new(kind);
    let mut gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    // The events of every fifth entity are not finished before the stop.
    let (finish, finished) = watch::channel(false);
    let consumer = Consumer::with(&gateway, "billing", move |handled| {
        let mut finished = finished.clone();
        async move {
            if handled.ordering_key.ends_with('0') || handled.ordering_key.ends_with('5') {
                finished.wait_for(|finished| *finished).await.expect("the test lives");
            }
            Outcome::Ack
        }
    })
    .await;
    consumer.is_connected().await;

    let answered = Arc::new(AtomicUsize::new(0));
    let mut senders = JoinSet::new();
    for entity in 0..ENTITIES {
        let (provider, answered) = (setup.provider(&gateway), Arc::clone(&answered));
        senders.spawn(async move {
            let mut receipts = Vec::new();
            for sequence in 0..EVENTS_PER_ENTITY {
                let body =
                    stripe_event(&format!("evt_{entity}_{sequence}"), &format!("entity-{entity}"), sequence);
                receipts.push(provider.deliver(&provider.sign(&body), PATIENCE).await.field("receipt_id"));
                answered.fetch_add(1, Ordering::SeqCst);
            }
            receipts
        });
    }
    eventually("half of the events are answered", PATIENCE, async || {
        (answered.load(Ordering::SeqCst) >= EVENTS / 2 && consumer.acked() > 0).then_some(())
    })
    .await;
    gateway.terminate();
    let status = gateway.ended(ENDS_WITHIN).await;
    assert_eq!(status.code(), Some(0), "{status}");
    gateway.launch().await;
    finish.send_replace(true);

    let accepted: HashSet<String> = senders.join_all().await.into_iter().flatten().collect();
    assert_eq!(accepted.len(), EVENTS);
    consumer.has_acked(EVENTS, PATIENCE).await;
    assert_eq!(consumer.receipts(), accepted);
    consumer.check_promises();
    let counted: Vec<_> = consumer.handled().into_iter().filter(|handled| handled.attempt != 1).collect();
    assert!(counted.is_empty(), "released events came as a first attempt again: {counted:?}");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_gateway_says_that_it_is_not_ready_and_still_serves() {
    let site = Site::new(Kind::Sqlite);
    let mut gateway = Gateway::new(&site).set("SHUTDOWN__DRAIN_DELAY", "2s");
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    let readyz = format!("{}/readyz", gateway.management_url());
    eventually("it is ready", PATIENCE, async || (get(&readyz).await.status == 200).then_some(())).await;
    gateway.terminate();
    eventually("it says that it drains", PATIENCE, async || {
        let answer = get(&readyz).await;
        (answer.status == 503 && answer.text.contains("draining")).then_some(())
    })
    .await;
    assert_eq!(provider.send(&stripe_event("evt_late", "entity", 0)).await.status, 200);
    assert_eq!(gateway.ended(ENDS_WITHIN).await.code(), Some(0));
}
