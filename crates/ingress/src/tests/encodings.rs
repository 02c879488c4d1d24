//! Bodies that come packed.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::*;

const SOURCE: u8 = 20;
const SECRET: &str = "a-long-enough-secret-for-packed-bodies";

fn recipe(compressed: &str) -> String {
    format!(
        r#"{{"version":1,"title":"Packed","about":"Signs the body.",{compressed}
            "schemes":[{{"signature":{{"header":"X-Signature"}},"algorithm":"hmac-sha256","keys":["text"],
            "message":"{{body}}","id":["{{json:id}}"],"type":["{{json:type}}"],"entity":["{{json:entity}}"]}}]}}"#
    )
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut packing = GzEncoder::new(Vec::new(), Compression::best());
    packing.write_all(plain).expect("a Vec takes everything");
    packing.finish().expect("a Vec takes everything")
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut packing = ZlibEncoder::new(Vec::new(), Compression::best());
    packing.write_all(plain).expect("a Vec takes everything");
    packing.finish().expect("a Vec takes everything")
}

/// The headers of a body packed as `coding`, signed over `signed`.
fn headers(compressed: &str, coding: &str, signed: &[u8]) -> Vec<(String, String)> {
    let recipe = Recipe::from_json(&recipe(compressed)).expect("a recipe");
    let options = SignOptions { now: NOW, ..SignOptions::default() };
    let mut headers = sign(&recipe, SECRET, signed, options).expect("signs").headers;
    headers.push(("content-encoding".to_owned(), coding.to_owned()));
    headers
}

const AS_SENT: &str = r#""compressed":"as_sent","#;
const INFLATED: &str = r#""compressed":"inflated","#;

async fn started(compressed: &str) -> Gateway {
    let gateway = Gateway::start().await;
    gateway.add(SOURCE, &recipe(compressed), Some(SECRET), |_| {}).await;
    gateway
}

fn event(id: &str) -> Vec<u8> {
    format!(r#"{{"id":"{id}","type":"t","entity":"e","text":"{}"}}"#, "abc".repeat(5_000)).into_bytes()
}

#[tokio::test]
async fn a_body_that_is_signed_as_sent_verifies_packed_and_is_stored_inflated() {
    let gateway = started(AS_SENT).await;
    for (n, coding) in ["gzip", "x-gzip", "deflate"].into_iter().enumerate() {
        let plain = event(&format!("evt_{n}"));
        let wire = if coding == "deflate" { zlib(&plain) } else { gzip(&plain) };
        let reply = gateway.post(SOURCE, &headers(AS_SENT, coding, &wire), &wire).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("accepted")), "{reply:?}");
        let stored = gateway.store.with(|state| state.events.last().expect("stored").clone());
        assert_eq!((opened(&stored).body.as_ref(), stored.event_type.as_str()), (&plain[..], "t"));
        // Signed over what it inflates to, it is forged.
        let reply = gateway.post(SOURCE, &headers(AS_SENT, coding, &plain), &wire).await;
        assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("SIGNATURE_MISMATCH")));
    }
    assert_eq!(gateway.stored().len(), 3);
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_is_signed_inflated_verifies_and_is_stored_inflated() {
    let gateway = started(INFLATED).await;
    let plain = event("evt_1");
    let wire = gzip(&plain);
    let reply = gateway.post(SOURCE, &headers(INFLATED, "gzip", &wire), &wire).await;
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("SIGNATURE_MISMATCH")));
    let reply = gateway.post(SOURCE, &headers(INFLATED, "GZIP", &plain), &wire).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("accepted")), "{reply:?}");
    // The same event unpacked is the same event.
    let mut unpacked = headers(INFLATED, "identity", &plain);
    let reply = gateway.post(SOURCE, &unpacked, &plain).await;
    assert_eq!(reply.json()["status"], "duplicate");
    unpacked.pop();
    assert_eq!(gateway.post(SOURCE, &unpacked, &plain).await.json()["status"], "duplicate");
    assert_eq!(gateway.store.with(|state| opened(&state.events[0]).body), plain);
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_inflates_beyond_the_limit_gets_413_and_one_that_does_not_inflate_400() {
    let gateway = started(INFLATED).await;
    let bomb = gzip(&vec![b' '; 50 << 20]);
    assert!(bomb.len() < 100_000, "small on the wire");
    let reply = gateway.post(SOURCE, &headers(INFLATED, "gzip", b""), &bomb).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (413, Some("too_large")), "{reply:?}");
    let whole = gzip(&event("evt_1"));
    for broken in [&whole[..whole.len() - 1], b"{\"id\":1}", b"", &zlib(b"{}")] {
        let reply = gateway.post(SOURCE, &headers(INFLATED, "gzip", broken), broken).await;
        let reason = reply.json()["reason"].clone();
        assert_eq!((reply.status, reason.as_str()), (400, Some("ENCODING_MALFORMED")), "{reply:?}");
    }
    assert!(gateway.stored().is_empty());
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let reasons: Vec<_> = kept.rows().into_iter().map(|row| row.reason).collect();
    assert_eq!(reasons[0], "BODY_TOO_LARGE");
    assert!(
        reasons[1..].iter().all(|reason| reason == "ENCODING_MALFORMED") && reasons.len() == 5,
        "{reasons:?}"
    );
}

#[tokio::test]
async fn several_codings_or_unknown_ones_get_415_and_learn_which_are_taken() {
    let gateway = started(INFLATED).await;
    for coding in ["br", "gzip, gzip", "deflate, gzip", "gzip;q=1", "zstd"] {
        let reply = gateway.post(SOURCE, &pairs(&[("content-encoding", coding)]), b"x").await;
        assert_eq!((reply.status, reply.header("accept-encoding")), (415, Some("gzip, deflate, identity")));
    }
    let twice = pairs(&[("content-encoding", "gzip"), ("content-encoding", "gzip")]);
    assert_eq!(gateway.post(SOURCE, &twice, b"x").await.status, 415);
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_body_inflates_to_counts_against_the_memory_for_bodies() {
    let config = EdgeConfig { body_bytes_in_flight_max: 10_000, ..EdgeConfig::default() };
    let gateway = Gateway::bounded(config).await;
    gateway.add(SOURCE, &recipe(INFLATED), Some(SECRET), |_| {}).await;
    let plain = event("evt_1");
    let wire = gzip(&plain);
    assert!(wire.len() < 1_000 && plain.len() > 10_000);
    let reply = gateway.post(SOURCE, &headers(INFLATED, "gzip", &plain), &wire).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some("overloaded")), "{reply:?}");
    assert!(reply.header("retry-after").is_some());
    let small = br#"{"id":"evt_2"}"#;
    let reply = gateway.post(SOURCE, &headers(INFLATED, "gzip", small), &gzip(small)).await;
    assert_eq!(reply.status, 200, "the share was given back: {reply:?}");
    gateway.stop().await;
}
