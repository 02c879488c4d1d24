//! Handshakes: what is answered at once, and what must not be.

use super::{SECRET, deliver};
use crate::support::{Endpoint, Gateway, Message};

// RFC 8032, section 7.1, test 1.
const PRIVATE: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

#[tokio::test]
async fn discords_bad_signatures_get_401_and_its_pings_their_answer() {
    let endpoint = Endpoint::new("discord", PUBLIC);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let signed =
        |body: &[u8]| Message::signed_by(&endpoint, PRIVATE, body, portero_recipe::SignOptions::default());
    for (ping, status, reply) in [
        (&br#"{"version":1,"application_id":"1","type":0}"#[..], 204, ""),
        (br#"{"application_id":"1","id":"2","type":1,"token":"t","version":1}"#, 200, r#"{"type":1}"#),
    ] {
        let good = signed(ping);
        let answer = gateway.send(&endpoint, &good).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, reply), "{answer:?}");
        let mut wrong = good.clone();
        let value = wrong.header_mut("x-signature-ed25519");
        *value = format!("{}{}", if value.starts_with("00") { "01" } else { "00" }, &value[2..]);
        let none = Message::post(&[], ping);
        let stale = good.clone().with_body(&[ping, b" "].concat());
        for (what, message) in [("wrong", wrong), ("none", none), ("of another body", stale)] {
            let answer = gateway.send(&endpoint, &message).await;
            assert_eq!(answer.status, 401, "{what}: {answer:?}");
            assert!(!answer.body.contains(r#"{"type":1}"#), "{what}");
        }
    }
    assert!(gateway.stored(&endpoint).await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn slacks_check_of_the_url_is_answered_and_makes_no_event() {
    let endpoint = Endpoint::new("slack", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = br#"{"token":"t","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
    let answer = deliver(&gateway, &endpoint, body).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"), "{answer:?}");
    let unsigned = gateway.send(&endpoint, &Message::post(&[], body)).await;
    assert!(unsigned.status == 401 && !unsigned.body.contains("3eZbrw1a"), "{unsigned:?}");
    assert!(gateway.stored(&endpoint).await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn nobody_can_have_an_event_signed_by_asking_for_a_handshake() {
    let x = Endpoint::new("x-twitter", SECRET);
    let zoom = Endpoint::new("zoom", SECRET);
    let braintree = Endpoint::new("braintree", "publickey1|a private key of the tests");
    let gateway = Gateway::start(&[x.clone(), zoom.clone(), braintree.clone()]).await;
    for token in [
        "%7B%22forged%22%3A1%7D",
        "v0%3A1750000000%3A%7B%7D",
        "a%3Ab",
        "a%20b",
        "a%0Ab",
        "",
        "%FF",
        "abc&crc_token=def",
        &"a".repeat(129),
    ] {
        let answer = gateway.send(&x, &Message::get(&format!("crc_token={token}"))).await;
        answer.is_refused("HANDSHAKE_REFUSED", token);
        assert!(!answer.body.contains("sha256="), "{answer:?}");
    }
    let payload = "PG5vdGlmaWNhdGlvbj48a2luZD5jaGVjazwva2luZD48L25vdGlmaWNhdGlvbj4%3D";
    for challenge in [payload, "abc", "ABCDEF0123456789ABCDEF", &"a".repeat(33), "0123456789abcdef0123%0A"] {
        let answer = gateway.send(&braintree, &Message::get(&format!("bt_challenge={challenge}"))).await;
        answer.is_refused("HANDSHAKE_REFUSED", challenge);
        assert!(!answer.body.contains('|'), "{answer:?}");
    }
    // Zoom's check is signed itself: who could forge one needs no oracle. It is guarded all the same.
    for token in ["v0:1750000000:{}", "{\\\"event\\\":1}", "a b", ""] {
        let body = format!(r#"{{"event":"endpoint.url_validation","payload":{{"plainToken":"{token}"}}}}"#);
        deliver(&gateway, &zoom, body.as_bytes()).await.is_refused("HANDSHAKE_REFUSED", token);
        let unsigned = gateway.send(&zoom, &Message::post(&[], body.as_bytes())).await;
        unsigned.is_refused("SIGNATURE_MISSING", token);
    }
    // Tokens of the documented shape are answered.
    assert_eq!(gateway.send(&x, &Message::get("crc_token=MGFjMzQ1_-abc")).await.status, 200);
    let challenge = Message::get("bt_challenge=20f9f8ed05f77439fe955c977e4c8a53");
    assert_eq!(gateway.send(&braintree, &challenge).await.status, 200);
    let good = br#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    assert_eq!(deliver(&gateway, &zoom, good).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn an_answered_ping_says_nothing_of_the_events_that_follow() {
    let recipe = super::signs_the_body(r#","id":["{json:id}"],"type":["{json:action}"]"#);
    let endpoint = Endpoint::new(&recipe, SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    deliver(&gateway, &endpoint, br#"{"id":"p","action":"ping"}"#).await.is_accepted("the ping");
    let html =
        br#"{"id":"e1","action":"offer_created","notes":"<p class=\"x\">Caf\u00e9 &amp; <b>more<\/b><\/p>"}"#;
    let message = Message::signed(&endpoint, html);
    let text = std::str::from_utf8(html).expect("text");
    for changed in [text.replace("&amp;", "&"), text.replace("<\\/", "</"), text.replace('<', "\\u003c")] {
        let answer = gateway.send(&endpoint, &message.clone().with_body(changed.as_bytes())).await;
        answer.is_refused("SIGNATURE_MISMATCH", &changed);
    }
    gateway.send(&endpoint, &message).await.is_accepted("with HTML inside");
    gateway.stop().await;
}
