//! Accepting, while connections break and the database is slow.

use std::time::Duration;

use tokio::task::JoinSet;

use super::{PATIENCE, one_gateway, send};
use crate::harness::{
    Consumer, Gateway, Kind, Load, Proxy, Setup, Site, eventually, psql_for_long, stripe_event,
};

/// F4, on the provider's side of the gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_lost_on_its_way_to_the_provider_is_given_again_with_the_same_receipt() {
    let (site, gateway, setup) = one_gateway().await;
    let wire = Proxy::start(gateway.edge_address()).await;
    let mut provider = setup.provider(&gateway);
    provider.url = format!("{}{}", wire.url(), setup.stripe.path);
    let signed = provider.sign(&stripe_event("evt_unheard", "entity", 0));

    wire.mute_after("evt_unheard");
    let unheard = tokio::spawn({
        let (provider, signed) = (provider.clone(), signed.clone());
        async move { provider.try_post(&signed).await }
    });
    eventually("the event is committed", PATIENCE, async || {
        (site.query("SELECT count(*) FROM receipts WHERE event_id = 'evt_unheard'") == "1").then_some(())
    })
    .await;
    wire.sever();
    assert!(unheard.await.expect("no panic").is_none(), "the provider heard nothing");
    wire.heal();

    let again = provider.post(&signed).await;
    assert_eq!((again.status, again.field("status").as_str()), (200, "duplicate"), "{again:?}");
    let third = provider.post(&signed).await;
    assert_eq!(again.field("receipt_id"), third.field("receipt_id"));
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(1, PATIENCE).await;
    assert!(consumer.receipts().contains(&again.field("receipt_id")));
    consumer.stop().await;
}

/// F6: that a held snapshot slows nothing down is a matter of measuring; that it changes nothing is held here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_held_open_under_load_changes_no_outcome() {
    const EVENTS: usize = 1_000;
    let (site, gateway, setup) = one_gateway().await;
    let consumer = Consumer::start(&gateway).await;
    let snapshot = psql_for_long(
        &site.database_url(),
        &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM log", "SELECT pg_sleep(300)"],
    );
    let held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE \
                'SELECT pg_sleep%' AND backend_xmin IS NOT NULL";
    eventually("the snapshot is held", PATIENCE, async || (site.query(held) == "1").then_some(())).await;
    let receipts = send(&setup.provider(&gateway), 0..EVENTS, 20).await;
    consumer.has_acked(EVENTS, PATIENCE).await;
    assert_eq!(site.query(held), "1", "the snapshot was held all the time");
    assert_eq!(consumer.receipts(), receipts);
    consumer.check_promises();
    consumer.stop().await;
    drop(snapshot);
}

/// F7: commits take longer, for the one who holds the shard's lock and on the wire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_commits_push_back_on_providers_and_lose_nothing() {
    const EVENTS: usize = 120;
    let site = Site::new(Kind::Postgres);
    let name = site.query("SELECT current_database()");
    site.query(&format!("ALTER DATABASE {name} SET commit_delay = 20000"));
    site.query(&format!("ALTER DATABASE {name} SET commit_siblings = 0"));
    let wire = Proxy::start(Site::postgres_address()).await;
    let mut gateway = Gateway::new(&site)
        .set("DATABASE__URL", site.postgres_url_at(Some(wire.port)))
        .set("EDGE__INFLIGHT_MAX", "1MiB");
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let consumer = Consumer::start(&gateway).await;
    consumer.is_connected().await;

    wire.delay_answers(Duration::from_millis(100));
    let mut posts = JoinSet::new();
    for event in 0..EVENTS {
        let provider = setup.provider(&gateway);
        posts.spawn(async move {
            let body = serde_json::json!({
                "id": format!("evt_{event}"),
                "type": "invoice.paid",
                "padding": "x".repeat(100_000),
                "data": { "object": { "id": format!("entity-{event}") } },
            });
            let signed = provider.sign(body.to_string().as_bytes());
            let first = provider.post(&signed).await;
            if first.is_success() {
                return (false, first.field("receipt_id"));
            }
            assert!([429, 503].contains(&first.status), "{first:?}");
            assert!(first.header("retry-after").parse::<u64>().is_ok_and(|secs| secs > 0), "{first:?}");
            (true, provider.deliver(&signed, PATIENCE).await.field("receipt_id"))
        });
    }
    let answers = posts.join_all().await;
    assert!(answers.iter().any(|(pushed_back, _)| *pushed_back), "more came than the gateway may hold");
    consumer.has_acked(EVENTS, PATIENCE).await;
    assert_eq!(consumer.receipts(), answers.into_iter().map(|(_, receipt)| receipt).collect());
    consumer.check_promises();
    consumer.stop().await;
}

/// F45: whatever a deployment does to the schema, it waits for nobody and nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrating_under_load_delays_neither_accepting_nor_delivery() {
    let (site, gateway, setup) = one_gateway().await;
    let consumer = Consumer::start(&gateway).await;
    consumer.is_connected().await;
    let load = Load::start(&setup.provider(&gateway), 8, Duration::from_millis(5));
    eventually("the load runs", PATIENCE, async || (load.accepted() > 0).then_some(())).await;
    for _ in 0..5 {
        let before = load.accepted();
        let mut command = gateway.command();
        command.arg("migrate");
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(load.accepted() > before, "events are accepted meanwhile");
    }
    // One that migrates before it serves, as in a rolling deployment.
    drop(Gateway::start(&site).await);
    assert_eq!(load.refused(), 0, "no request was refused");
    let receipts = load.finish().await;
    consumer.has_acked(receipts.len(), PATIENCE).await;
    assert_eq!(consumer.receipts(), receipts);
    consumer.check_promises();
    consumer.stop().await;
}
