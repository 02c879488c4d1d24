//! Requests signed by the vendors' own packages or by their documented formula: each gives its expected verdict, ids and
//! handshake reply.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_recipe::{Preset, Recipe, handshake};
use serde_json::Value;

use super::{NOW, Owned, secret};

struct Sample {
    preset: &'static Preset,
    name: String,
    request: Owned,
    secret: String,
    expect: Value,
}

/// The samples of all presets.
fn samples() -> Vec<Sample> {
    let lines = include_str!("../../../../tests/cases/signed-samples.jsonl").lines();
    lines
        .map(|line| serde_json::from_str::<Value>(line).expect("a sample is JSON"))
        .filter_map(|sample| {
            let text = |name: &str| sample[name].as_str().expect("a text").to_owned();
            let provider = text("provider");
            let preset = Recipe::presets().find(|preset| preset.name == provider)?;
            let headers = sample["headers"].as_object().expect("headers");
            let header = |(name, value): (&String, &Value)| {
                (name.to_ascii_lowercase(), value.as_str().expect("a text").as_bytes().to_vec())
            };
            let request = Owned {
                method: text("method"),
                query: text("url").split_once('?').map_or(String::new(), |(_, query)| query.to_owned()),
                headers: headers.iter().map(header).collect(),
                body: STANDARD.decode(text("body_base64")).expect("base64"),
                url: Some(text("url")),
            };
            let name = format!("{provider}/{}", text("case"));
            Some(Sample { preset, name, request, secret: text("secret"), expect: sample["expect"].clone() })
        })
        .collect()
}

/// Whether the sample is to be accepted. Words mean: after trimming the secret, which is done; and upper-case
/// hexadecimal, which is accepted.
fn is_accepted(expect: &Value) -> bool {
    match &expect["verified"] {
        Value::Bool(verified) => *verified,
        Value::String(word) => matches!(word.as_str(), "after trimming" | "policy"),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            expect["handshake"] == Value::Bool(true)
        }
    }
}

#[test]
fn every_sample_gets_its_verdict() {
    let samples = samples();
    assert!(samples.len() >= 31, "{}", samples.len());
    for preset in Recipe::presets().filter(|preset| preset.name != "custom") {
        assert!(
            samples.iter().any(|sample| sample.preset.name == preset.name),
            "{} has no sample",
            preset.name
        );
    }
    for sample in &samples {
        let verdict = sample.request.verify(&sample.preset.recipe, &sample.secret);
        assert_eq!(verdict.is_ok(), is_accepted(&sample.expect), "{}: {verdict:?}", sample.name);
        if sample.expect["reason"] == "timestamp" {
            assert!(verdict.is_err_and(|reason| reason.code().starts_with("TIMESTAMP")), "{}", sample.name);
        }
    }
}

#[test]
fn every_accepted_sample_gives_its_ids_types_entities_and_accounts() {
    for sample in samples().iter().filter(|sample| is_accepted(&sample.expect)) {
        let Sample { preset, name, request, secret, expect } = sample;
        if expect["handshake"] == Value::Bool(true) {
            continue;
        }
        let events = request.events(&preset.recipe, secret).expect("verified");
        let count = expect["events"].as_u64().unwrap_or(1);
        assert_eq!(u64::try_from(events.len()).expect("small"), count, "{name}");
        let first = &events[0];
        let same = |field: &str, have: Option<&str>| {
            if let Some(want) = expect.get(field) {
                assert_eq!(have, want.as_str(), "{name}: {field}");
            }
        };
        same("event_id", (!first.id_derived).then_some(first.event_id.as_str()));
        same("event_type", Some(&first.event_type));
        same("entity", first.entity.as_deref());
        same("account", first.account.as_deref());
        if let Some(ids) = expect["event_ids"].as_array() {
            let have: Vec<_> = events.iter().map(|event| Value::from(event.event_id.as_str())).collect();
            assert_eq!(&have, ids, "{name}");
        }
        if let Some(body) = expect.get("response_body") {
            let reply = preset.recipe.accepted_reply().expect("a reply of its own");
            assert_eq!(std::str::from_utf8(&reply.body).ok(), body.as_str(), "{name}");
        }
    }
}

#[test]
fn only_the_handshake_samples_are_answered_as_handshakes() {
    for sample in samples().iter().filter(|sample| is_accepted(&sample.expect)) {
        let Sample { preset, name, request, secret: text, expect } = sample;
        let secrets = [secret(&preset.recipe, text)];
        let reply =
            request.with(|request| handshake(&preset.recipe, request, &secrets, NOW)).expect("verified");
        assert_eq!(reply.is_some(), expect["handshake"] == Value::Bool(true), "{name}");
        if let Some(reply) = reply {
            assert_eq!(Some(u64::from(reply.status)), expect["response_status"].as_u64(), "{name}");
            assert_eq!(std::str::from_utf8(&reply.body).ok(), expect["response_body"].as_str(), "{name}");
        }
    }
}

#[test]
fn no_accepted_sample_survives_a_changed_body() {
    for sample in samples().iter().filter(|sample| is_accepted(&sample.expect)) {
        let Sample { preset, name, request, secret, .. } = sample;
        // Adyen's standard notifications sign fields, not bytes: there a signed field is changed.
        let places = if name.starts_with("adyen/") && *name != "adyen/platform-header" {
            let at =
                |text: &[u8]| request.body.windows(text.len()).position(|have| have == text).expect("there");
            vec![at(b"7914073381342284"), at(b"AUTHORISATION"), at(b"1130"), at(b"EUR"), at(b"TestMerchant")]
        } else {
            (0..request.body.len()).step_by(7).collect()
        };
        for place in places {
            let mut changed = request.clone();
            changed.body[place] ^= 1;
            assert!(changed.verify(&preset.recipe, secret).is_err(), "{name}: byte {place}");
        }
    }
}

#[test]
fn no_accepted_sample_verifies_under_another_secret() {
    for sample in samples().iter().filter(|sample| is_accepted(&sample.expect)) {
        let Sample { preset, name, request, secret, .. } = sample;
        let other = match preset.name {
            "standard-webhooks" => "whsec_YW5vdGhlciBzZWNyZXQgYWx0b2dldGhlcg==".to_owned(),
            "adyen" => "00".repeat(32),
            _ => format!("{} ", secret.trim()) + "x",
        };
        assert!(request.verify(&preset.recipe, &other).is_err(), "{name}");
    }
}

#[test]
fn no_sample_with_a_signed_time_is_accepted_outside_its_window() {
    let day = Duration::from_secs(24 * 3600);
    let mut seen = 0;
    for sample in samples().iter().filter(|sample| is_accepted(&sample.expect)) {
        let Sample { preset, name, request, secret: text, .. } = sample;
        let is_timed = matches!(preset.name, "stripe" | "slack" | "standard-webhooks");
        for now in [NOW.plus(day), NOW.minus(day)] {
            let verdict = request.verify_at(&preset.recipe, &[secret(&preset.recipe, text)], now);
            assert_eq!(verdict.is_err(), is_timed, "{name}");
            seen += usize::from(is_timed);
        }
    }
    assert!(seen >= 20, "{seen}");
}
