//! Transfer, encoding, size and method.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{SECRET, deliver, signs_the_body, stripe_event};
use crate::support::{Answer, Endpoint, Gateway, Message};

/// Another host's way to send a body in parts.
fn chunked(body: &[u8], bytes: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in body.chunks(bytes) {
        wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

#[tokio::test]
async fn a_body_in_chunks_is_the_same_body() {
    let endpoint = Endpoint::new("stripe", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    for bytes in [1, 7, 4096] {
        let id = format!("evt_{bytes}");
        let message = Message::signed(&endpoint, &stripe_event(&id));
        let head = message.head(&endpoint.path()) + "transfer-encoding: chunked\r\n\r\n";
        let answer = gateway.raw(&[head.as_bytes(), &chunked(&message.body, bytes)].concat()).await;
        answer.is_accepted(&id);
    }
    let stored = gateway.stored(&endpoint).await;
    assert!(stored.iter().all(|event| event.body == stripe_event(&event.event_id)), "{stored:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_sender_that_asks_before_it_sends_is_answered_whether_it_waits_or_not() {
    let endpoint = Endpoint::new("stripe", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let large = format!(r#"{{"id":"evt_1","text":"{}"}}"#, "a".repeat(900_000));
    let message = Message::signed(&endpoint, large.as_bytes()).with("expect", "100-continue");
    let head = format!("{}content-length: {}\r\n\r\n", message.head(&endpoint.path()), message.body.len());

    let mut waits = gateway.connect().await;
    waits.write_all(head.as_bytes()).await.expect("sent");
    let mut interim = [0; 25];
    waits.read_exact(&mut interim).await.expect("an interim answer");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    waits.write_all(&message.body).await.expect("sent");
    Answer::read(&mut waits).await.is_accepted("it waited");

    let mut too_large = gateway.connect().await;
    let announced = format!("{}content-length: {}\r\n\r\n", message.head(&endpoint.path()), 2 << 20);
    too_large.write_all(announced.as_bytes()).await.expect("sent");
    assert_eq!(Answer::read(&mut too_large).await.status, 413, "without its body");

    let multipart = b"--x\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n";
    let message = Message::signed(&endpoint, multipart)
        .with("expect", "100-continue")
        .with("content-type", "multipart/form-data; boundary=x");
    gateway.send(&endpoint, &message).await.is_accepted("it did not wait");
    gateway.stop().await;
}

#[tokio::test]
async fn a_probe_with_head_is_answered_200_without_a_body_and_makes_no_event() {
    let presets = ["trello", "stripe", "github", "custom"];
    let endpoints = presets.map(|preset| Endpoint::new(preset, SECRET).url("https://h.example.com/in"));
    let gateway = Gateway::start(&endpoints).await;
    for endpoint in &endpoints {
        let message = Message { method: "HEAD".to_owned(), ..Message::get("") };
        let answer = gateway.send(endpoint, &message).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{}", endpoint.name);
    }
    assert!(gateway.stored(&endpoints[0]).await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn no_address_is_answered_with_a_redirect() {
    let endpoint = Endpoint::new("stripe", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let message = Message::signed(&endpoint, &stripe_event("evt_1"));
    for path in
        [endpoint.path(), endpoint.path() + "/", endpoint.path() + "//", "/in".to_owned(), "/".to_owned()]
    {
        for method in ["POST", "GET", "HEAD", "OPTIONS", "PUT"] {
            let message = Message { method: method.to_owned(), ..message.clone() };
            let answer = gateway.raw(&message.to_bytes(&path)).await;
            assert!(!(300..400).contains(&answer.status), "{method} {path}: {answer:?}");
            assert_eq!(answer.header("location"), None);
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_signed_empty_body_is_an_event_without_json() {
    let endpoint = Endpoint::new("standard-webhooks", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let message = Message::signed(&endpoint, b"");
    let unsigned = Message { headers: Vec::new(), ..message.clone() };
    gateway.send(&endpoint, &unsigned).await.is_refused("SIGNATURE_MISSING", "empty is no excuse");
    gateway
        .send(&endpoint, &message.clone().with_body(b" "))
        .await
        .is_refused("SIGNATURE_MISMATCH", "a space");
    gateway.send(&endpoint, &message).await.is_accepted("empty");
    let stored = gateway.stored(&endpoint).await;
    assert_eq!((stored[0].body.len(), stored[0].event_id.as_str()), (0, "src:standard-webhooks:id-1"));
    let by_get = Message { method: "GET".to_owned(), ..message };
    assert_eq!(gateway.send(&endpoint, &by_get).await.status, 405, "an event comes by POST");
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_body_is_is_seen_from_the_body_and_not_from_its_content_type() {
    let recipe = signs_the_body(r#","id":["{json:id}"]"#);
    let (own, github) = (Endpoint::new(&recipe, SECRET), Endpoint::new("github", SECRET));
    let gateway = Gateway::start(&[own.clone(), github.clone()]).await;
    let types = ["text/plain; charset=UTF-8", "application/x-www-form-urlencoded", "image/png", "", "???"];
    for (n, content_type) in types.into_iter().enumerate() {
        let mut message = Message::signed(&own, format!(r#"{{"id":"e{n}"}}"#).as_bytes());
        message.headers.retain(|(name, _)| name != "content-type");
        let message = message.with("content-type", content_type);
        gateway.send(&own, &message).await.is_accepted(content_type);
        let receipt = gateway.receipt(&own, &format!("src:own:e{n}")).await;
        assert!(receipt.is_some_and(|receipt| !receipt.id_derived), "{content_type}");
    }
    let form = Message::signed(&github, b"payload=%7B%22repository%22%3A%7B%22id%22%3A5%7D%7D");
    let mut form = form;
    form.headers.retain(|(name, _)| name != "content-type");
    gateway.send(&github, &form.with("content-type", "application/json")).await.is_accepted("a form");
    assert_eq!(gateway.receipt(&github, "src:github:id-1").await.expect("stored").ordering_key, "github:5");
    gateway.stop().await;
}

#[tokio::test]
async fn a_validation_token_is_a_sentence_and_comes_back_as_plain_text() {
    let endpoint = Endpoint::new("microsoft-graph", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    for (query, text) in [
        ("validationToken=Validation%3A+Testing+client+a%2Bb", "Validation: Testing client a+b"),
        ("validationToken=Validation%3a%20Testing%20%e2%9c%93", "Validation: Testing ✓"),
        ("validationToken=%3Cscript%3Ealert(1)%3C%2Fscript%3E", "<script>alert(1)</script>"),
    ] {
        let message = Message { query: query.to_owned(), ..Message::post(&[], b"") };
        let answer = gateway.send(&endpoint, &message).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, text), "{query}");
        assert!(
            answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")),
            "{answer:?}"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "it cannot become a page");
    }
    assert!(gateway.stored(&endpoint).await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_handshake_is_answered_while_the_store_is_down() {
    let (graph, stripe) = (Endpoint::new("microsoft-graph", SECRET), Endpoint::new("stripe", SECRET));
    let meta = Endpoint {
        settings: [("verify_token".to_owned(), "word".to_owned())].into(),
        ..Endpoint::new("meta", SECRET)
    };
    let x = Endpoint::new("x-twitter", SECRET);
    let gateway = Gateway::start(&[graph.clone(), stripe.clone(), meta.clone(), x.clone()]).await;
    gateway.store.close().await;
    let answer = deliver(&gateway, &stripe, &stripe_event("evt_1")).await;
    assert_eq!((answer.status, answer.field("error").as_str()), (503, "store_unavailable"), "an event waits");
    let ask = Message { query: "validationToken=Validation%3A+now".to_owned(), ..Message::post(&[], b"") };
    let answer = gateway.send(&graph, &ask).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "Validation: now"));
    let ask = Message::get("hub.mode=subscribe&hub.challenge=17&hub.verify_token=word");
    assert_eq!(gateway.send(&meta, &ask).await.body, "17");
    assert_eq!(gateway.send(&x, &Message::get("crc_token=abc")).await.status, 200);
    gateway.stop().await;
}
