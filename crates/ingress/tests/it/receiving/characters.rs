//! Character sets and odd bytes.

use super::{SECRET, deliver, signs_the_body};
use crate::support::{Endpoint, Gateway, Message};

#[tokio::test]
async fn any_characters_are_accepted_and_stored_as_they_came() {
    let recipe = signs_the_body(r#","id":["{json:id}"]"#);
    let endpoint = Endpoint::new(&recipe, SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let bodies: [(&str, &[u8]); 7] = [
        ("an emoji", r#"{"id":"1","text":"😊"}"#.as_bytes()),
        ("letters of Europe", r#"{"id":"2","text":"äöå"}"#.as_bytes()),
        ("Cyrillic", r#"{"id":"3","item_name":"Кирилица и Ё"}"#.as_bytes()),
        ("an escaped backslash before u0000", br#"{"id":"4","text":"\\u0000"}"#),
        ("an escaped NUL", br#"{"id":"5","text":"a\u0000b"}"#),
        ("half of a surrogate pair", br#"{"id":"6","text":"\ud800"}"#),
        ("bytes that are no text", b"\xff\xfe\x00\x80"),
    ];
    for (what, body) in bodies {
        deliver(&gateway, &endpoint, body).await.is_accepted(what);
        assert_eq!(deliver(&gateway, &endpoint, body).await.field("status"), "duplicate", "{what}");
        let stored = gateway.stored(&endpoint).await;
        assert!(stored.iter().any(|event| event.body == body), "{what}: byte for byte");
    }
    let stored = gateway.stored(&endpoint).await;
    assert_eq!(stored.len(), bodies.len());
    let derived: Vec<_> =
        stored.iter().filter(|event| event.id_derived).map(|event| &event.body[..]).collect();
    assert_eq!(derived, [b"\xff\xfe\x00\x80"], "odd characters elsewhere do not cost the id");
    gateway.stop().await;
}

#[tokio::test]
async fn escapes_that_the_sender_wrote_are_part_of_the_signed_bytes() {
    let endpoint = Endpoint::new("meta", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = br#"{"object":"page","entry":[{"id":"P1","time":1,"messaging":[{"sender":{"id":"u"},"message":{"mid":"m1","text":"\u00e4\u00f6\u00e5 \/"}}]}]}"#;
    let message = Message::signed(&endpoint, body);
    let text = std::str::from_utf8(body).expect("text");
    for (what, other) in [
        ("decoded", text.replace("\\u00e4\\u00f6\\u00e5", "äöå")),
        ("escaped anew with capital digits", text.replace("\\u00e4\\u00f6\\u00e5", "\\u00E4\\u00F6\\u00E5")),
        ("the slash not escaped", text.replace("\\/", "/")),
    ] {
        assert_ne!(other, text);
        let answer = gateway.send(&endpoint, &message.clone().with_body(other.as_bytes())).await;
        answer.is_refused("SIGNATURE_MISMATCH", what);
    }
    gateway.send(&endpoint, &message).await.is_accepted("as it was sent");
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_is_no_text_with_a_bad_signature_gets_401() {
    let presets =
        ["stripe", "github", "slack", "shopify", "custom", "standard-webhooks", "discord", "twilio"];
    let endpoints: Vec<_> = presets
        .iter()
        .map(|preset| {
            let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
            let secret = if *preset == "discord" { key } else { SECRET };
            Endpoint::new(preset, secret).url("https://hooks.example.com/in")
        })
        .collect();
    let gateway = Gateway::start(&endpoints).await;
    for endpoint in &endpoints {
        for body in [&b"\xff\xfe"[..], b"{\"id\":\"\xff\"}", b"", b"\x00"] {
            let message = Message::post(&[], body)
                .with("stripe-signature", &format!("t=1750000000,v1={}", "0".repeat(64)))
                .with("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)))
                .with("x-slack-signature", &format!("v0={}", "0".repeat(64)))
                .with("x-slack-request-timestamp", "1750000000")
                .with("x-shopify-hmac-sha256", "AAAA")
                .with("x-webhook-signature", &format!("t=1750000000,v1={}", "0".repeat(64)))
                .with("webhook-id", "m")
                .with("webhook-timestamp", "1750000000")
                .with("webhook-signature", "v1,AAAA")
                .with("x-signature-ed25519", &"0".repeat(128))
                .with("x-signature-timestamp", "1750000000")
                .with("x-twilio-signature", "AAAA");
            let answer = gateway.send(endpoint, &message).await;
            assert_eq!(answer.status, 401, "{}: {answer:?}", endpoint.name);
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn latin_1_is_verified_as_sent_and_decoded_only_to_be_read() {
    let recipe = signs_the_body(r#","id":["{json:build}"],"entity":["{json:project}"]"#);
    let endpoint = Endpoint::new(&recipe, SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = b"{\"build\":\"b1\",\"project\":\"Caf\xe9\"}";
    let message =
        Message::signed(&endpoint, body).with("content-type", "application/json; charset=ISO-8859-1");
    let as_utf_8 = message.clone().with_body("{\"build\":\"b1\",\"project\":\"Café\"}".as_bytes());
    gateway.send(&endpoint, &as_utf_8).await.is_refused("SIGNATURE_MISMATCH", "transcoded");
    gateway.send(&endpoint, &message).await.is_accepted("as it was sent");
    let stored = gateway.stored(&endpoint).await;
    assert_eq!((&stored[0].body[..], stored[0].ordering_key.as_str()), (&body[..], "own:Café"));
    gateway.stop().await;
}

#[tokio::test]
async fn byte_order_marks_are_verified_and_stored_and_only_skipped_in_reading() {
    let recipe = signs_the_body(r#","id":["{json:id}"]"#);
    let (own, graph) = (Endpoint::new(&recipe, SECRET), Endpoint::new("microsoft-graph", SECRET));
    let gateway = Gateway::start(&[own.clone(), graph.clone()]).await;
    for (id, marks) in [("one", 1), ("two", 2)] {
        let body = [b"\xef\xbb\xbf".repeat(marks), format!(r#"{{"id":"{id}"}}"#).into_bytes()].concat();
        let message = Message::signed(&own, &body);
        let without = message.clone().with_body(&body[3..]);
        gateway.send(&own, &without).await.is_refused("SIGNATURE_MISMATCH", "a mark was taken away");
        gateway.send(&own, &message).await.is_accepted(id);
        let receipt = gateway.receipt(&own, &format!("src:own:{id}")).await.expect("read behind the marks");
        assert!(!receipt.id_derived);
        assert!(gateway.stored(&own).await.iter().any(|event| event.body == body), "{id}: stored with them");
    }
    let empty = gateway.send(&graph, &Message::post(&[], b"\xef\xbb\xbf{\"value\":[]}")).await;
    assert!(empty.status < 500, "{empty:?}");
    let one =
        format!("\u{feff}{{\"value\":[{{\"id\":\"n1\",\"clientState\":\"{SECRET}\",\"resource\":\"r\"}}]}}");
    assert_eq!(gateway.send(&graph, &Message::post(&[], one.as_bytes())).await.status, 202);
    assert!(gateway.receipt(&graph, "src:microsoft-graph:n1").await.is_some());
    gateway.stop().await;
}

#[tokio::test]
async fn a_mark_in_front_of_a_form_does_not_hide_its_first_field() {
    let endpoint = Endpoint::new("slack", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = b"\xef\xbb\xbftrigger_id=1.2&team_id=T1&channel_id=C1&command=%2Fdeploy";
    deliver(&gateway, &endpoint, body).await.is_accepted("a form with a mark");
    let receipt = gateway.receipt(&endpoint, "src:slack:1.2").await.expect("its first field is its id");
    assert_eq!(receipt.ordering_key, "slack:T1:C1");
    assert_eq!(&gateway.stored(&endpoint).await[0].body[..], &body[..]);
    gateway.stop().await;
}

#[tokio::test]
async fn of_an_id_that_is_there_twice_neither_is_believed_and_the_event_is_kept() {
    let endpoint = Endpoint::new("stripe", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = br#"{"id":"evt_a","id":"evt_b","type":"t","data":{"object":{"id":"in_1"}}}"#;
    deliver(&gateway, &endpoint, body).await.is_accepted("two ids");
    let again = deliver(&gateway, &endpoint, body).await;
    assert_eq!(again.field("status"), "duplicate", "its bytes are its id");
    for id in ["evt_a", "evt_b"] {
        assert!(gateway.receipt(&endpoint, id).await.is_none(), "{id} is not taken");
    }
    let stored = gateway.stored(&endpoint).await;
    assert_eq!(stored.len(), 1);
    assert!(stored[0].id_derived && stored[0].event_id.starts_with("src:stripe:sha256:"), "{stored:?}");
    assert_eq!((&stored[0].body[..], stored[0].ordering_key.as_str()), (&body[..], "stripe:in_1"));
    gateway.stop().await;
}
