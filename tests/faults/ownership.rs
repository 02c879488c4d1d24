//! Lanes and who has them: gateways that are paused, restarted, or left by their consumers.

use std::time::Duration;

use portero_client::Outcome;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{PATIENCE, check, send};
use crate::harness::{
    Behaviour, Cluster, Consumer, Gateway, Kind, Load, Setup, Site, What, eventually, stripe_event,
};

/// F15: a gateway that was stopped for longer than its session lives writes nothing and delivers nothing of what it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_was_paused_for_longer_than_its_session_acts_for_nothing_that_it_had() {
    static MAY_ACK: Semaphore = Semaphore::const_new(0);
    let site = Site::new(Kind::Postgres);
    let (paused, other) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let setup = Setup::new(&paused).await;
    other.is_up_to_date().await;
    // It has two entities' events in hand when its gateway is paused, and acks them after that.
    let first = Consumer::with(&paused, "billing", |handled| async move {
        if handled.event_id == "evt_10" || handled.event_id == "evt_11" {
            MAY_ACK.acquire().await.expect("open").forget();
        }
        Outcome::Ack
    })
    .await;
    first.is_connected().await;
    let mut accepted = send(&setup.provider(&paused), 0..12, 10).await;
    first.has_acked(10, PATIENCE).await;
    eventually("two are in hand", PATIENCE, async || (first.handled().len() == 12).then_some(())).await;

    let second = Consumer::start(&other).await;
    paused.signal("STOP");
    let stopped_at = Instant::now();
    let epochs = site.query("SELECT max(epoch) FROM lane_owners");
    accepted.extend(send(&setup.provider(&other), 12..40, 10).await);
    second.has_acked(30, PATIENCE).await;
    // Longer than a session lives, by five seconds.
    tokio::time::sleep_until(stopped_at + Duration::from_secs(17)).await;
    let old = format!("SELECT count(*), coalesce(max(seq), 0) FROM lane_journal WHERE epoch <= {epochs}");
    let written = site.query(&old);
    let handled = first.handled().len();
    paused.signal("CONT");
    MAY_ACK.add_permits(2);

    eventually("the paused gateway opens a new session", PATIENCE, async || {
        (paused.log.count("the session had expired; a new one is open") > 0).then_some(())
    })
    .await;
    let before = second.handled().len();
    accepted.extend(send(&setup.provider(&other), 40..60, 10).await);
    eventually("everything is handled", PATIENCE, async || {
        let all = first.receipts().union(&second.receipts()).count();
        (all == accepted.len() && first.acked() + second.acked() >= 60).then_some(())
    })
    .await;
    let now = site.query(&old);
    let seq = |row: &str| row.split('|').nth(1).map(str::to_owned);
    assert!(seq(&now) <= seq(&written), "the former epoch was written to: {written}, then {now}");
    let late: Vec<String> =
        first.handled()[handled..].iter().map(|handled| handled.event_id.clone()).collect();
    let fresh = |id: &String| id[4..].parse::<usize>().is_ok_and(|number| number >= 40);
    assert!(late.iter().all(fresh), "it delivered what others had settled: {late:?}");
    assert!(second.handled().len() - before <= 20, "what the second one had acked came again");
    first.check_order();
    second.check_order();
    first.stop().await;
    second.stop().await;
}

/// F34: the only consumer moves from one gateway to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_follow_the_only_consumer_from_one_gateway_to_another() {
    let mut cluster = Cluster::start(2, |_| {}).await;
    cluster.add_consumer(Behaviour::Ack { after_ms: 0 }).await;
    let load = Load::start(&cluster.provider(), 4, Duration::from_millis(20));
    for moves in 1..=4 {
        is_handling(&cluster, load.accepted()).await;
        // Its next connection goes to the other gateway.
        cluster.consumers[0].link.sever();
        eventually("it connects to the other gateway", PATIENCE, async || {
            (cluster.consumers[0].link.opened().len() > moves).then_some(())
        })
        .await;
    }
    is_handling(&cluster, load.accepted()).await;
    let accepted = load.finish().await;
    let dead = cluster.all_concluded(&accepted, PATIENCE).await;
    assert!(dead.is_empty(), "{dead:?}");
    let gap = longest_gap(&cluster);
    println!("longest gap while the only consumer moved: {gap:?}");
    assert!(gap < Duration::from_secs(10), "lanes stayed behind for {gap:?}");
    check(&mut cluster, accepted, dead).await;
}

/// S7: a planned restart of every gateway, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_three_gateways_repeats_nothing_and_counts_nothing() {
    // One counted attempt would make a dead letter.
    let mut cluster = Cluster::start(3, |shared| shared.attempts_max = 1).await;
    for _ in 0..3 {
        cluster.add_consumer(Behaviour::Ack { after_ms: 5 }).await;
    }
    let load = Load::start(&cluster.provider(), 8, Duration::from_millis(25));
    is_handling(&cluster, 50).await;
    for number in 0..3 {
        let gateway = &mut cluster.gateways[number];
        gateway.terminate();
        let status = gateway.ended(PATIENCE).await;
        assert!(status.success(), "{status}");
        gateway.launch().await;
        let reached = load.accepted();
        is_handling(&cluster, reached).await;
    }
    let accepted = load.finish().await;
    let dead = cluster.all_concluded(&accepted, PATIENCE).await;
    assert!(dead.is_empty(), "{dead:?}");
    println!("longest gap in a rolling restart: {:?}", longest_gap(&cluster));
    let history = cluster.history();
    assert_eq!(history.started().count(), accepted.len(), "each event is handled once");
    check(&mut cluster, accepted, dead).await;
}

/// Waits until consumers have handled so many events.
async fn is_handling(cluster: &Cluster, count: usize) {
    eventually(&format!("{count} events are handled"), PATIENCE, async || {
        (cluster.history().started().count() >= count).then_some(())
    })
    .await;
}

/// The longest time in which no handler was called.
fn longest_gap(cluster: &Cluster) -> Duration {
    let history = cluster.history();
    let times: Vec<i64> = history.started().map(|(record, _)| record.at).collect();
    let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let connected = history.0.iter().filter(|record| matches!(record.what, What::Connected { .. })).count();
    assert!(connected > 0, "somebody was connected");
    Duration::from_micros(u64::try_from(gap).expect("time goes forward"))
}

/// A consumer's ack that comes after its gateway was replaced counts all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_for_a_gateway_that_was_killed_counts_at_the_next_one() {
    static MAY_ACK: Semaphore = Semaphore::const_new(0);
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let consumer = Consumer::with(&gateway, "billing", |_| async {
        MAY_ACK.acquire().await.expect("open").forget();
        Outcome::Ack
    })
    .await;
    let signed = setup.provider(&gateway).sign(&stripe_event("evt_slow", "entity", 0));
    assert_eq!(setup.provider(&gateway).post(&signed).await.status, 200);
    eventually("it is in hand", PATIENCE, async || (consumer.handled().len() == 1).then_some(())).await;
    gateway.kill();
    gateway.launch().await;
    eventually("the consumer is back", PATIENCE, async || (consumer.connections() == 2).then_some(())).await;
    MAY_ACK.add_permits(10);
    consumer.has_acked(1, PATIENCE).await;
    let next = setup.provider(&gateway).send(&stripe_event("evt_next", "entity", 1)).await;
    assert_eq!(next.status, 200);
    consumer.has_acked(2, PATIENCE).await;
    assert_eq!(consumer.handled().len(), 2, "the slow one was not done twice");
    consumer.check_promises();
    consumer.stop().await;
}
