//! Many entities at once, under cuts; and what an operator does for one that is blocked.

use std::collections::HashMap;
use std::time::Duration;

use portero_client::{Admin, Client, ClientConfig, Delivery, Outcome, Token, v1};
use portero_store::{ConfigStore as _, LaneStore as _};

use crate::gateway::{Gateway, patient};
use crate::proxy::Proxy;
use crate::work::{Books, Consumer};

const ENTITIES: usize = 12;
const EVENTS: usize = 15;

/// S1, S2: whatever happens to connections, a process never has two handlers of one entity, and each entity's events are
/// worked on in order.
#[tokio::test]
async fn under_cuts_no_entity_has_two_handlers_and_none_of_its_events_overtakes_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let proxy = Proxy::start(&gateway.endpoint).await;
    for entity in 0..ENTITIES {
        let ids: Vec<String> = (0..EVENTS).map(|number| format!("{entity}/{number:02}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        gateway.accept(&format!("stripe:cus_{entity}"), &ids).await;
    }
    let books = Books::default();
    let inner = books.clone();
    let handler = move |delivery: Delivery| {
        let books = inner.clone();
        async move {
            books.begin(&delivery);
            tokio::task::yield_now().await;
            books.end(&delivery);
            Outcome::Ack
        }
    };
    let consumer = Consumer::start(&gateway, &proxy.endpoint, &books, handler).await;
    for round in 1..=6 {
        let so_far = round * ENTITIES * EVENTS / 8;
        books.until("work is done", |entries| entries.done.len() >= so_far).await;
        proxy.cut();
    }
    let distinct = |began: &[String]| began.iter().collect::<std::collections::BTreeSet<_>>().len();
    books.until("all is done", |entries| distinct(&entries.done) == ENTITIES * EVENTS).await;
    consumer.stop().await;
    let entries = books.read();
    assert!(!entries.overlapped, "two handlers ran for one entity");
    let mut last: HashMap<&str, &str> = HashMap::new();
    for id in &entries.began {
        let (entity, number) = id.split_once('/').expect("ours");
        let before = last.insert(entity, number);
        assert!(before.is_none_or(|before| before <= number), "{id} came after {before:?}");
    }
}

async fn admin(gateway: &Gateway) -> Admin {
    let mut config = ClientConfig::new(&gateway.endpoint);
    let grant = portero_auth::Grant::platform_admin();
    config.token = Token::fixed(gateway.token(grant, Duration::from_secs(3_600)));
    Client::connect(config).await.expect("a good configuration").admin()
}

/// A dead letter that blocks its entity, and the operator who lets it go on.
#[tokio::test]
async fn an_entity_that_its_dead_letter_blocks_goes_on_when_an_operator_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let mut admin = admin(&gateway).await;
    let mut subscription =
        v1::Subscription { name: "subscriptions/billing".to_owned(), ..v1::Subscription::default() };
    subscription.set_dead_letter_policy(v1::DeadLetterPolicy::ParkEntity);
    let update_mask = Some(prost_types::FieldMask { paths: vec!["dead_letter_policy".to_owned()] });
    let update = v1::UpdateSubscriptionRequest { subscription: Some(subscription), update_mask };
    admin.update_subscription(update).await.expect("updated");
    gateway.accept("stripe:cus_1", &["evt_bad", "evt_next"]).await;
    gateway.accept("stripe:cus_2", &["evt_other"]).await;
    let books = Books::default();
    let inner = books.clone();
    let handler = move |delivery: Delivery| {
        let books = inner.clone();
        async move {
            books.begin(&delivery);
            books.end(&delivery);
            if delivery.event_id() == "evt_bad" {
                Outcome::reject("BAD", "no such order")
            } else {
                Outcome::Ack
            }
        }
    };
    let consumer = Consumer::start(&gateway, &gateway.endpoint, &books, handler).await;
    books.until("two are settled", |entries| entries.settled.len() == 2).await;
    let parent = "subscriptions/billing".to_owned();
    let request = v1::ListParkedEntitiesRequest { parent, ..v1::ListParkedEntitiesRequest::default() };
    let blocked = patient(async {
        loop {
            let listed = admin.list_parked_entities(request.clone()).await.expect("listed").into_inner();
            let blocked =
                listed.parked_entities.into_iter().find(|one| one.state() == v1::ParkedState::Blocked);
            if let Some(blocked) = blocked.filter(|one| one.ordering_key == "stripe:cus_1") {
                return blocked;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(blocked.reason_code, "BAD");
    assert!(!books.read().began.iter().any(|id| id == "evt_next"), "it waits");
    admin.retry_parked_entity(v1::RetryParkedEntityRequest { name: blocked.name }).await.expect("asked");
    books.until("the entity goes on", |entries| entries.done.iter().any(|id| id == "evt_next")).await;
    consumer.stop().await;
}

/// A changed limit holds for the lanes that are served already.
#[tokio::test]
async fn a_change_of_a_subscription_holds_while_it_is_consumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let books = Books::default();
    let inner = books.clone();
    let handler = move |delivery: Delivery| {
        let books = inner.clone();
        async move {
            books.begin(&delivery);
            books.end(&delivery);
            Outcome::retry_after(Duration::from_secs(3_600), "DOWN", "not now")
        }
    };
    let consumer = Consumer::start(&gateway, &gateway.endpoint, &books, handler).await;
    gateway.accept("stripe:cus_0", &["evt_0"]).await;
    books.until("the first has failed", |entries| entries.settled.len() == 1).await;
    let billing = "billing".parse().expect("valid");
    let no = gateway.store.subscription(&billing).await.expect("read").expect("there").no;
    assert!(gateway.store.dead_letters(no, None, 10).await.expect("read").is_empty(), "it has two attempts");
    let subscription = v1::Subscription {
        name: "subscriptions/billing".to_owned(),
        attempts_max: 1,
        ..v1::Subscription::default()
    };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["attempts_max".to_owned()] });
    let update = v1::UpdateSubscriptionRequest { subscription: Some(subscription), update_mask };
    admin(&gateway).await.update_subscription(update).await.expect("updated");
    // The lanes hear of it in a moment: of the events that come, each has one attempt from some point on.
    for number in 1..200 {
        gateway.accept(&format!("stripe:cus_{number}"), &[&format!("evt_{number}")]).await;
        books.until("it has failed", |entries| entries.settled.len() == number + 1).await;
        if !gateway.store.dead_letters(no, None, 10).await.expect("read").is_empty() {
            consumer.stop().await;
            return;
        }
    }
    panic!("every event still had two attempts");
}
