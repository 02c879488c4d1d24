//! Headers: names, lists, prefixes and encodings.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use portero_recipe::SignOptions;

use super::{SECRET, deliver, signs_the_body};
use crate::support::{Endpoint, Gateway, Message};

#[tokio::test]
async fn header_names_have_no_case_over_http_1_and_http_2() {
    let presets = ["github", "slack", "stripe", "shopify"];
    let endpoints = presets.map(|preset| Endpoint::new(preset, SECRET));
    let gateway = Gateway::start(&endpoints).await;
    let stream = TokioIo::new(gateway.connect().await);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    for endpoint in &endpoints {
        let message = Message::signed(endpoint, br#"{"id":"evt_1"}"#);
        let mut loud = message.clone();
        loud.headers.iter_mut().for_each(|(name, _)| *name = name.to_ascii_uppercase());
        gateway.send(endpoint, &loud).await.is_accepted(&endpoint.name);

        let mut request = http::Request::post(format!("http://localhost{}", endpoint.path()));
        for (name, value) in &message.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(message.body))).expect("valid");
        let response = client.send_request(request).await.expect("answered");
        assert_eq!(response.status(), 200, "{}", endpoint.name);
        let _ = response.into_body().collect().await.expect("read");
        let stored = gateway.stored(endpoint).await;
        let own = stored.iter().filter(|event| event.source.as_str() == endpoint.name);
        assert_eq!(own.count(), 1, "{}: the same event", endpoint.name);
    }
    drop(client);
    let _ = connection.await.expect("no panic");
    gateway.stop().await;
}

#[tokio::test]
async fn prefix_and_encoding_are_the_recipes_and_not_tried_in_turn() {
    let with = |prefix: &str, encoding: &str| {
        signs_the_body(&format!(r#","encoding":"{encoding}""#))
            .replace(r#""x-signature""#, &format!(r#""x-signature","prefix":"{prefix}""#))
    };
    let hex = Endpoint::new(&with("sha256=", "hex"), SECRET).named("hex");
    let spaced = Endpoint::new(&with("sha256= ", "base64"), SECRET).named("spaced");
    let gateway = Gateway::start(&[hex.clone(), spaced.clone()]).await;
    let body = br#"{"id":1}"#;
    let (mut as_hex, mut as_spaced) = (Message::signed(&hex, body), Message::signed(&spaced, body));
    gateway.send(&hex, &as_hex).await.is_accepted("hexadecimal where the recipe says so");
    gateway.send(&spaced, &as_spaced).await.is_accepted("base64 behind a space where the recipe says so");
    let (digits, base64) =
        (as_hex.header_mut("x-signature").clone(), as_spaced.header_mut("x-signature").clone());
    let digits = digits.strip_prefix("sha256=").expect("a prefix");
    let base64 = base64.strip_prefix("sha256= ").expect("a prefix");
    for (endpoint, value, reason) in [
        (&hex, format!("sha256={base64}"), "SIGNATURE_MALFORMED"),
        (&hex, format!("sha256= {digits}"), "SIGNATURE_MALFORMED"),
        (&hex, digits.to_owned(), "SIGNATURE_MISSING"),
        (&hex, format!("sha1={digits}"), "SIGNATURE_MISSING"),
        (&spaced, format!("sha256= {digits}"), "SIGNATURE_MISMATCH"),
        (&spaced, format!("sha256={base64}"), "SIGNATURE_MISSING"),
    ] {
        let message = Message::post(&[("x-signature", &value)], body);
        gateway.send(endpoint, &message).await.is_refused(reason, &value);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn hexadecimal_may_be_in_capitals() {
    let recipe = signs_the_body("")
        .replace("hmac-sha256", "hmac-sha1")
        .replace(r#""x-signature""#, r#""x-signature","prefix":"sha1=""#);
    let endpoint = Endpoint::new(&recipe, SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let mut message = Message::signed(&endpoint, b"{}");
    let value = message.header_mut("x-signature");
    *value = format!("sha1={}", value["sha1=".len()..].to_ascii_uppercase());
    assert!(value.chars().any(|c| ('A'..='F').contains(&c)), "{value}");
    gateway.send(&endpoint, &message).await.is_accepted("capitals");
    gateway.stop().await;
}

#[tokio::test]
async fn the_tag_in_front_of_a_listed_signature_is_not_part_of_it() {
    let endpoint = Endpoint::new("svix", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let mut message = Message::signed(&endpoint, br#"{"type":"t"}"#);
    let name = message.headers.iter().map(|(name, _)| name.clone()).find(|name| name.ends_with("-signature"));
    let name = name.expect("a signature header");
    let value = message.header_mut(&name).clone();
    let base64 = value.strip_prefix("v1,").expect("a tag").to_owned();
    let mut with = |text: String| {
        *message.header_mut(&name) = text;
        message.clone()
    };
    gateway.send(&endpoint, &with(base64.clone())).await.is_refused("SIGNATURE_MALFORMED", "no tag");
    let other_tag = gateway.send(&endpoint, &with(format!("v1a,{base64} v2,{base64}"))).await;
    assert_eq!(other_tag.status, 401, "of other versions: {other_tag:?}");
    let list = format!("v1,{} v1,{base64} v9,what", "A".repeat(43) + "=");
    gateway.send(&endpoint, &with(list)).await.is_accepted("one of a list");
    gateway.stop().await;
}

#[tokio::test]
async fn every_signature_of_a_list_counts_and_unknown_names_are_passed_over() {
    let endpoint = Endpoint::new("paddle", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let wrong = "ab".repeat(32);
    for (n, list) in
        ["h1={good};h1={wrong}", "h1={wrong};h1={good}", "h2={wrong};h1={good}", "h1={good};new=thing;h3="]
            .into_iter()
            .enumerate()
    {
        let body = format!(r#"{{"event_id":"evt_{n}","event_type":"t","data":{{"id":"x"}}}}"#);
        let mut message = Message::signed(&endpoint, body.as_bytes());
        let value = message.header_mut("paddle-signature");
        let good = value.split_once("h1=").expect("a signature").1.to_owned();
        *value = format!("ts=1750000000;{}", list.replace("{good}", &good).replace("{wrong}", &wrong));
        gateway.send(&endpoint, &message).await.is_accepted(list);
        *message.header_mut("paddle-signature") =
            format!("ts=1750000000;{}", list.replace("{good}", &wrong).replace("{wrong}", &wrong));
        gateway.send(&endpoint, &message).await.is_refused("SIGNATURE_MISMATCH", "no good one among them");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn signatures_of_the_new_and_the_old_secret_may_stand_in_one_header() {
    let recipe =
        signs_the_body("").replace(r#""x-signature""#, r#""x-signature","prefix":"sha256=","separator":",""#);
    let (old, new) = ("the old secret of this endpoint", "the new secret of this endpoint");
    let endpoint = Endpoint::new(&recipe, old);
    let both = Endpoint::new(&recipe, old).and(new).named("both");
    let gateway = Gateway::start(&[endpoint.clone(), both.clone()]).await;
    let body = br#"{"id":"e"}"#;
    let by = |secret: &str| {
        let mut message = Message::signed_by(&endpoint, secret, body, SignOptions::default());
        message.header_mut("x-signature").clone()
    };
    let (by_old, by_new, by_other) = (by(old), by(new), by("a secret of somebody else"));
    for list in [format!("{by_new},{by_old}"), format!("{by_old},{by_new}"), format!("{by_other}, {by_old}")]
    {
        for endpoint in [&endpoint, &both] {
            let answer = gateway.send(endpoint, &Message::post(&[("x-signature", &list)], body)).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    let new_only = Message::post(&[("x-signature", &by_new)], body);
    gateway.send(&endpoint, &new_only).await.is_refused("SIGNATURE_MISMATCH", "the endpoint has the old one");
    assert_eq!(gateway.send(&both, &new_only).await.status, 200);
    let many = vec![by_other; 17].join(",");
    let many = Message::post(&[("x-signature", &many)], body);
    gateway.send(&both, &many).await.is_refused("TOO_MANY_SIGNATURES", "seventeen");
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_header_means_is_decided_by_the_endpoint() {
    // Each group shares a header's name, and here even the secret.
    let groups = [
        ("webhook-signature", vec!["gocardless", "standard-webhooks"]),
        ("x-hub-signature", vec!["bitbucket", "intercom"]),
        ("x-signature", vec!["lemonsqueezy", "mercadopago"]),
    ];
    let names: Vec<&str> = groups.iter().flat_map(|(_, names)| names.clone()).collect();
    let endpoints: Vec<_> = names.iter().map(|name| Endpoint::new(name, SECRET)).collect();
    let gateway = Gateway::start(&endpoints).await;
    let of = |name: &str| endpoints.iter().find(|endpoint| endpoint.name == name).expect("there");
    let signed = |name: &str| {
        let headers = [("x-request-id", "r1")];
        let options = SignOptions { headers: &headers, query: "data.id=1", ..SignOptions::default() };
        Message::signed_with(of(name), br#"{"events":[{"id":"EV1"}]}"#, options)
    };
    for (header, group) in groups {
        for sender in &group {
            let message = signed(sender);
            let has = message.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(header));
            assert!(has, "{sender} signs in {header}");
            for receiver in &group {
                let answer = gateway.send(of(receiver), &message).await;
                let good = (200..300).contains(&answer.status);
                assert_eq!(good, sender == receiver, "from {sender} to {receiver}: {answer:?}");
                assert!(answer.status < 500, "{answer:?}");
            }
        }
    }
    // Where two vendors sign alike, the secret alone tells them apart.
    let meta = Endpoint::new("meta", "another secret, of an app");
    let plain = signs_the_body("").replace(r#""x-signature""#, r#""x-hub-signature-256","prefix":"sha256=""#);
    let own = Endpoint::new(&plain, SECRET);
    let gateway_two = Gateway::start(&[meta.clone(), own.clone()]).await;
    let message = Message::signed(&own, b"{}");
    gateway_two.send(&own, &message).await.is_accepted("its own");
    gateway_two.send(&meta, &message).await.is_refused("SIGNATURE_MISMATCH", "another's");
    gateway_two.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_header_that_is_there_twice_is_not_chosen_from() {
    let presets = [
        ("github", "x-hub-signature-256"),
        ("slack", "x-slack-request-timestamp"),
        ("shopify", "x-shopify-hmac-sha256"),
    ];
    let endpoints = presets.map(|(preset, _)| Endpoint::new(preset, SECRET));
    let gateway = Gateway::start(&endpoints).await;
    for (endpoint, (_, header)) in endpoints.iter().zip(presets) {
        let mut message = Message::signed(endpoint, br#"{"id":1}"#);
        let value = message.header_mut(header).clone();
        gateway
            .send(endpoint, &message.clone().with(header, &value))
            .await
            .is_refused("SIGNATURE_DUPLICATED", header);
        deliver(&gateway, endpoint, br#"{"id":1}"#).await.is_accepted(header);
    }
    gateway.stop().await;
}
