//! Signed times.

use std::time::Duration;

use portero_recipe::SignOptions;
use portero_types::Timestamp;

use super::{SECRET, stripe_event};
use crate::support::{Endpoint, Gateway, Message, NOW};

const HOUR: Duration = Duration::from_secs(3600);

fn at(endpoint: &Endpoint, body: &[u8], now: Timestamp) -> Message {
    Message::signed_with(endpoint, body, SignOptions { now, ..SignOptions::default() })
}

/// Presets that sign a time, with a body that has it where it is in there.
fn timed() -> Vec<Endpoint> {
    let presets = [
        "stripe",
        "slack",
        "zoom",
        "paddle",
        "hubspot",
        "workos",
        "standard-webhooks",
        "custom",
        "calendly",
        "twitch",
    ];
    presets.iter().map(|name| Endpoint::new(name, SECRET).url("https://hooks.example.com/in")).collect()
}

#[tokio::test]
async fn a_time_too_far_in_the_future_is_refused_however_well_signed() {
    let endpoints = timed();
    let gateway = Gateway::start(&endpoints).await;
    for endpoint in &endpoints {
        let message = at(endpoint, br#"{"id":"evt_1"}"#, NOW.plus(24 * HOUR));
        let answer = gateway.send(endpoint, &message).await;
        assert!((400..500).contains(&answer.status), "{}: {answer:?}", endpoint.name);
        assert_eq!(answer.field("reason"), "TIMESTAMP_IN_FUTURE", "{}", endpoint.name);
    }
    assert!(gateway.stored(&endpoints[0]).await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_request_recorded_a_week_ago_is_not_taken_again() {
    let endpoints = timed();
    let gateway = Gateway::start(&endpoints).await;
    let recorded: Vec<_> = endpoints.iter().map(|endpoint| at(endpoint, br#"{"id":"evt_1"}"#, NOW)).collect();
    gateway.forward(7 * 24 * HOUR);
    for (endpoint, message) in endpoints.iter().zip(&recorded) {
        let answer = gateway.send(endpoint, message).await;
        assert_eq!(answer.field("reason"), "TIMESTAMP_TOO_OLD", "{}: {answer:?}", endpoint.name);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_clock_that_is_a_little_ahead_or_behind_does_no_harm() {
    let endpoints = timed();
    let gateway = Gateway::start(&endpoints).await;
    for endpoint in &endpoints {
        for (n, now) in
            [NOW.plus(Duration::from_secs(1)), NOW.minus(Duration::from_secs(1))].into_iter().enumerate()
        {
            let (id, body) = (format!("m{n}"), format!(r#"{{"id":"evt_{n}"}}"#));
            let options = SignOptions { now, id: Some(&id), ..SignOptions::default() };
            let message = Message::signed_with(endpoint, body.as_bytes(), options);
            let answer = gateway.send(endpoint, &message).await;
            assert!((200..300).contains(&answer.status), "{}: {answer:?}", endpoint.name);
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn seconds_are_not_taken_for_milliseconds_nor_the_other_way_round() {
    let endpoints = timed();
    let gateway = Gateway::start(&endpoints).await;
    let in_ms = ["hubspot", "workos"];
    let in_s = ["stripe", "slack", "zoom", "paddle", "standard-webhooks", "custom"];
    // A moment whose number in the right unit is the number of now in the wrong one.
    let too_small = Timestamp::from_secs(NOW.as_secs() / 1000);
    let too_large = Timestamp::from_secs(NOW.as_secs() * 1000);
    for endpoint in &endpoints {
        let name = endpoint.name.as_str();
        let (moment, number, reason) = if in_ms.contains(&name) {
            (too_small, "1750000000", "TIMESTAMP_TOO_OLD")
        } else if in_s.contains(&name) {
            (too_large, "1750000000000", "TIMESTAMP_IN_FUTURE")
        } else {
            continue;
        };
        let message = at(endpoint, br#"{"id":"evt_1"}"#, moment);
        let says = |value: &String| value.split(|c: char| !c.is_ascii_digit()).any(|part| part == number);
        assert!(message.headers.iter().any(|(_, value)| says(value)), "{name}: {:?}", message.headers);
        let answer = gateway.send(endpoint, &message).await;
        assert_eq!(answer.field("reason"), reason, "{name}: {answer:?}");
        let right = gateway.send(endpoint, &at(endpoint, br#"{"id":"evt_1"}"#, NOW)).await;
        assert!((200..300).contains(&right.status), "{name}: {right:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn paddle_may_be_late_by_minutes_and_by_seconds_only_where_the_recipe_says_so() {
    let usual = Endpoint::new("paddle", SECRET);
    let preset =
        portero_recipe::Recipe::presets().find(|preset| preset.name == "paddle").expect("there").json;
    let strict = preset.replace(r#""past_s": 300"#, r#""past_s": 5"#);
    assert_ne!(strict, preset);
    let strict = Endpoint::new(strict.trim(), SECRET).named("strict");
    let gateway = Gateway::start(&[usual.clone(), strict.clone()]).await;
    let late = |endpoint: &Endpoint, secs: u64| {
        let body = format!(r#"{{"event_id":"evt_{secs}","event_type":"t","data":{{"id":"x"}}}}"#);
        at(endpoint, body.as_bytes(), NOW.minus(Duration::from_secs(secs)))
    };
    for secs in [6, 300] {
        gateway.send(&usual, &late(&usual, secs)).await.is_accepted("late");
    }
    gateway.send(&usual, &late(&usual, 301)).await.is_refused("TIMESTAMP_TOO_OLD", "too late");
    gateway.send(&strict, &late(&strict, 5)).await.is_accepted("just in time");
    gateway
        .send(&strict, &late(&strict, 6))
        .await
        .is_refused("TIMESTAMP_TOO_OLD", "by the vendor's own value");
    gateway.stop().await;
}

#[tokio::test]
async fn a_time_that_is_not_signed_makes_nothing_fresh() {
    let endpoint = Endpoint::new("linear", SECRET);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let body = |ms: i64| {
        format!(r#"{{"action":"create","type":"Issue","data":{{"id":"i1"}},"webhookTimestamp":{ms}}}"#)
            .into_bytes()
    };
    let (now, old) = (1_750_000_000_000, 1_750_000_000_000 - 3_600_000);
    let fresh_header = at(&endpoint, &body(old), NOW).with("linear-timestamp", &now.to_string());
    gateway.send(&endpoint, &fresh_header).await.is_refused("TIMESTAMP_TOO_OLD", "an old body");
    let old_header = at(&endpoint, &body(now), NOW).with("linear-timestamp", &old.to_string());
    gateway.send(&endpoint, &old_header).await.is_accepted("a fresh body");
    // Stripe's time is signed: a newer one in its place does not verify.
    let stripe = Endpoint::new("stripe", SECRET);
    let gateway_two = Gateway::start(std::slice::from_ref(&stripe)).await;
    let mut renewed = at(&stripe, &stripe_event("evt_1"), NOW.minus(HOUR));
    let value = renewed.header_mut("stripe-signature");
    *value = value.replace("t=1749996400", "t=1750000000");
    gateway_two.send(&stripe, &renewed).await.is_refused("SIGNATURE_MISMATCH", "a renewed time");
    gateway_two.stop().await;
    gateway.stop().await;
}
