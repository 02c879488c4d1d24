//! One protocol, three languages: the Rust SDK and the consumers of examples/ in Python and Node keep the same promises.
//! Each runs as a process of its own, in its test mode.

mod scripted;

use std::time::Duration;

use portero_client::v1;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Gateway, Kind, Provider, Proxy, Setup, Site, eventually, subscription};
use scripted::{Language, Scripted};

const PATIENCE: Duration = Duration::from_secs(60);
const ON_RECORD: [&str; 3] = ["DURABLE", "DURABLE_LATE", "ALREADY"];

/// Makes a test per language from an async function.
macro_rules! in_each_language {
    ($name:ident) => {
        mod $name {
            use super::Language;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_rust() {
                super::$name(Language::Rust).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_python() {
                super::$name(Language::Python).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_node() {
                super::$name(Language::Node).await;
            }
        }
    };
}

/// A gateway, and a provider whose events go to a subscription where one counted attempt is one too many.
struct Stage {
    gateway: Gateway,
    setup: Setup,
    provider: Provider,
}

impl Stage {
    async fn new(kind: Kind) -> Self {
        let gateway = Gateway::start(&Site::new(kind)).await;
        let mut setup = Setup::new(&gateway).await;
        let strict = subscription("strict", |strict| strict.attempts_max = 1);
        setup.admin.create_subscription(strict).await.expect("a subscription");
        let provider = setup.provider(&gateway);
        Self { gateway, setup, provider }
    }

    async fn consumer(&self, language: Language, arguments: &[&str]) -> Scripted {
        Scripted::start(language, &self.gateway.site, &self.gateway.grpc_url(), arguments).await
    }

    /// An event of an entity that says what becomes of it.
    async fn send(&self, id: &str, entity: &str, then: &[&str]) {
        let object = json!({ "id": entity, "object": "invoice" });
        let body = json!({ "id": id, "object": "event", "type": "invoice.paid", "data": { "object": object }, "then": then });
        let answer = self.provider.deliver(&self.provider.sign(body.to_string().as_bytes()), PATIENCE).await;
        assert_eq!(answer.field("status"), "accepted", "{answer:?}");
    }

    /// The dead letters of a subscription: code, text, counted attempts.
    async fn dead_letters(&mut self, subscription: &str) -> Vec<(String, String, u32)> {
        let parent = format!("subscriptions/{subscription}");
        let request = v1::ListDeadLettersRequest { parent, ..Default::default() };
        let list = self.setup.admin.list_dead_letters(request).await.expect("a list").into_inner();
        let letters = list.dead_letters.into_iter();
        letters.map(|letter| (letter.reason_code, letter.reason_text, letter.attempts)).collect()
    }

    async fn nothing_died(&mut self) {
        assert_eq!(self.dead_letters("strict").await, [], "an attempt was counted");
    }
}

/// Whether everything was recorded as of the delivery that it was said of.
fn all_durable(consumer: &Scripted) {
    let statuses: Vec<_> = consumer.settled().into_iter().map(|settled| settled.status).collect();
    assert!(statuses.iter().all(|status| status == "DURABLE"), "{statuses:?}");
}

fn owned(offers: &[(&str, u64)]) -> Vec<(String, u64)> {
    offers.iter().map(|(event, attempt)| ((*event).to_owned(), *attempt)).collect()
}

in_each_language!(every_outcome_does_what_it_says);

async fn every_outcome_does_what_it_says(language: Language) {
    let mut stage = Stage::new(Kind::Sqlite).await;
    // Longer than the subscription's own first backoff, which is a second at most.
    stage.send("evt_late", "a", &["retry:2000", "ack"]).await;
    stage.send("evt_after", "a", &["ack"]).await;
    stage.send("evt_early", "d", &["defer", "ack"]).await;
    stage.send("evt_first", "d", &["ack"]).await;
    stage.send("evt_wrong", "r", &["reject:NO_ORDER"]).await;
    stage.send("evt_right", "r", &["ack"]).await;
    stage.send("evt_undone", "u", &["release", "ack"]).await;
    let consumer = stage.consumer(language, &["--subscription", "billing"]).await;
    consumer.acked(6, PATIENCE).await;

    assert_eq!(consumer.offers_of("stripe:a"), owned(&[("evt_late", 1), ("evt_late", 2), ("evt_after", 1)]));
    let waited = consumer.between("evt_late", 2);
    assert!(waited >= Duration::from_millis(1_900), "it came again after {waited:?} instead of 2 s");
    assert_eq!(
        consumer.offers_of("stripe:d"),
        owned(&[("evt_early", 1), ("evt_first", 1), ("evt_early", 2)])
    );
    assert_eq!(consumer.offers_of("stripe:r"), owned(&[("evt_wrong", 1), ("evt_right", 1)]));
    let undone: Vec<_> = consumer.offers_of("stripe:u").into_iter().map(|(event, _)| event).collect();
    assert_eq!(undone, ["evt_undone", "evt_undone"]);
    all_durable(&consumer);
    let offers = consumer.delivered().len();
    assert_eq!(consumer.settled().len(), offers, "each delivery has one status");
    let letter = ("NO_ORDER".to_owned(), "as told".to_owned(), 1);
    assert_eq!(stage.dead_letters("billing").await, [letter]);
    consumer.check_promises();
    assert!(consumer.terminate().await.success());
}

in_each_language!(a_backlog_comes_in_order_and_within_the_flow_limits);

async fn a_backlog_comes_in_order_and_within_the_flow_limits(language: Language) {
    const ENTITIES: usize = 10;
    const EVENTS: usize = 200;
    let stage = Stage::new(Kind::Sqlite).await;
    for event in 0..EVENTS {
        stage.send(&format!("evt_{event}"), &format!("entity-{}", event % ENTITIES), &["ack"]).await;
    }
    let limits = ["--subscription", "strict", "--max-inflight-events", "7"];
    let consumer = stage.consumer(language, &limits).await;
    consumer.acked(EVENTS, PATIENCE).await;
    assert_eq!(consumer.delivered().len(), EVENTS);
    for entity in 0..ENTITIES {
        let expected: Vec<_> =
            (entity..EVENTS).step_by(ENTITIES).map(|event| (format!("evt_{event}"), 1)).collect();
        assert_eq!(consumer.offers_of(&format!("stripe:entity-{entity}")), expected);
    }
    let most = consumer.most_unsettled();
    assert!(most <= 7, "{most} events were unsettled at a time");
    all_durable(&consumer);
    consumer.check_promises();
    assert!(consumer.terminate().await.success());
}

in_each_language!(what_was_done_while_the_gateway_was_down_is_recorded_and_nothing_durable_comes_again);

async fn what_was_done_while_the_gateway_was_down_is_recorded_and_nothing_durable_comes_again(
    language: Language,
) {
    const BEFORE: usize = 20;
    let mut stage = Stage::new(Kind::Postgres).await;
    let mut consumer = stage.consumer(language, &["--subscription", "strict"]).await;
    for event in 0..BEFORE {
        stage.send(&format!("evt_{event}"), &format!("entity-{}", event % 5), &["ack"]).await;
    }
    consumer.acked(BEFORE, PATIENCE).await;
    stage.send("evt_held", "entity-0", &["told"]).await;
    consumer.has("delivered", "evt_held", 1, PATIENCE).await;
    stage.gateway.kill();
    consumer.count("disconnected", 1, PATIENCE).await;
    consumer.tell("evt_held", "ack").await;
    consumer.has("handled", "evt_held", 1, PATIENCE).await;
    stage.gateway.launch().await;
    consumer.acked(BEFORE + 1, PATIENCE).await;
    stage.send("evt_after", "entity-0", &["ack"]).await;
    consumer.acked(BEFORE + 2, PATIENCE).await;

    assert_eq!(consumer.count_of("handled", "evt_held"), 1, "its work was done once");
    for event in 0..BEFORE {
        assert_eq!(consumer.count_of("delivered", &format!("evt_{event}")), 1);
    }
    consumer.check_promises();
    stage.nothing_died().await;
    assert!(consumer.terminate().await.success());
}

in_each_language!(work_goes_on_over_a_cut_connection);

async fn work_goes_on_over_a_cut_connection(language: Language) {
    let mut stage = Stage::new(Kind::Sqlite).await;
    let proxy = Proxy::start(stage.gateway.grpc_address()).await;
    let site = &stage.gateway.site;
    let mut consumer = Scripted::start(language, site, &proxy.url(), &["--subscription", "strict"]).await;
    stage.send("evt_held", "entity", &["told"]).await;
    stage.send("evt_next", "entity", &["ack"]).await;
    consumer.has("delivered", "evt_held", 1, PATIENCE).await;
    proxy.sever();
    consumer.count("connected", 2, PATIENCE).await;
    consumer.count("resumed", 1, PATIENCE).await;
    consumer.tell("evt_held", "ack").await;
    consumer.acked(2, PATIENCE).await;

    assert_eq!(consumer.offers_of("stripe:entity"), owned(&[("evt_held", 1), ("evt_next", 1)]));
    all_durable(&consumer);
    consumer.check_promises();
    stage.nothing_died().await;
    assert!(consumer.terminate().await.success());
}

in_each_language!(an_ack_that_comes_late_is_recorded_and_takes_the_event_back_from_who_has_it_now);

async fn an_ack_that_comes_late_is_recorded_and_takes_the_event_back_from_who_has_it_now(language: Language) {
    let mut stage = Stage::new(Kind::Sqlite).await;
    let proxy = Proxy::start(stage.gateway.grpc_address()).await;
    let site = &stage.gateway.site;
    let mut first = Scripted::start(language, site, &proxy.url(), &["--subscription", "strict"]).await;
    stage.send("evt_held", "entity", &["told"]).await;
    first.has("delivered", "evt_held", 1, PATIENCE).await;
    proxy.cut();
    let mut second = stage.consumer(language, &["--subscription", "strict"]).await;
    second.has("delivered", "evt_held", 1, PATIENCE).await;
    first.tell("evt_held", "ack").await;
    first.has("handled", "evt_held", 1, PATIENCE).await;
    proxy.heal();
    first.acked(1, PATIENCE).await;
    second.count("revoked", 1, PATIENCE).await;
    second.tell("evt_held", "ack").await;
    second.has("settled", "evt_held", 1, PATIENCE).await;

    let late = &first.settled()[0];
    assert_eq!(late.status, "DURABLE_LATE");
    assert_eq!(first.count_of("delivered", "evt_held") + second.count_of("delivered", "evt_held"), 2);
    stage.nothing_died().await;
    assert!(first.terminate().await.success());
    assert!(second.terminate().await.success());
}

in_each_language!(a_draining_gateway_gets_the_last_outcomes_and_the_consumer_comes_back);

async fn a_draining_gateway_gets_the_last_outcomes_and_the_consumer_comes_back(language: Language) {
    let mut stage = Stage::new(Kind::Postgres).await;
    let mut consumer = stage.consumer(language, &["--subscription", "strict"]).await;
    stage.send("evt_held", "entity", &["told"]).await;
    stage.send("evt_next", "entity", &["ack"]).await;
    consumer.has("delivered", "evt_held", 1, PATIENCE).await;
    stage.gateway.terminate();
    consumer.count("draining", 1, PATIENCE).await;
    consumer.tell("evt_held", "ack").await;
    let ended = stage.gateway.ended(PATIENCE).await;
    assert!(ended.success(), "{ended}");
    let held = &consumer.settled()[0];
    assert_eq!((held.event_id.as_str(), held.status.as_str()), ("evt_held", "DURABLE"));

    stage.gateway.launch().await;
    stage.send("evt_after", "entity", &["ack"]).await;
    consumer.acked(3, PATIENCE).await;
    assert_eq!(consumer.count_of("delivered", "evt_held"), 1);
    let first_outcomes: Vec<_> =
        consumer.settled().into_iter().filter(|settled| settled.outcome == "ack").collect();
    assert!(first_outcomes.iter().all(|settled| settled.status == "DURABLE"), "{first_outcomes:?}");
    consumer.check_promises();
    stage.nothing_died().await;
    assert!(consumer.terminate().await.success());
}

in_each_language!(a_consumer_that_is_asked_to_stop_finishes_what_it_began_and_nothing_is_counted);

async fn a_consumer_that_is_asked_to_stop_finishes_what_it_began_and_nothing_is_counted(language: Language) {
    let mut stage = Stage::new(Kind::Sqlite).await;
    let limits = ["--subscription", "strict", "--max-inflight-events", "2"];
    let mut first = stage.consumer(language, &limits).await;
    for event in 0..4 {
        stage.send(&format!("evt_{event}"), &format!("entity-{event}"), &["told", "ack"]).await;
    }
    first.count("delivered", 2, PATIENCE).await;
    first.signal("TERM");
    let begun: Vec<String> = first.delivered().into_iter().map(|(event, _)| event).collect();
    for event in &begun {
        first.tell(event, "ack").await;
    }
    let status = first.ended(PATIENCE).await;
    assert!(status.success(), "{status}");
    all_durable(&first);
    let acked: Vec<String> = first.settled().into_iter().map(|settled| settled.event_id).collect();
    assert!(begun.iter().all(|event| acked.contains(event)), "{begun:?} began and {acked:?} are settled");

    let mut second = stage.consumer(language, &["--subscription", "strict"]).await;
    second.count("delivered", 2, PATIENCE).await;
    for (event, attempt) in second.delivered() {
        assert!(!begun.contains(&event), "{event} is done");
        assert_eq!(attempt, 1, "{event} was never begun");
        second.tell(&event, "ack").await;
    }
    second.acked(2, PATIENCE).await;
    stage.nothing_died().await;
    assert!(second.terminate().await.success());
}

in_each_language!(a_consumer_that_is_refused_ends_and_says_why);

async fn a_consumer_that_is_refused_ends_and_says_why(language: Language) {
    let stage = Stage::new(Kind::Sqlite).await;
    let (site, url) = (&stage.gateway.site, stage.gateway.grpc_url());
    // The token is for another subscription.
    let arguments = ["--subscription", "billing"];
    let mut consumer = Scripted::launch(language, site, &url, "strict", &arguments);
    let status = consumer.ended(PATIENCE).await;
    assert!(!status.success(), "{status}");
    let last = eventually("it says why", PATIENCE, async || consumer.lines().pop()).await;
    assert_eq!((&last["what"], &last["final"]), (&json!("disconnected"), &json!(true)), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_stream_stays_open_because_both_sides_say_that_they_live() {
    // Consumers end a stream of which they heard nothing for 25 seconds; the gateway looks every ten seconds.
    const SILENCE: Duration = Duration::from_secs(32);
    let mut stage = Stage::new(Kind::Sqlite).await;
    let arguments = ["--subscription", "strict"];
    let mut consumers = Vec::new();
    for language in [Language::Rust, Language::Python, Language::Node] {
        consumers.push((language, stage.consumer(language, &arguments).await));
    }
    let began = Instant::now();
    eventually("the silence is long enough", PATIENCE, async || {
        for (language, consumer) in &consumers {
            let told: Vec<_> = consumer.lines().into_iter().map(|line| line["what"].clone()).collect();
            assert_eq!(told, ["connected"], "{language:?}");
        }
        (began.elapsed() > SILENCE).then_some(())
    })
    .await;
    stage.nothing_died().await;
    for (_, consumer) in consumers {
        assert!(consumer.terminate().await.success());
    }
}
