//! From signed bytes to a committed event and its answer.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use portero_prefilter::{Hit, Key};

use super::*;
use crate::testing::Fault;

#[tokio::test]
async fn the_first_is_accepted_its_repeats_are_duplicates_and_other_bytes_do_not_replace_it() {
    let gateway = Gateway::start().await;
    let first = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!((first.status, first.json()["status"].as_str()), (200, Some("accepted")), "{first:?}");
    let receipt = first.json()["receipt_id"].clone();
    for _ in 0..3 {
        let repeat = gateway.deliver(1, &stripe_event("evt_1")).await;
        assert_eq!((repeat.status, repeat.json()["status"].as_str()), (200, Some("duplicate")));
        assert_eq!(repeat.json()["receipt_id"], receipt);
        assert_ne!(repeat.json()["request_id"], first.json()["request_id"]);
        assert_eq!(repeat.json()["request_id"].as_str(), repeat.header("x-request-id"));
    }
    let mut other = stripe_event("evt_1");
    other.push(b' ');
    let conflict = gateway.deliver(1, &other).await;
    assert_eq!((conflict.status, conflict.json()["status"].as_str()), (200, Some("duplicate")));
    assert_eq!(conflict.json()["receipt_id"], receipt, "the first one is kept");
    assert_eq!(gateway.stored(), ["evt_1"]);
    gateway.stop().await;
}

#[tokio::test]
async fn an_event_is_stored_with_everything_known_of_it() {
    let gateway = Gateway::start().await;
    let (mut headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    headers.retain(|(name, _)| name != "content-type" && name != "user-agent");
    headers.extend(pairs(&[
        ("content-type", "application/json"),
        ("user-agent", "Stripe/1.0"),
        ("cookie", "a=b"),
    ]));
    assert_eq!(gateway.post(1, &headers, &body).await.status, 200);
    let event = gateway.store.with(|state| state.events[0].clone());
    assert_eq!(event.event_type, "invoice.paid");
    assert_eq!(event.ordering_key, "stripe:in_1");
    assert_eq!(event.secret_no, Some(SecretNo(1)));
    assert_eq!((event.id_derived, event.received_at), (false, NOW));
    assert_eq!(event.expires_at, NOW.plus(Duration::from_secs(35 * 24 * 3600)));
    let content = opened(&event);
    assert_eq!(content.content_type, "application/json");
    assert!(event.trace_parent.starts_with("00-"));
    let kept: Vec<_> = content.headers.iter().map(|header| header.name.as_str()).collect();
    assert!(kept.contains(&"user-agent") && !kept.contains(&"stripe-signature") && !kept.contains(&"cookie"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_after_its_body_gets_its_event_stored() {
    let store = FakeStore::gated(0);
    let gateway = Gateway::with(EdgeConfig::default(), Arc::clone(&store), Arc::new(Disabled)).await;
    let (headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    let mut stream = gateway.connect().await;
    stream.write_all(&post(&path(1), &headers, &body)).await.expect("sent");
    store.until_in_flight(1).await;
    stream.set_zero_linger().expect("a socket");
    drop(stream);
    // Another request shows that the server has seen more than the first.
    assert_eq!(gateway.raw(&request(&format!("HEAD {}", path(1)), &[], b"")).await.status, 200);
    store.gate.add_permits(1);
    gateway.stop().await;
    assert_eq!(store.with(|state| state.log.clone()), ["evt_1"]);
}

#[tokio::test]
async fn a_client_that_leaves_within_its_body_leaves_nothing() {
    let gateway = Gateway::start().await;
    let (headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    let message = post(&path(1), &headers, &body);
    let mut stream = gateway.connect().await;
    stream.write_all(&message[..message.len() - 5]).await.expect("sent");
    drop(stream);
    assert_eq!(gateway.deliver(1, &stripe_event("evt_2")).await.status, 200);
    let store = Arc::clone(&gateway.store);
    gateway.stop().await;
    assert_eq!(store.with(|state| state.log.clone()), ["evt_2"]);
}

#[tokio::test]
async fn each_way_not_to_verify_has_its_own_reason_and_no_effect() {
    let gateway = Gateway::start().await;
    let body = stripe_event("evt_1");
    let at = |secs: i64| signed(1, &body, Timestamp::from_secs(NOW.as_secs() + secs)).0;
    let good = at(0);
    let twice: Vec<_> = good.iter().chain(&good).filter(|(n, _)| n == "stripe-signature").cloned().collect();
    let signature = good.iter().find(|(name, _)| name == "stripe-signature").expect("signed").1.clone();
    let with = |value: &str| pairs(&[("stripe-signature", value)]);
    let cases = [
        (1, Vec::new(), "SIGNATURE_MISSING"),
        (1, twice, "SIGNATURE_DUPLICATED"),
        (1, with("t=1750000000,v1=not-hex"), "SIGNATURE_MALFORMED"),
        (1, with(&format!("t=1750000000,v1={}", "0".repeat(64))), "SIGNATURE_MISMATCH"),
        (1, with(&signature.replace("t=", "x=")), "TIMESTAMP_MISSING"),
        (1, at(-3 * 24 * 3600), "TIMESTAMP_TOO_OLD"),
        (1, at(24 * 3600), "TIMESTAMP_IN_FUTURE"),
        (BARE, good, "NO_ACTIVE_SECRET"),
    ];
    for (source, headers, reason) in cases {
        let reply = gateway.post(source, &headers, &body).await;
        assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some(reason)), "{reply:?}");
        assert_eq!(reply.json()["error"], "rejected");
        assert!(!reply.json()["message"].as_str().unwrap_or_default().is_empty(), "it says what to do");
        assert_eq!(reply.json()["request_id"].as_str(), reply.header("x-request-id"));
        let shown = format!("{reply:?}");
        assert!(!shown.contains("evt_1") && !shown.contains("whsec"), "neither payload nor secret: {shown}");
    }
    assert!(gateway.store.with(|state| state.calls.is_empty()), "the store was not asked");
    gateway.stop().await;
}

#[tokio::test]
async fn one_changed_byte_or_another_sources_secret_does_not_verify() {
    let gateway = Gateway::start().await;
    let (headers, mut body) = signed(1, &stripe_event("evt_1"), NOW);
    body[10] ^= 1;
    let reply = gateway.post(1, &headers, &body).await;
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("SIGNATURE_MISMATCH")));
    gateway.stop().await;
}

#[tokio::test]
async fn odd_bodies_that_verify_are_stored_unchanged() {
    let gateway = Gateway::start().await;
    let deep = format!(r#"{{"id":"evt_deep","a":{}1{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let bodies: [&[u8]; 9] = [
        b"",
        b"\xff\xfe\x00",
        b"{\"id\":\"evt_nul\\u0000\"}",
        b"\x00{\"id\":\"evt_raw_nul\"}",
        b"\xef\xbb\xbf{\"id\":\"evt_bom\",\"type\":\"a\"}",
        b"{\"id\":9223372036854775809}",
        b"{\"id\":\"evt_a\",\"id\":\"evt_b\"}",
        deep.as_bytes(),
        b"not json at all",
    ];
    for body in bodies {
        let reply = gateway.deliver(1, body).await;
        let label = String::from_utf8_lossy(&body[..body.len().min(30)]).into_owned();
        assert_eq!(
            (reply.status, reply.json()["status"].as_str()),
            (200, Some("accepted")),
            "{label:?}: {reply:?}"
        );
        let stored = gateway.store.with(|state| state.events.last().expect("stored").clone());
        assert_eq!(opened(&stored).body, body, "{label:?}");
        assert!(!stored.event_id.contains('\0') && !stored.ordering_key.contains('\0'), "{label:?}");
        assert!(stored.event_id != "evt_a" && stored.event_id != "evt_b", "an ambiguous id is not used");
        let again = gateway.deliver(1, body).await;
        assert_eq!(again.json()["status"], "duplicate", "{label:?}");
    }
    let ids = gateway.stored();
    assert!(ids.contains(&"evt_bom".to_owned()), "a BOM is skipped for reading: {ids:?}");
    assert!(ids.contains(&"9223372036854775809".to_owned()), "numbers keep their source text: {ids:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_store_that_is_down_before_or_during_the_commit_gets_503_and_loses_nothing() {
    let gateway = Gateway::start().await;
    for (fault, code) in [(Fault::Unavailable, "store_unavailable"), (Fault::Corrupt, "store_broken")] {
        gateway.store.with(|state| state.faults.push_back(fault));
        let reply = gateway.deliver(1, &stripe_event("evt_1")).await;
        assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some(code)));
        assert!(reply.header("retry-after").is_some());
        assert!(gateway.stored().is_empty());
    }
    gateway
        .store
        .with(|state| state.faults.extend([Fault::LostAnswer, Fault::Unavailable, Fault::Unavailable]));
    let reply = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some("outcome_unknown")));
    let reply = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("duplicate")));
    assert_eq!(gateway.stored(), ["evt_1"]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_row_that_the_store_refuses_is_our_fault_and_says_so() {
    let gateway = Gateway::start().await;
    gateway.store.with(|state| state.refused.insert("evt_1".to_owned()));
    let reply = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (500, Some("store_refused")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_header_borne_id_and_type_are_read() {
    let gateway = Gateway::start().await;
    let reply = gateway.deliver(2, br#"{"repository":{"id":7}}"#).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let event = gateway.store.with(|state| state.events[0].clone());
    assert!(event.event_id.contains("delivery-1"), "{}", event.event_id);
    assert!(event.event_type.starts_with("push"), "{}", event.event_type);
    gateway.stop().await;
}

#[tokio::test]
async fn a_signed_challenge_is_answered_and_makes_no_event() {
    let gateway = Gateway::start().await;
    let body = br#"{"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
    let reply = gateway.deliver(3, body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.body.contains("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"));
    let mut forged = signed(3, body, NOW).0;
    for (name, value) in &mut forged {
        if name == "x-slack-signature" {
            *value = format!("v0={}", "0".repeat(64));
        }
    }
    assert_eq!(gateway.post(3, &forged, body).await.status, 401);
    assert!(gateway.stored().is_empty());
    gateway.stop().await;
}

fn adyen_batch() -> Vec<u8> {
    let item = |reference: &str| {
        format!(
            r#"{{"NotificationRequestItem":{{"amount":{{"currency":"EUR","value":1130}},"eventCode":"AUTHORISATION","merchantAccountCode":"TestMerchant","merchantReference":"ref","pspReference":"{reference}","success":"true","additionalData":{{}}}}}}"#
        )
    };
    format!(r#"{{"live":"false","notificationItems":[{},{}]}}"#, item("psp1"), item("psp2")).into_bytes()
}

#[tokio::test]
async fn a_batch_commits_together_and_gets_the_providers_word() {
    let gateway = Gateway::start().await;
    let reply = gateway.deliver(4, &adyen_batch()).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "[accepted]"), "{reply:?}");
    assert!(reply.header("x-request-id").is_some());
    gateway.store.with(|state| {
        assert_eq!(state.calls.len(), 1, "one call");
        assert_eq!(state.log.len(), 2);
        assert_ne!(state.events[0].body_digest, state.events[1].body_digest);
    });
    gateway.stop().await;
}

#[tokio::test]
async fn a_batch_with_one_forged_item_stores_none() {
    let gateway = Gateway::start().await;
    let (headers, body) = signed(4, &adyen_batch(), NOW);
    let forged = String::from_utf8(body).expect("text").replacen("psp2", "psp9", 1).into_bytes();
    let reply = gateway.post(4, &headers, &forged).await;
    assert_eq!(reply.status, 401, "{reply:?}");
    assert!(gateway.stored().is_empty());
    gateway.stop().await;
}

/// Remembers everything, in memory.
#[derive(Default)]
pub(super) struct Perfect(pub(super) Mutex<HashMap<Key, Hit>>);

#[async_trait]
impl Prefilter for Perfect {
    async fn lookup(&self, keys: &[Key]) -> Vec<Option<Hit>> {
        let known = self.0.lock().expect("not poisoned");
        keys.iter().map(|key| known.get(key).copied()).collect()
    }

    async fn remember(&self, events: &[(Key, Hit)]) {
        self.0.lock().expect("not poisoned").extend(events.iter().cloned());
    }
}

#[tokio::test]
async fn a_remembered_repeat_does_not_reach_the_store_but_a_conflict_does() {
    let prefilter = Arc::new(Perfect::default());
    let gateway = Gateway::with(EdgeConfig::default(), FakeStore::open(), Arc::clone(&prefilter) as _).await;
    let first = gateway.deliver(1, &stripe_event("evt_1")).await;
    while prefilter.0.lock().expect("not poisoned").is_empty() {
        tokio::task::yield_now().await;
    }
    gateway.directory.refresh_now().await.expect("readable");
    let repeat = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!(repeat.json()["status"], "duplicate");
    assert_eq!(repeat.json()["receipt_id"], first.json()["receipt_id"]);
    assert_eq!(gateway.store.with(|state| state.calls.len()), 1, "the store was not asked");
    let mut other = stripe_event("evt_1");
    other.push(b' ');
    assert_eq!(gateway.deliver(1, &other).await.json()["receipt_id"], first.json()["receipt_id"]);
    assert_eq!(gateway.store.with(|state| state.calls.len()), 2, "the store judges a conflict");
    gateway.stop().await;
}

#[tokio::test]
async fn what_failed_is_not_remembered() {
    let prefilter = Arc::new(Perfect::default());
    let gateway = Gateway::with(EdgeConfig::default(), FakeStore::open(), Arc::clone(&prefilter) as _).await;
    gateway.store.with(|state| state.faults.push_back(Fault::Unavailable));
    assert_eq!(gateway.deliver(1, &stripe_event("evt_1")).await.status, 503);
    gateway.stop().await;
    assert!(prefilter.0.lock().expect("not poisoned").is_empty());
}
