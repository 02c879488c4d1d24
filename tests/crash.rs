//! A gateway that is killed under load, with a consumer attached.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::harness::{Consumer, Gateway, Kind, Provider, Setup, Site, eventually, stripe_event};
use crate::kinds::on_each_store;

const ENTITIES: usize = 200;
const EVENTS_PER_ENTITY: usize = 50;
const EVENTS: usize = ENTITIES * EVENTS_PER_ENTITY;
/// How many events were answered with 2xx when the gateway is killed.
const KILLS: [usize; 3] = [EVENTS / 8, EVENTS / 2, EVENTS - EVENTS / 8];
const PATIENCE: Duration = Duration::from_secs(120);

on_each_store!(
    a_killed_gateway_loses_nothing_keeps_each_entitys_order_and_repeats_nothing_that_was_durably_acked
);

async fn a_killed_gateway_loses_nothing_keeps_each_entitys_order_and_repeats_nothing_that_was_durably_acked(
    kind: Kind,
) {
    let site = Site::new(kind);
    let mut gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let consumer = Consumer::start(&gateway).await;
    consumer.is_connected().await;

    let answered = Arc::new(AtomicUsize::new(0));
    let mut senders = JoinSet::new();
    for entity in 0..ENTITIES {
        senders.spawn(send_all(setup.provider(&gateway), entity, Arc::clone(&answered)));
    }
    for (kill, at) in KILLS.into_iter().enumerate() {
        eventually(&format!("{at} events are answered"), PATIENCE, async || {
            (answered.load(Ordering::SeqCst) >= at && consumer.connections() > kill).then_some(())
        })
        .await;
        gateway.kill();
        gateway.launch().await;
    }
    let accepted: HashSet<String> = senders.join_all().await.into_iter().flatten().collect();
    assert_eq!(accepted.len(), EVENTS, "each event has one receipt of its own");

    consumer.has_acked(EVENTS, PATIENCE).await;
    assert_eq!(consumer.receipts(), accepted, "exactly the events that were answered with 2xx arrive");
    consumer.check_promises();
    assert!(consumer.connections() > KILLS.len(), "the consumer was connected before and after each kill");

    // What is durable is so for a gateway that starts anew, too.
    gateway.kill();
    gateway.launch().await;
    let late = setup.provider(&gateway).send(&stripe_event("evt_late", "entity-late", 0)).await;
    assert_eq!(late.status, 200);
    consumer.has_acked(EVENTS + 1, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
}

/// Sends an entity's events one after the other, each until it is answered with 2xx; gives their receipts.
async fn send_all(provider: Provider, entity: usize, answered: Arc<AtomicUsize>) -> Vec<String> {
    let mut receipts = Vec::with_capacity(EVENTS_PER_ENTITY);
    for sequence in 0..EVENTS_PER_ENTITY {
        let body = stripe_event(&format!("evt_{entity}_{sequence}"), &format!("entity-{entity}"), sequence);
        let answer = provider.deliver(&provider.sign(&body), PATIENCE).await;
        receipts.push(answer.field("receipt_id"));
        answered.fetch_add(1, Ordering::SeqCst);
    }
    receipts
}
