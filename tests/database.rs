//! A database that goes away before, during and after a commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portero_client::Outcome;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{
    Answer, Consumer, Gateway, Kind, Provider, Proxy, Setup, Site, eventually, stripe_event,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway that reaches its Postgres through a proxy only.
async fn behind_a_proxy() -> (Arc<Site>, Proxy, Gateway, Setup) {
    let site = Site::new(Kind::Postgres);
    let proxy = Proxy::start(Site::postgres_address()).await;
    let mut gateway = Gateway::new(&site)
        .set("DATABASE__URL", site.postgres_url_at(Some(proxy.port)))
        .set("EDGE__COMMIT_TIMEOUT", "4s");
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    (site, proxy, gateway, setup)
}

/// How many receipts and log entries an event has, asked beside the gateway.
fn rows(site: &Site, event_id: &str) -> (String, String) {
    let receipts = site.query(&format!("SELECT count(*) FROM receipts WHERE event_id = '{event_id}'"));
    let entries = site.query(&format!(
        "SELECT count(*) FROM log JOIN receipts USING (receipt_id) WHERE event_id = '{event_id}'"
    ));
    (receipts, entries)
}

fn assert_unavailable(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|secs| secs > 0), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_down_before_the_commit_gives_503_and_the_providers_retry_is_accepted() {
    let (site, proxy, gateway, setup) = behind_a_proxy().await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    assert_eq!(provider.send(&stripe_event("evt_first", "entity", 0)).await.status, 200);
    consumer.has_acked(1, PATIENCE).await;

    proxy.cut();
    let signed = provider.sign(&stripe_event("evt_before", "entity", 1));
    for _ in 0..3 {
        assert_unavailable(&provider.post(&signed).await);
    }
    assert_eq!(rows(&site, "evt_before"), ("0".to_owned(), "0".to_owned()));

    proxy.heal();
    assert_eq!(provider.deliver(&signed, PATIENCE).await.field("status"), "accepted");
    consumer.has_acked(2, PATIENCE).await;
    consumer.check_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_before_the_statement_arrives_writes_nothing_and_gives_503() {
    let (site, proxy, gateway, setup) = behind_a_proxy().await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);

    proxy.cut_before("evt_during");
    let signed = provider.sign(&stripe_event("evt_during", "entity", 0));
    assert_unavailable(&provider.post(&signed).await);
    assert!(proxy.has_snapped(), "the statement was under way");
    assert_eq!(rows(&site, "evt_during"), ("0".to_owned(), "0".to_owned()));

    proxy.heal();
    assert_eq!(provider.deliver(&signed, PATIENCE).await.field("status"), "accepted");
    consumer.has_acked(1, PATIENCE).await;
    consumer.check_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_gives_503_and_the_retry_finds_it() {
    let (site, proxy, gateway, setup) = behind_a_proxy().await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);

    proxy.mute_after("evt_after");
    let signed = provider.sign(&stripe_event("evt_after", "entity", 0));
    assert_unavailable(&provider.post(&signed).await);
    assert!(proxy.has_snapped(), "the statement was under way");
    eventually("the row is committed all the same", PATIENCE, async || {
        (rows(&site, "evt_after") == ("1".to_owned(), "1".to_owned())).then_some(())
    })
    .await;

    proxy.heal();
    let retried = provider.deliver(&signed, PATIENCE).await;
    assert_eq!(retried.field("status"), "duplicate", "{retried:?}");
    assert_eq!(provider.send(&stripe_event("evt_next", "entity", 1)).await.field("status"), "accepted");
    consumer.has_acked(2, PATIENCE).await;
    let ids: Vec<String> = consumer.handled().into_iter().map(|handled| handled.event_id).collect();
    assert_eq!(ids, ["evt_after", "evt_next"]);
    assert_eq!(rows(&site, "evt_after"), ("1".to_owned(), "1".to_owned()));
    consumer.check_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_again_and_again_under_load_loses_nothing() {
    const ENTITIES: usize = 20;
    const EVENTS_PER_ENTITY: usize = 50;
    const EVENTS: usize = ENTITIES * EVENTS_PER_ENTITY;
    let (_site, proxy, gateway, setup) = behind_a_proxy().await;
    let consumer = Consumer::start(&gateway).await;
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
    let steps: [(usize, fn(&Proxy)); 3] =
        [(EVENTS / 5, Proxy::cut), (EVENTS / 2, Proxy::blackhole), (EVENTS * 4 / 5, Proxy::cut)];
    for (at, break_it) in steps {
        let what = format!("{at} events are answered");
        eventually(&what, PATIENCE, async || (answered.load(Ordering::SeqCst) >= at).then_some(())).await;
        break_it(&proxy);
        is_refused(&setup.provider(&gateway), at).await;
        proxy.heal();
    }
    let accepted: HashSet<String> = senders.join_all().await.into_iter().flatten().collect();
    assert_eq!(accepted.len(), EVENTS);
    eventually("everything that was answered with 2xx arrives", PATIENCE, async || {
        consumer.receipts().is_superset(&accepted).then_some(())
    })
    .await;
    consumer.check_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_longer_than_a_session_lives_with_an_ack_on_its_way_ends_and_delivery_goes_on() {
    let (site, proxy, gateway, setup) = behind_a_proxy().await;
    let (provider, may_ack) = (setup.provider(&gateway), Arc::new(Semaphore::new(0)));
    let gate = Arc::clone(&may_ack);
    let consumer = Consumer::with(&gateway, "billing", move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.expect("open").forget();
            Outcome::Ack
        }
    })
    .await;
    assert_eq!(provider.send(&stripe_event("evt_held", "entity", 0)).await.status, 200);
    eventually("the event is in hand", PATIENCE, async || (consumer.handled().len() == 1).then_some(()))
        .await;

    proxy.cut();
    may_ack.add_permits(1_000);
    eventually("the session has expired", PATIENCE, async || {
        let alive = site.query("SELECT count(*) FROM replica_sessions WHERE expires_at > clock_timestamp()");
        (alive == "0").then_some(())
    })
    .await;
    proxy.heal();

    for sequence in 1..10 {
        let signed = provider.sign(&stripe_event(&format!("evt_{sequence}"), "entity", sequence));
        assert!(provider.deliver(&signed, PATIENCE).await.is_success());
    }
    consumer.has_acked(10, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
}

/// Waits until an event of its own is refused, so that an outage was seen.
async fn is_refused(provider: &Provider, at: usize) {
    let signed = provider.sign(&stripe_event(&format!("evt_probe_{at}"), &format!("probe-{at}"), 0));
    eventually("the outage is seen", PATIENCE, async || {
        let answer = provider.post(&signed).await;
        (answer.status == 503).then_some(())
    })
    .await;
}
