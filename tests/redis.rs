//! Redis only saves work: absent, killed, empty or flushed, it changes no outcome.

use std::collections::HashSet;
use std::time::Duration;

use crate::harness::{
    Consumer, Gateway, Kind, PrivateRedis, Provider, Setup, Site, eventually, redis_url, stripe_event,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Sends each event three times; gives the receipts. Exactly the first of each is accepted.
async fn send_thrice(provider: &Provider, events: std::ops::Range<usize>) -> HashSet<String> {
    let mut receipts = HashSet::new();
    for event in events {
        let body = stripe_event(&format!("evt_{event}"), &format!("entity-{}", event % 7), event / 7);
        let signed = provider.sign(&body);
        for expected in ["accepted", "duplicate", "duplicate"] {
            let answer = provider.post(&signed).await;
            assert_eq!((answer.status, answer.field("status").as_str()), (200, expected), "event {event}");
            receipts.insert(answer.field("receipt_id"));
        }
    }
    receipts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_flushed_killed_and_started_again_neither_loses_nor_repeats_an_event() {
    const STEP: usize = 70;
    let mut redis = PrivateRedis::start().await;
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::new(&site).set("REDIS__URL", redis.url());
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);

    let mut receipts = send_thrice(&provider, 0..STEP).await;
    assert!(redis.keys() > 0, "committed events are remembered");
    redis.flush();
    receipts.extend(send_thrice(&provider, STEP..2 * STEP).await);
    redis.kill();
    receipts.extend(send_thrice(&provider, 2 * STEP..3 * STEP).await);
    redis.restart().await;
    receipts.extend(send_thrice(&provider, 3 * STEP..4 * STEP).await);
    assert_eq!(receipts.len(), 4 * STEP, "one receipt per event, whatever became of Redis");

    // What the first ones were is still known, by the database alone.
    let again = provider.post(&provider.sign(&stripe_event("evt_0", "entity-0", 0))).await;
    assert_eq!(again.field("status"), "duplicate");

    consumer.has_acked(4 * STEP, PATIENCE).await;
    assert_eq!(consumer.receipts(), receipts);
    assert_eq!(consumer.handled().len(), 4 * STEP, "each event is delivered once");
    consumer.check_promises();
    let accepted = gateway.metric("portero_ingress_events_total", &["outcome=\"accepted\""]).await;
    let duplicates = gateway.metric("portero_ingress_events_total", &["outcome=\"duplicate\""]).await;
    assert_eq!((accepted, duplicates), (280.0, 561.0), "the counts are exact");
    for (event_id, expected) in [("evt_0", 3), ("evt_69", 2), ("evt_140", 2), ("evt_279", 2)] {
        let counted = eventually("repeats are counted on the receipt", PATIENCE, async || {
            let counted = setup.receipt(event_id).await.expect("a receipt").duplicates;
            (counted >= expected).then_some(counted)
        })
        .await;
        assert_eq!(counted, expected, "{event_id}");
    }
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_never_answers_delays_nobody() {
    let site = Site::new(Kind::Sqlite);
    // A documented address that nobody has: connections to it hang.
    let mut gateway = Gateway::new(&site).set("REDIS__URL", "redis://192.0.2.1:6379");
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    let receipts = send_thrice(&provider, 0..21).await;
    consumer.has_acked(21, PATIENCE).await;
    assert_eq!(consumer.receipts(), receipts);
    consumer.check_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_installations_on_one_redis_do_not_see_each_others_events() {
    let sites = [Site::new(Kind::Sqlite), Site::new(Kind::Postgres)];
    for site in &sites {
        let mut gateway = Gateway::new(site).set("REDIS__URL", redis_url());
        gateway.launch().await;
        let setup = Setup::new(&gateway).await;
        let consumer = Consumer::start(&gateway).await;
        let receipts = send_thrice(&setup.provider(&gateway), 0..7).await;
        consumer.has_acked(7, PATIENCE).await;
        assert_eq!(consumer.receipts(), receipts);
    }
}
