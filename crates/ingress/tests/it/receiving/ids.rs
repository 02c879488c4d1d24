//! Ids and repeats.

use std::time::Duration;

use super::{SECRET, deliver, signs_the_body};
use crate::support::{Endpoint, Gateway, Message};

fn event_of(id: &str, account: &str) -> Vec<u8> {
    format!(r#"{{"id":"{id}","type":"t","account":"{account}","data":{{"object":{{"id":"x"}}}}}}"#)
        .into_bytes()
}

#[tokio::test]
async fn an_id_of_one_tenant_endpoint_provider_or_account_is_not_anothers() {
    let custom = |name: &str| Endpoint::new("custom", SECRET).named(name);
    let (one, two, foreign) = (custom("one"), custom("two"), custom("one").of("other"));
    let own = Endpoint::new(&signs_the_body(r#","id":["{json:id}"]"#), SECRET);
    let (stripe, second) = (Endpoint::new("stripe", SECRET), Endpoint::new("stripe", SECRET).named("second"));
    let foreign_stripe = stripe.clone().of("other");
    let endpoints = [&one, &two, &foreign, &own, &stripe, &second, &foreign_stripe].map(Clone::clone);
    let gateway = Gateway::start(&endpoints).await;
    for endpoint in [&one, &two, &foreign, &own] {
        deliver(&gateway, endpoint, br#"{"id":"evt_1"}"#).await.is_accepted(&endpoint.name);
        assert_eq!(deliver(&gateway, endpoint, br#"{"id":"evt_1"}"#).await.field("status"), "duplicate");
    }
    deliver(&gateway, &stripe, &event_of("evt_1", "acct_1")).await.is_accepted("a provider of its own");
    deliver(&gateway, &stripe, &event_of("evt_1", "acct_2")).await.is_accepted("another account");
    deliver(&gateway, &foreign_stripe, &event_of("evt_1", "acct_1")).await.is_accepted("another tenant");
    for account in ["acct_1", "acct_2"] {
        let receipt = gateway.receipt(&stripe, &format!("acct:{account}:evt_1")).await.expect("stored");
        assert!(!receipt.id_derived);
    }
    // Stripe's ids mean the same wherever a tenant receives them.
    let elsewhere = deliver(&gateway, &second, &event_of("evt_1", "acct_1")).await;
    assert_eq!(elsewhere.field("status"), "duplicate", "the same account's event at a second endpoint");
    gateway.stop().await;
}

#[tokio::test]
async fn an_event_without_an_id_is_known_by_its_bytes_and_marked() {
    let presets = ["lemonsqueezy", "paystack", "zoom"];
    let endpoints = presets.map(|preset| Endpoint::new(preset, SECRET));
    let gateway = Gateway::start(&endpoints).await;
    for endpoint in &endpoints {
        let bodies = [&br#"{"event":"e","n":1}"#[..], br#"{"event":"e","n":1}"#, br#"{"event":"e","n":2}"#];
        let mut statuses = Vec::new();
        for body in bodies {
            statuses.push(deliver(&gateway, endpoint, body).await.field("status"));
        }
        assert_eq!(statuses, ["accepted", "duplicate", "accepted"], "{}", endpoint.name);
    }
    let stored = gateway.stored(&endpoints[0]).await;
    assert!(stored.iter().all(|event| event.id_derived && event.event_id.contains(":sha256:")), "{stored:?}");
    assert_eq!(stored.len(), 6);
    gateway.stop().await;
}

#[tokio::test]
async fn equal_notifications_are_events_each_where_the_recipe_says_so() {
    let (dropbox, lemon) =
        (Endpoint::new("dropbox", SECRET), Endpoint::new("lemonsqueezy", SECRET).of("other"));
    let gateway = Gateway::start(&[dropbox.clone(), lemon.clone()]).await;
    let body = br#"{"list_folder":{"accounts":["dbid:A"]},"delta":{"users":[1]}}"#;
    let message = Message::signed(&dropbox, body);
    for n in 0..2 {
        let answer = gateway.send(&dropbox, &message).await;
        assert!((200..300).contains(&answer.status), "{n}: {answer:?}");
    }
    let stored = gateway.stored(&dropbox).await;
    assert_eq!(stored.len(), 2, "{stored:?}");
    assert!(stored.iter().all(|event| event.id_derived && event.body == body[..]));
    assert_ne!(stored[0].event_id, stored[1].event_id);
    assert_eq!(stored[0].ordering_key, stored[1].ordering_key, "they stay in order");

    let message = Message::signed(&lemon, body);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        statuses.push(gateway.send(&lemon, &message).await.field("status"));
    }
    assert_eq!(statuses, ["accepted", "duplicate"]);
    assert_eq!(gateway.stored(&lemon).await.len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_retry_that_differs_in_its_time_is_known_by_the_fields_that_the_recipe_names() {
    let recipe = signs_the_body(r#","id":["{json:event}:{json:payload.id}:{json:payload.status}"]"#);
    let (named, plain) =
        (Endpoint::new(&recipe, SECRET), Endpoint::new(&signs_the_body(""), SECRET).named("plain"));
    let gateway = Gateway::start(&[named.clone(), plain.clone()]).await;
    let attempt = |second: u8, status: &str| {
        format!(
            r#"{{"event":"DOCUMENT_SIGNED","payload":{{"id":10,"status":"{status}"}},"createdAt":"2025-06-15T15:06:{second:02}Z"}}"#
        )
    };
    deliver(&gateway, &named, attempt(1, "PENDING").as_bytes()).await.is_accepted("the first");
    let retry = deliver(&gateway, &named, attempt(2, "PENDING").as_bytes()).await;
    assert_eq!(retry.field("status"), "duplicate");
    deliver(&gateway, &named, attempt(3, "COMPLETED").as_bytes()).await.is_accepted("another event");
    // Where no fields are named the bytes decide, and they differ.
    deliver(&gateway, &plain, attempt(1, "PENDING").as_bytes()).await.is_accepted("the first");
    deliver(&gateway, &plain, attempt(2, "PENDING").as_bytes()).await.is_accepted("not recognised");
    gateway.stop().await;
}

#[tokio::test]
async fn a_receipt_of_a_derived_id_is_kept_for_a_shorter_time() {
    let endpoint = Endpoint::new(&signs_the_body(r#","id":["{json:id}"]"#), SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = br#"{"a":1}"#;
    deliver(&gateway, &endpoint, body).await.is_accepted("derived");
    deliver(&gateway, &endpoint, br#"{"id":"e"}"#).await.is_accepted("its own");
    let mut kept = Vec::new();
    for event in gateway.stored(&endpoint).await {
        let receipt = gateway.receipt(&endpoint, &event.event_id).await.expect("there");
        kept.push((receipt.id_derived, receipt.expires_at.since(receipt.received_at)));
    }
    let of = |derived: bool| kept.iter().find(|(is, _)| *is == derived).expect("one of each").1;
    assert!(of(true) < of(false) && of(true) >= Duration::from_secs(24 * 3600), "{kept:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_copies_that_come_together_one_is_accepted_and_all_get_the_same_receipt() {
    let endpoint = Endpoint::new("stripe", SECRET);
    let gateway = std::sync::Arc::new(Gateway::start(std::slice::from_ref(&endpoint)).await);
    let message = Message::signed(&endpoint, &super::stripe_event("evt_1"));
    let copies: Vec<_> = (0..50)
        .map(|_| {
            let (gateway, endpoint, message) =
                (std::sync::Arc::clone(&gateway), endpoint.clone(), message.clone());
            tokio::spawn(async move { gateway.send(&endpoint, &message).await })
        })
        .collect();
    let mut answers = Vec::new();
    for copy in copies {
        answers.push(copy.await.expect("no panic"));
    }
    let receipts: std::collections::HashSet<_> =
        answers.iter().map(|answer| answer.field("receipt_id")).collect();
    let accepted = answers.iter().filter(|answer| answer.field("status") == "accepted").count();
    assert!(answers.iter().all(|answer| answer.status == 200) && accepted == 1 && receipts.len() == 1);
    std::sync::Arc::into_inner(gateway).expect("all are answered").stop().await;
}
