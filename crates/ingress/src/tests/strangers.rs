//! What senders hold of whom nothing has verified yet.

use super::*;
use crate::forwarded::{ForwardedHeader, TrustedProxies};

/// A tenant may hold 2,000 bytes and 10 requests, its strangers half of that, and one strange address half of that again.
fn small() -> EdgeConfig {
    EdgeConfig {
        requests_max: 40,
        body_bytes_max: 500,
        body_bytes_in_flight_max: 8_000,
        trusted_proxies: TrustedProxies::new(
            vec!["127.0.0.0/8".parse().expect("valid")],
            ForwardedHeader::XForwardedFor,
        ),
        ..EdgeConfig::default()
    }
}

/// Announces a body that never comes, from an address; the answer's first line.
async fn announce(gateway: &Gateway, from: &str, bytes: usize) -> (TcpStream, String) {
    let length = bytes.to_string();
    let headers =
        pairs(&[("content-length", &length), ("expect", "100-continue"), ("x-forwarded-for", from)]);
    let mut stream = gateway.connect().await;
    stream.write_all(&request(&format!("POST {}", path(1)), &headers, b"")).await.expect("sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("answered");
    (stream, String::from_utf8_lossy(&answer).into_owned())
}

/// Announces bodies until one is refused; those that are waited for.
async fn crowd(gateway: &Gateway, from: &str, bytes: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    loop {
        let (stream, answer) = announce(gateway, from, bytes).await;
        match answer.as_str() {
            "HTTP/1.1 100" => held.push(stream),
            "HTTP/1.1 503" => return held,
            other => panic!("{other}"),
        }
    }
}

async fn deliver(gateway: &Gateway, from: &str, event: &str, length: usize) -> Reply {
    let mut event = stripe_event(event);
    event.resize(length, b' ');
    let (mut headers, body) = signed(1, &event, gateway.clock.now());
    headers.push(("x-forwarded-for".to_owned(), from.to_owned()));
    gateway.post(1, &headers, &body).await
}

#[tokio::test]
async fn bodies_that_strangers_announce_take_no_memory_from_a_known_provider() {
    let gateway = Gateway::bounded(small()).await;
    assert_eq!(deliver(&gateway, "192.0.2.1", "evt_1", 100).await.status, 200);
    let held = [crowd(&gateway, "198.51.100.1", 250).await, crowd(&gateway, "198.51.100.2", 250).await];
    assert_eq!(held.each_ref().map(Vec::len), [2, 2], "half of the tenant's, and half of that by address");
    let (_, answer) = announce(&gateway, "198.51.100.3", 250).await;
    assert_eq!(answer, "HTTP/1.1 503", "all that strangers may hold is held");
    assert_eq!(deliver(&gateway, "192.0.2.1", "evt_2", 500).await.status, 200);
    drop(held);
    gateway.stop().await;
}

#[tokio::test]
async fn requests_that_strangers_begin_take_no_place_from_a_known_provider() {
    let gateway = Gateway::bounded(small()).await;
    assert_eq!(deliver(&gateway, "192.0.2.1", "evt_1", 100).await.status, 200);
    let mut held = Vec::new();
    for from in ["198.51.100.1", "198.51.100.2", "198.51.100.3"] {
        held.extend(crowd(&gateway, from, 1).await);
    }
    assert_eq!(held.len(), 5, "of ten");
    let reply = deliver(&gateway, "203.0.113.9", "evt_2", 100).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    let message = "too much is in flight from senders of whom nothing has verified yet; try again";
    assert_eq!(reply.json()["message"], message);
    assert_eq!(deliver(&gateway, "192.0.2.1", "evt_2", 100).await.status, 200);
    drop(held);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while deliver(&gateway, "203.0.113.9", "evt_3", 100).await.status == 503 {
        assert!(tokio::time::Instant::now() < deadline, "what senders that left held is given back");
    }
    gateway.stop().await;
}
