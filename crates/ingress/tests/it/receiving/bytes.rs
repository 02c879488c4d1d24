//! The bytes were changed before the check.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{SECRET, deliver, signs_the_body};
use crate::support::{Endpoint, Gateway, Message};

/// Bodies as they are sent, and as a JSON reader would write them again.
const SPELLINGS: [(&str, &str, &str, &str); 7] = [
    (
        "two spaces of indentation",
        "stripe",
        "{\n  \"id\": \"evt_1\",\n  \"type\": \"charge.refunded\"\n}",
        r#"{"id":"evt_1","type":"charge.refunded"}"#,
    ),
    (
        "spaces after colons",
        "zoom",
        r#"{"event": "meeting.ended", "payload": {"account_id": "A"}}"#,
        r#"{"event":"meeting.ended","payload":{"account_id":"A"}}"#,
    ),
    (
        "an escaped slash",
        "zoom",
        r#"{"event":"meeting.started","payload":{"object":{"topic":"a\/b"}}}"#,
        r#"{"event":"meeting.started","payload":{"object":{"topic":"a/b"}}}"#,
    ),
    (
        "an escaped letter",
        "zoom",
        r#"{"event":"meeting.updated","payload":{"object":{"topic":"caf\u00e9"}}}"#,
        r#"{"event":"meeting.updated","payload":{"object":{"topic":"café"}}}"#,
    ),
    (
        "a number that is not in its shortest form",
        "workos",
        r#"{"id":"event_1","event":"dsync.user.updated","data":{"id":"du_1","weight":1.0}}"#,
        r#"{"id":"event_1","event":"dsync.user.updated","data":{"id":"du_1","weight":1}}"#,
    ),
    (
        "line ends of another system",
        "github",
        "{\r\n\t\"action\": \"opened\"\r\n}\r\n",
        "{\n\t\"action\": \"opened\"\n}\n",
    ),
    ("members in another order", "github", r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
];

#[tokio::test]
async fn a_body_counts_as_it_was_sent_and_not_as_it_could_be_written_again() {
    let endpoints = ["stripe", "zoom", "workos", "github"].map(|preset| Endpoint::new(preset, SECRET));
    let gateway = Gateway::start(&endpoints).await;
    for (n, (what, preset, sent, written_again)) in SPELLINGS.into_iter().enumerate() {
        let endpoint = endpoints.iter().find(|endpoint| endpoint.name == preset).expect("there");
        let id = format!("id-{n}");
        let options = portero_recipe::SignOptions { id: Some(&id), ..Default::default() };
        let message = Message::signed_with(endpoint, sent.as_bytes(), options);
        let changed = gateway.send(endpoint, &message.clone().with_body(written_again.as_bytes())).await;
        changed.is_refused("SIGNATURE_MISMATCH", what);
        gateway.send(endpoint, &message).await.is_accepted(what);
        let stored = gateway.stored(endpoint).await;
        assert!(stored.iter().any(|event| event.body == sent), "{what}: stored as it was sent");
        assert!(stored.iter().all(|event| event.body != written_again), "{what}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_pretty_printed_body_needs_no_minifying() {
    let recipe = signs_the_body(r#","type":["{json:payload.action}"],"entity":["{json:payload.object.id}"]"#);
    let endpoint = Endpoint::new(&recipe, SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = b"{\n    \"payload\" : {\n        \"action\" : \"check.completed\",\n        \"object\" : { \"id\" : \"c1\" }\n    }\n}";
    deliver(&gateway, &endpoint, body).await.is_accepted("pretty");
    let stored = gateway.stored(&endpoint).await;
    assert_eq!(
        (stored[0].event_type.as_str(), stored[0].ordering_key.as_str()),
        ("check.completed", "own:c1")
    );
    gateway.stop().await;
}

#[tokio::test]
async fn of_a_form_its_own_bytes_are_signed_and_not_the_json_inside() {
    let endpoint = Endpoint::new("github", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let form = b"payload=%7B%22action%22%3A%22opened%22%2C%22repository%22%3A%7B%22id%22%3A5%7D%7D";
    let message = Message::signed(&endpoint, form);
    for inside in [
        &br#"{"action":"opened","repository":{"id":5}}"#[..],
        br#"payload={"action":"opened","repository":{"id":5}}"#,
    ] {
        let answer = gateway.send(&endpoint, &message.clone().with_body(inside)).await;
        answer.is_refused("SIGNATURE_MISMATCH", "decoded");
    }
    gateway.send(&endpoint, &message).await.is_accepted("the form");
    let stored = gateway.stored(&endpoint).await;
    assert_eq!((&stored[0].body[..], stored[0].ordering_key.as_str()), (&form[..], "github:5"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_sender_that_signs_other_bytes_than_it_sends_is_told_so_and_not_helped() {
    let endpoint = Endpoint::new(&signs_the_body(""), SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let answer =
        gateway.send(&endpoint, &Message::signed(&endpoint, br#"{"a": 1}"#).with_body(br#"{"a":1}"#)).await;
    answer.is_refused("SIGNATURE_MISMATCH", "signed spaced, sent compact");
    let message = answer.field("message");
    assert!(message.contains("no signature matches the bytes received"), "{message}");
    assert!(gateway.stored(&endpoint).await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_something_in_front_packed_in_base64_or_printed_anew_does_not_verify() {
    let endpoint = Endpoint::new("stripe", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = super::stripe_event("evt_1");
    let message = Message::signed(&endpoint, &body);
    let value: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    let packed = STANDARD.encode(&body);
    let in_an_envelope = serde_json::json!({"body": packed, "isBase64Encoded": true}).to_string();
    let printed = serde_json::to_string_pretty(&value).expect("JSON");
    for (what, changed) in [("base64", packed), ("an envelope", in_an_envelope), ("printed anew", printed)] {
        let answer = gateway.send(&endpoint, &message.clone().with_body(changed.as_bytes())).await;
        answer.is_refused("SIGNATURE_MISMATCH", what);
    }
    gateway.send(&endpoint, &message).await.is_accepted("as it was sent");
    gateway.stop().await;
}
