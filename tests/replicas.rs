//! Two gateway processes on one Postgres.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::harness::{Answer, Consumer, Gateway, Kind, Provider, Setup, Site, eventually, stripe_event};

const COPIES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_copies_at_once_over_two_gateways_make_one_receipt_and_one_delivery() {
    let site = Site::new(Kind::Postgres);
    let (one, other) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let mut setup = Setup::new(&one).await;
    other.is_up_to_date().await;
    let consumer = Consumer::start(&one).await;
    let providers = [setup.provider(&one), setup.provider(&other)];
    let signed = providers[0].sign(&stripe_event("evt_copied", "entity", 0));

    let barrier = Arc::new(Barrier::new(COPIES));
    let mut copies = JoinSet::new();
    for copy in 0..COPIES {
        let (provider, signed, barrier) = (providers[copy % 2].clone(), signed.clone(), Arc::clone(&barrier));
        copies.spawn(async move {
            barrier.wait().await;
            provider.post(&signed).await
        });
    }
    let answers = copies.join_all().await;
    assert!(answers.iter().all(Answer::is_success), "every copy is answered with 2xx: {answers:?}");
    let said = |word: &str| answers.iter().filter(|answer| answer.field("status") == word).count();
    assert_eq!((said("accepted"), said("duplicate")), (1, COPIES - 1));
    let receipts: HashSet<String> = answers.iter().map(|answer| answer.field("receipt_id")).collect();
    assert_eq!(receipts.len(), 1, "all copies are answered with the same receipt");

    let receipt = eventually("all repeats are counted", PATIENCE, async || {
        let receipt = setup.receipt("evt_copied").await.expect("a receipt");
        (receipt.duplicates >= 199).then_some(receipt)
    })
    .await;
    assert_eq!((receipt.duplicates, receipt.conflicts), (199, 0));
    assert!(receipts.contains(&receipt.receipt_id));

    // What comes after it in its entity shows that nothing more of it will come.
    assert_eq!(providers[1].send(&stripe_event("evt_after", "entity", 1)).await.field("status"), "accepted");
    consumer.has_acked(2, PATIENCE).await;
    let ids: Vec<String> = consumer.handled().into_iter().map(|handled| handled.event_id).collect();
    assert_eq!(ids, ["evt_copied", "evt_after"]);
    consumer.check_promises();
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_of_the_first_gateway_gets_everything_after_the_second_is_killed() {
    everything_arrives_after_one_of_two_is_killed(|one, other| (one, other)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_of_the_second_gateway_gets_everything_after_the_first_is_killed() {
    everything_arrives_after_one_of_two_is_killed(|one, other| (other, one)).await;
}

/// `choose` says which gateway survives and which is killed.
async fn everything_arrives_after_one_of_two_is_killed(
    choose: impl FnOnce(Gateway, Gateway) -> (Gateway, Gateway),
) {
    const BEFORE: usize = 100;
    const AFTER: usize = 100;
    let site = Site::new(Kind::Postgres);
    let (one, other) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let setup = Setup::new(&one).await;
    other.is_up_to_date().await;
    let (survivor, mut victim) = choose(one, other);
    let consumer = Consumer::start(&survivor).await;
    let (stays, goes) = (setup.provider(&survivor), setup.provider(&victim));

    let mut accepted = send_by_turns(&[&stays, &goes], 0..BEFORE).await;
    victim.kill();
    accepted.extend(send_by_turns(&[&stays], BEFORE..BEFORE + AFTER).await);
    consumer.has_acked(BEFORE + AFTER, PATIENCE).await;
    assert_eq!(consumer.receipts(), accepted);
    consumer.check_promises();
    consumer.stop().await;
}

/// Sends events of ten entities, to one provider after the other; gives their receipts.
async fn send_by_turns(providers: &[&Provider], events: std::ops::Range<usize>) -> HashSet<String> {
    let mut receipts = HashSet::new();
    for event in events {
        let body = stripe_event(&format!("evt_{event}"), &format!("entity-{}", event % 10), event / 10);
        let answer = providers[event % providers.len()].send(&body).await;
        assert_eq!(answer.field("status"), "accepted", "{answer:?}");
        receipts.insert(answer.field("receipt_id"));
    }
    receipts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_was_paused_until_another_took_over_comes_back_and_serves() {
    let site = Site::new(Kind::Postgres);
    let (mut paused, other) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let setup = Setup::new(&paused).await;
    other.is_up_to_date().await;
    let first = Consumer::start(&paused).await;
    first.is_connected().await;
    send_by_turns(&[&setup.provider(&paused)], 0..10).await;
    first.has_acked(10, PATIENCE).await;
    let second = Consumer::start(&other).await;
    second.is_connected().await;

    paused.signal("STOP");
    send_by_turns(&[&setup.provider(&other)], 10..20).await;
    second.has_acked(10, PATIENCE).await;
    paused.signal("CONT");

    eventually("the paused gateway opens a new session", PATIENCE, async || {
        (paused.log.count("the session had expired; a new one is open") > 0).then_some(())
    })
    .await;
    send_by_turns(&[&setup.provider(&paused)], 20..30).await;
    second.has_acked(20, PATIENCE).await;
    assert!(paused.exited().is_none(), "it goes on");
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_gateways_with_one_instance_id_the_older_one_ends_and_says_why() {
    let site = Site::new(Kind::Postgres);
    let same = |gateway: Gateway| gateway.set("INSTANCE_ID", "same");
    let mut older = same(Gateway::new(&site)).expect("give each process an instance_id of its own");
    older.launch().await;
    let mut newer = same(Gateway::new(&site));
    newer.launch().await;
    let status = older.ended(PATIENCE).await;
    assert!(!status.success());
    assert!(older.log.text().contains("give each process an instance_id of its own"), "{}", older.log.tail());
}
