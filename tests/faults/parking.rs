//! Events that are held, fail, or kill their consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portero_client::Outcome;
use tokio::sync::Semaphore;

use super::{PATIENCE, check, one_gateway, send};
use crate::harness::{Behaviour, Cluster, Consumer, Load, eventually, stripe_event, subscription};

/// Positions of a blocked entity that are kept one by one.
const POSITIONS_MAX: usize = 256;
/// Largest progress of one lane, bytes.
const PROGRESS_MAX: usize = 4 * 1024;

/// F20: one event is in hand for longer than a window may be open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_held_for_long_delays_only_its_entity_and_no_progress_outgrows_its_limit() {
    static MAY_ACK: Semaphore = Semaphore::const_new(0);
    let (site, gateway, mut setup) = one_gateway().await;
    // As few lanes as there can be, so that the held event is in the way of many.
    setup.admin.create_subscription(subscription("narrow", |narrow| narrow.lanes = 4)).await.expect("made");
    let consumer = Consumer::with(&gateway, "narrow", |handled| async move {
        if handled.event_id == "evt_held" {
            MAY_ACK.acquire().await.expect("open").forget();
        }
        Outcome::Ack
    })
    .await;
    let provider = setup.provider(&gateway);
    assert_eq!(provider.send(&stripe_event("evt_held", "slow", 0)).await.status, 200);
    eventually("it is in hand", PATIENCE, async || (consumer.handled().len() == 1).then_some(())).await;
    assert_eq!(provider.send(&stripe_event("evt_waits", "slow", 1)).await.status, 200);
    const OTHERS: usize = 2_000;
    send(&provider, 0..OTHERS, 40).await;
    consumer.has_acked(OTHERS, PATIENCE).await;

    eventually("the held event leaves the window", PATIENCE, async || {
        (site.query("SELECT state FROM parked_entities") == "held").then_some(())
    })
    .await;
    let largest = site.query("SELECT max(octet_length(acked)) FROM lane_journal");
    assert!(largest.parse::<usize>().expect("a number") <= PROGRESS_MAX, "{largest} bytes of progress");
    assert_eq!(consumer.handled().len(), OTHERS + 1, "what comes after the held event waits");
    MAY_ACK.add_permits(1);
    consumer.has_acked(OTHERS + 2, PATIENCE).await;
    consumer.check_promises();
    eventually("nothing is parked any more", PATIENCE, async || {
        (site.query("SELECT count(*) FROM parked_entities") == "0").then_some(())
    })
    .await;
    consumer.stop().await;
}

/// F25: the entity that is blocked is also the busiest one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_entity_with_thousands_of_events_keeps_a_bounded_number_of_rows_and_recovers_in_order() {
    const EVENTS: usize = 1_500;
    let (site, gateway, mut setup) = one_gateway().await;
    setup
        .admin
        .create_subscription(subscription("patient", |patient| patient.attempts_max = 1_000))
        .await
        .expect("made");
    let recovered = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&recovered);
    let consumer = Consumer::with(&gateway, "patient", move |handled| {
        let works = works.load(Ordering::SeqCst) || !handled.ordering_key.ends_with("entity-0");
        async move {
            if works {
                Outcome::Ack
            } else {
                Outcome::retry_after(Duration::from_millis(500), "NOT_NOW", "its account is locked")
            }
        }
    })
    .await;
    let provider = setup.provider(&gateway);
    let receipts = send(&provider, 0..EVENTS, 1).await;
    assert_eq!(provider.send(&stripe_event("evt_other", "other", 0)).await.status, 200);
    consumer.has_acked(1, PATIENCE).await;
    eventually("the entity is parked with what waits for it", PATIENCE, async || {
        let rows: usize = site
            .query("SELECT coalesce(sum(cardinality(positions)), 0) FROM parked_entities")
            .parse()
            .expect("a number");
        assert!(rows <= POSITIONS_MAX, "{rows} positions for one entity");
        (rows >= POSITIONS_MAX / 2).then_some(())
    })
    .await;

    recovered.store(true, Ordering::SeqCst);
    consumer.has_acked(EVENTS + 1, PATIENCE * 2).await;
    consumer.check_promises();
    assert_eq!(consumer.receipts().intersection(&receipts).count(), EVENTS);
    let last = consumer.handled().into_iter().rfind(|handled| handled.ordering_key.ends_with("entity-0"));
    assert_eq!(last.expect("handled").sequence, u64::try_from(EVENTS - 1).ok());
    eventually("nothing is parked any more", PATIENCE, async || {
        (site.query("SELECT count(*) FROM parked_entities") == "0").then_some(())
    })
    .await;
    consumer.stop().await;
}

/// F27: what a consumer needs is down while events come in, then it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_everything_failed_for_a_while_all_waiting_events_are_delivered_and_none_has_died() {
    const ENTITIES: usize = 50;
    const EVENTS: usize = 1_000;
    let (site, gateway, mut setup) = one_gateway().await;
    let few = subscription("few", |few| few.attempts_max = 3);
    setup.admin.create_subscription(few).await.expect("a subscription");
    // All entities are there from the beginning: what fails with a few of them is their own matter, and counts.
    send(&setup.provider(&gateway), 0..EVENTS, ENTITIES).await;
    let is_up = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&is_up);
    let consumer = Consumer::with(&gateway, "few", move |_| {
        let works = works.load(Ordering::SeqCst);
        async move { if works { Outcome::Ack } else { Outcome::retry("DOWN", "its database is down") } }
    })
    .await;
    eventually("the circuit opens", PATIENCE, async || {
        let said = "nearly everything fails: deliveries pause, and failures count no attempts";
        (gateway.log.count(said) > 0).then_some(())
    })
    .await;
    let (tried, opened) = (consumer.handled().len(), Instant::now());
    // At most three at a time, after pauses of one, two and four seconds; without them these are tried at once.
    eventually("ten more are tried", PATIENCE * 2, async || {
        (consumer.handled().len() >= tried + 10).then_some(())
    })
    .await;
    assert!(opened.elapsed() > Duration::from_secs(3), "ten within {:?}", opened.elapsed());
    is_up.store(true, Ordering::SeqCst);
    consumer.has_acked(EVENTS, PATIENCE * 2).await;
    consumer.check_promises();
    assert_eq!(site.query("SELECT count(*) FROM dead_letters"), "0");
    consumer.stop().await;
}

/// F28: one event kills whoever works on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_kills_its_consumer_ends_as_a_dead_letter_and_its_neighbours_are_delivered() {
    const EVENTS: usize = 60;
    let mut cluster = Cluster::start(1, |_| {}).await;
    let accepted = send(&cluster.provider(), 0..EVENTS, 30).await;
    cluster.add_consumer(Behaviour::AbortOn { event: "evt_7".to_owned() }).await;
    let killer = cluster.setup.receipt("evt_7").await.expect("accepted").receipt_id;
    let dead = cluster.all_concluded(&accepted, PATIENCE * 2).await;
    assert_eq!(dead, [killer].into(), "the killer, and nobody else");
    check(&mut cluster, accepted, dead).await;
}

/// F29: consumers are restarted one after the other, as in a deployment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_are_restarted_under_load_cost_no_event_an_attempt() {
    // One counted attempt would make a dead letter.
    let mut cluster = Cluster::start(1, |shared| shared.attempts_max = 1).await;
    for _ in 0..5 {
        cluster.add_consumer(Behaviour::Ack { after_ms: 20 }).await;
    }
    let load = Load::start(&cluster.provider(), 8, Duration::from_millis(10));
    for number in 0..10 {
        let consumer = &mut cluster.consumers[number % 5].process;
        let status = consumer.stop(PATIENCE).await;
        assert!(status.success(), "{status}");
        consumer.launch();
    }
    let accepted = load.finish().await;
    let dead = cluster.all_concluded(&accepted, PATIENCE).await;
    assert!(dead.is_empty(), "{dead:?}");
    check(&mut cluster, accepted, dead).await;
}
