//! A log that lost its end, its beginning, or its listeners, and one that is far ahead.

use std::collections::HashSet;
use std::time::Duration;

use portero_client::{Outcome, v1};
use serde_json::json;

use super::{PATIENCE, one_gateway, send};
use crate::harness::{
    Consumer, Gateway, Kind, Load, Provider, Setup, Site, eventually, stripe_event, subscription,
};

const SHARDS: usize = 4;

/// F9: the database comes back without its last commits, but with the progress that was made on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_events_are_delivered_after_the_logs_end_was_lost_and_the_generation_has_risen() {
    const LOST: usize = 5;
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::new(&site).expect("committed events were lost");
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    let consumer = Consumer::start(&gateway).await;
    send(&provider, 0..200, 40).await;
    consumer.has_acked(200, PATIENCE).await;
    let generation: i64 = site.query("SELECT generation FROM installation").parse().expect("a number");
    gateway.kill();
    for shard in 0..SHARDS {
        let last = site.query(&format!("SELECT last_value FROM log_position_{shard}"));
        let kept = last.parse::<usize>().expect("a number") - LOST;
        let lost = format!("SELECT receipt_id FROM log WHERE shard = {shard} AND position > {kept}");
        for table in ["events", "receipts"] {
            site.query(&format!("DELETE FROM {table} WHERE receipt_id IN ({lost})"));
        }
        site.query(&format!("DELETE FROM log WHERE shard = {shard} AND position > {kept}"));
        site.query(&format!("SELECT setval('log_position_{shard}', {kept})"));
    }
    gateway.launch().await;

    // Their positions were given to others before.
    let fresh = send(&provider, 1_000..1_200, 40).await;
    eventually("all new events are delivered", PATIENCE, async || {
        consumer.receipts().is_superset(&fresh).then_some(())
    })
    .await;
    let raised: i64 = site.query("SELECT generation FROM installation").parse().expect("a number");
    assert!(raised > generation, "the generation is {raised} as before");
    let places: HashSet<_> = consumer.handled().into_iter().map(|handled| handled.place).collect();
    assert_eq!(places.len(), consumer.handled().len(), "no place in the log was seen with two events");
    consumer.stop().await;
}

/// F14: who listens for hints loses its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_connection_ends_costs_no_more_than_one_poll() {
    let site = Site::new(Kind::Postgres);
    let (accepts, delivers) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let setup = Setup::new(&accepts).await;
    delivers.is_up_to_date().await;
    let consumer = Consumer::start(&delivers).await;
    consumer.is_connected().await;
    let provider = setup.provider(&accepts);
    let listeners =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    eventually("both gateways listen", PATIENCE, async || (site.query(listeners) == "2").then_some(())).await;
    for round in 0..5 {
        let ended = site.query(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND query LIKE 'LISTEN%'",
        );
        assert_ne!(ended, "0", "somebody listened");
        assert_eq!(provider.send(&stripe_event(&format!("evt_{round}"), "entity", round)).await.status, 200);
        consumer.has_acked(round + 1, Duration::from_secs(5)).await;
        eventually("both listen again", PATIENCE, async || (site.query(listeners) == "2").then_some(()))
            .await;
    }
    consumer.check_promises();
    consumer.stop().await;
}

/// F21: a subscription that nothing matches keeps up with the log all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_subscription_holds_no_old_entries_back_and_does_not_read_them_again() {
    let (site, mut gateway, mut setup) = one_gateway().await;
    let idle = subscription("idle", |idle| idle.event_types = vec!["customer.created".to_owned()]);
    setup.admin.create_subscription(idle).await.expect("a subscription");
    let consumer = Consumer::with(&gateway, "idle", |_| async { Outcome::Ack }).await;
    consumer.is_connected().await;
    let provider = setup.provider(&gateway);
    send(&provider, 0..300, 40).await;
    // Lanes that are behind the end of their shard; a lane has sixteen slots.
    let behind = "SELECT count(*) FROM subscriptions CROSS JOIN generate_series(0, 15) AS lane \
                  WHERE subscription_id = 'idle' AND coalesce((SELECT watermark FROM lane_journal \
                  WHERE lane_journal.subscription_no = subscriptions.subscription_no AND lane_journal.lane = lane.lane \
                  ORDER BY epoch DESC, seq DESC LIMIT 1), 0) < (SELECT max(position) FROM log \
                  WHERE shard = (SELECT shard FROM log WHERE slot / 16 = lane.lane LIMIT 1))";
    eventually("its progress is that of the log", PATIENCE, async || {
        (site.query(behind) == "0").then_some(())
    })
    .await;
    gateway.kill();
    // What retention does with entries that nobody needs.
    site.query("DELETE FROM log");
    site.query("DELETE FROM events");
    let generation = site.query("SELECT generation FROM installation");
    gateway.launch().await;

    let body = json!({ "id": "evt_match", "type": "customer.created", "data": { "object": { "id": "c" } } });
    assert_eq!(provider.send(body.to_string().as_bytes()).await.status, 200);
    consumer.has_acked(1, PATIENCE).await;
    assert_eq!(consumer.handled().len(), 1);
    assert_eq!(site.query("SELECT generation FROM installation"), generation, "nothing was lost");
    consumer.stop().await;
}

/// F36: nobody consumed for so long that retention took bodies and old entries away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_retention_took_before_anybody_consumed_them_hold_up_nothing() {
    let (site, mut gateway, mut setup) = one_gateway().await;
    let provider = setup.provider(&gateway);
    send(&provider, 0..200, 20).await;
    gateway.kill();
    // The older half is gone; of what comes after it, some have lost their bodies only.
    let old = "position <= (SELECT max(position) / 2 FROM log newest WHERE newest.shard = log.shard)";
    site.query(&format!("DELETE FROM events WHERE receipt_id IN (SELECT receipt_id FROM log WHERE {old})"));
    site.query(&format!("DELETE FROM log WHERE {old} AND position % 2 = 0"));
    let left: usize = site.query("SELECT count(*) FROM events").parse().expect("a number");
    gateway.launch().await;

    let consumer = Consumer::start(&gateway).await;
    let fresh = send(&provider, 1_000..1_040, 20).await;
    consumer.has_acked(left + fresh.len(), PATIENCE).await;
    assert!(consumer.receipts().is_superset(&fresh));
    consumer.check_order();
    let request = v1::GetSubscriptionRequest { name: "subscriptions/billing".to_owned() };
    eventually("what had expired is counted", PATIENCE, async || {
        let told = setup.admin.get_subscription(request.clone()).await.expect("a subscription").into_inner();
        (told.expired_count > 0).then_some(())
    })
    .await;
    consumer.stop().await;
}

/// F38: a subscription that begins far behind catches up while events come in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_far_behind_catches_up_under_load_without_a_gap_or_a_repeat() {
    const BACKLOG: usize = 3_000;
    let (_site, gateway, mut setup) = one_gateway().await;
    let mut accepted = send(&setup.provider(&gateway), 0..BACKLOG, 100).await;
    // Much of the log is another tenant's.
    let noise = noise(&mut setup, &gateway).await;
    let only = subscription("acme-only", |only| only.tenant = "tenants/acme".to_owned());
    setup.admin.create_subscription(only).await.expect("a subscription");
    let load = Load::start(&setup.provider(&gateway), 4, Duration::from_millis(10));
    let consumer = Consumer::with(&gateway, "acme-only", |_| async { Outcome::Ack }).await;
    consumer.has_acked(BACKLOG, PATIENCE).await;
    accepted.extend(load.finish().await);
    consumer.has_acked(accepted.len(), PATIENCE).await;
    assert_eq!(consumer.receipts(), accepted);
    assert_eq!(consumer.handled().len(), accepted.len(), "each once");
    assert!(consumer.receipts().is_disjoint(&noise));
    consumer.check_order();
    consumer.stop().await;
}

/// Events of another tenant; their receipts.
async fn noise(setup: &mut Setup, gateway: &Gateway) -> HashSet<String> {
    let request =
        v1::CreateTenantRequest { tenant_id: "other".to_owned(), tenant: Some(v1::Tenant::default()) };
    setup.admin.create_tenant(request).await.expect("a tenant");
    let source = crate::harness::Source::preset(&mut setup.admin, gateway, "other", "stripe").await;
    send(&Provider::new(gateway, &source), 0..500, 50).await
}
