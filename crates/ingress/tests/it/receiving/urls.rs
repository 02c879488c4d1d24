//! The URL is part of the signed text.

use portero_recipe::SignOptions;

use super::SECRET;
use crate::support::{Endpoint, Gateway, Message};

const FORM: &[u8] = b"CallSid=CA1&CallStatus=ringing&From=%2B1234";

fn signed_for(endpoint: &Endpoint, url: &str, body: &[u8]) -> Message {
    Message::signed_with(endpoint, body, SignOptions { url: Some(url), ..SignOptions::default() })
}

#[tokio::test]
async fn the_default_port_may_be_named_or_not_and_no_other_port_passes() {
    let endpoints = [
        ("plain", "https://hooks.example.com/in/1"),
        ("with-port", "https://hooks.example.com:443/in/1"),
        ("insecure", "http://hooks.example.com/in/1"),
        ("own-port", "https://hooks.example.com:8443/in/1"),
    ]
    .map(|(name, url)| Endpoint::new("twilio", SECRET).named(name).url(url));
    let gateway = Gateway::start(&endpoints).await;
    let [plain, with_port, insecure, own_port] = &endpoints;
    for (endpoint, url, good) in [
        (plain, "https://hooks.example.com/in/1", true),
        (plain, "https://hooks.example.com:443/in/1", true),
        (plain, "https://hooks.example.com:8443/in/1", false),
        (plain, "https://hooks.example.com:80/in/1", false),
        (plain, "http://hooks.example.com/in/1", false),
        (with_port, "https://hooks.example.com/in/1", true),
        (with_port, "https://hooks.example.com:443/in/1", true),
        (insecure, "http://hooks.example.com:80/in/1", true),
        (insecure, "http://hooks.example.com:443/in/1", false),
        (own_port, "https://hooks.example.com:8443/in/1", true),
        (own_port, "https://hooks.example.com/in/1", false),
    ] {
        let answer = gateway.send(endpoint, &signed_for(endpoint, url, FORM)).await;
        let wanted = if good { 200 } else { 401 };
        assert_eq!(answer.status, wanted, "{} signed for {url}: {answer:?}", endpoint.name);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_url_counts_byte_for_byte_and_both_count_during_a_move() {
    let (old, new) = ("https://old.example.com/square", "https://new.example.org/square");
    let before = Endpoint::new("square", SECRET).named("before").url(old);
    let moving = Endpoint::new("square", SECRET).named("moving").url(old).url(new);
    let after = Endpoint::new("square", SECRET).named("after").url(new);
    let gateway = Gateway::start(&[before.clone(), moving.clone(), after.clone()]).await;
    let send = async |endpoint: &Endpoint, url: &str, id: &str| {
        let body = format!(r#"{{"merchant_id":"{}","event_id":"{id}","type":"t"}}"#, endpoint.name);
        gateway.send(endpoint, &signed_for(endpoint, url, body.as_bytes())).await
    };
    send(&before, old, "e0").await.is_accepted("the configured one");
    for other in [
        "https://old.example.com/square/",
        "http://old.example.com/square",
        "https://OLD.example.com/square",
        "https://old.example.com:443/square",
        "https://old.example.com/Square",
        "https://old.example.com/square?",
        new,
    ] {
        send(&before, other, "e1").await.is_refused("SIGNATURE_MISMATCH", other);
    }
    send(&moving, old, "e2").await.is_accepted("from before the move");
    send(&moving, new, "e3").await.is_accepted("from after it");
    send(&moving, "https://elsewhere.example.com/square", "e4")
        .await
        .is_refused("SIGNATURE_MISMATCH", "neither");
    send(&after, old, "e5").await.is_refused("SIGNATURE_MISMATCH", "the move is over");
    gateway.stop().await;
}

#[tokio::test]
async fn the_configured_url_counts_and_never_where_the_request_says_it_went() {
    let endpoint = Endpoint::new("square", SECRET).url("https://hooks.example.com/square");
    let without = Endpoint::new("square", SECRET).named("without");
    let gateway = Gateway::start(&[endpoint.clone(), without.clone()]).await;
    let body = br#"{"merchant_id":"M","event_id":"e1","type":"t"}"#;
    let good = signed_for(&endpoint, "https://hooks.example.com/square", body);
    gateway
        .send(&endpoint, &good.clone().with("host", "127.0.0.1:8080"))
        .await
        .is_accepted("by a local address");

    let forged = signed_for(&endpoint, "https://evil.example.com/square", body);
    for (name, value) in [
        ("host", "evil.example.com"),
        ("x-forwarded-host", "evil.example.com"),
        ("forwarded", "host=evil.example.com;proto=https"),
        ("x-original-url", "https://evil.example.com/square"),
    ] {
        let answer = gateway.send(&endpoint, &forged.clone().with(name, value)).await;
        answer.is_refused("SIGNATURE_MISMATCH", name);
    }
    let own = format!("http://localhost{}", without.path());
    let answer = gateway.send(&without, &signed_for(&without, &own, body)).await;
    answer.is_refused("PUBLIC_URL_UNKNOWN", "none is configured, and none is guessed");
    gateway.stop().await;
}
