//! Requests signed by the vendors' own packages or by their documented formula: each gives its expected verdict, ids and
//! handshake reply.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_recipe::{Preset, Reason, Recipe, Secret, Strength, handshake, verify};
use portero_types::{SecretNo, Timestamp};
use serde_json::Value;

use super::{NOW, Owned};

struct Sample {
    preset: &'static Preset,
    name: String,
    request: Owned,
    secret: String,
    expect: Value,
}

impl Sample {
    /// The source's secrets: none where the sample's secret is what would be fetched, or comes by handshake.
    fn secrets(&self) -> Vec<Secret> {
        self.secrets_of(&self.secret)
    }

    fn secrets_of(&self, text: &str) -> Vec<Secret> {
        if text.is_empty() || !self.preset.recipe.needs_secret() {
            return Vec::new();
        }
        vec![Secret::new(&self.preset.recipe, SecretNo(1), text, Timestamp::EPOCH, None).expect("usable")]
    }

    /// What the edge says: a refused handshake is refused, although it may be signed like an event.
    fn verdict(&self) -> Result<Option<i64>, Reason> {
        let recipe = &self.preset.recipe;
        (self.request.with(|request| handshake(recipe, request, &self.secrets(), NOW)))
            .map_err(|rejection| rejection.reason())?;
        self.verify_at(NOW)
    }

    fn verify_at(&self, now: Timestamp) -> Result<Option<i64>, Reason> {
        self.request.verify_at(&self.preset.recipe, &self.secrets(), now)
    }

    fn is_handshake(&self) -> bool {
        self.expect["handshake"] == Value::Bool(true)
    }
}

const FILES: [&str; 4] = [
    include_str!("../../../../tests/cases/signed-samples.jsonl"),
    include_str!("../../../../tests/cases/samples-payments.jsonl"),
    include_str!("../../../../tests/cases/samples-developer.jsonl"),
    include_str!("../../../../tests/cases/samples-messaging.jsonl"),
];

/// All samples. One of a provider without a preset fails the test.
fn samples() -> Vec<Sample> {
    FILES.iter().flat_map(|file| file.lines()).filter(|line| !line.trim().is_empty()).map(sample).collect()
}

fn sample(line: &str) -> Sample {
    let sample: Value = serde_json::from_str(line).expect("a sample is JSON");
    let text = |name: &str| sample[name].as_str().unwrap_or_default().to_owned();
    let provider = text("provider");
    let preset = Recipe::presets()
        .find(|preset| preset.name == provider)
        .unwrap_or_else(|| panic!("there is no preset '{provider}'"));
    let headers = sample["headers"].as_object().expect("headers");
    let header = |(name, value): (&String, &Value)| {
        (name.to_ascii_lowercase(), value.as_str().expect("a text").as_bytes().to_vec())
    };
    let mut settings: BTreeMap<String, String> = sample["settings"]
        .as_object()
        .map(|settings| {
            settings.iter().map(|(k, v)| (k.clone(), v.as_str().expect("text").to_owned())).collect()
        })
        .unwrap_or_default();
    if let Some(id) = sample["expect"]["webhook_id"].as_str() {
        settings.insert("webhook_id".to_owned(), id.to_owned());
    }
    if provider == "aws-sns" {
        let topic = "arn:aws:sns:us-east-1:123456789012:T";
        settings.entry("topic_arn".to_owned()).or_insert_with(|| topic.to_owned());
    }
    let is_fetched = !preset.recipe.needs_secret();
    let fetched =
        sample["fetched"].as_str().map(str::to_owned).or_else(|| is_fetched.then(|| text("secret")));
    let request = Owned {
        method: text("method"),
        query: text("url").split_once('?').map_or(String::new(), |(_, query)| query.to_owned()),
        headers: headers.iter().map(header).collect(),
        body: STANDARD.decode(text("body_base64")).expect("base64"),
        urls: vec![text("url")],
        settings,
        fetched: fetched.map(String::into_bytes),
    };
    let name = format!("{provider}/{}", text("case"));
    Sample { preset, name, request, secret: text("secret"), expect: sample["expect"].clone() }
}

/// Whether the sample is to be accepted. Words mean: after trimming the secret, which is done; and upper-case
/// hexadecimal, which is accepted.
fn is_accepted(expect: &Value) -> bool {
    match &expect["verified"] {
        Value::Bool(verified) => *verified,
        Value::String(word) => matches!(word.as_str(), "after trimming" | "policy"),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            expect["handshake"] == Value::Bool(true) && expect["response_status"] != 401
        }
    }
}

fn accepted_events() -> Vec<Sample> {
    samples().into_iter().filter(|sample| is_accepted(&sample.expect) && !sample.is_handshake()).collect()
}

#[test]
fn every_sample_gets_its_verdict() {
    let samples = samples();
    assert!(samples.len() >= 78, "{}", samples.len());
    for sample in samples.iter().filter(|sample| !sample.is_handshake()) {
        let verdict = sample.verdict();
        assert_eq!(verdict.is_ok(), is_accepted(&sample.expect), "{}: {verdict:?}", sample.name);
        if sample.expect["reason"] == "timestamp" {
            assert!(verdict.is_err_and(|reason| reason.code().starts_with("TIMESTAMP")), "{}", sample.name);
        }
    }
}

#[test]
fn a_preset_without_a_sample_says_that_it_is_unproven() {
    let proven: BTreeSet<_> = accepted_events().iter().map(|sample| sample.preset.name).collect();
    let mut silent = Vec::new();
    for preset in Recipe::presets() {
        let is_proven = proven.contains(preset.name) || matches!(preset.name, "custom");
        if !is_proven && !preset.recipe.info().unproven {
            silent.push(preset.name);
        }
    }
    assert!(silent.is_empty(), "these have no sample: {silent:?}");
}

#[test]
fn every_accepted_sample_gives_its_ids_types_entities_and_accounts() {
    for sample in accepted_events() {
        let Sample { preset, name, request, expect, .. } = &sample;
        let events = request.events_of(&preset.recipe, &sample.secrets()).expect("verified");
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
        if let Some(status) = expect["response_status"].as_u64() {
            let reply = preset.recipe.accepted_reply().expect("a reply of its own");
            assert_eq!(u64::from(reply.status), status, "{name}");
        }
    }
}

/// What the provider hears: the reply to a handshake, or to an accepted or refused event.
#[test]
fn every_handshake_sample_gets_its_reply() {
    for sample in samples().iter().filter(|sample| sample.is_handshake()) {
        let Sample { preset, name, request, expect, .. } = sample;
        // The edge answers HEAD for every source.
        if request.method == "HEAD" {
            continue;
        }
        let answer = request.with(|request| handshake(&preset.recipe, request, &sample.secrets(), NOW));
        let reply = match answer {
            Ok(Some(answer)) => {
                assert_eq!(answer.store_secret.is_some(), sample.secret.is_empty(), "{name}");
                answer.reply
            }
            // A check that is an event like others, of no items: Xero's.
            Ok(None) => match sample.verify_at(NOW) {
                Ok(_) => preset.recipe.accepted_reply().expect("a reply of its own").clone(),
                Err(_) => preset.recipe.rejected_reply().expect("a reply of its own").clone(),
            },
            Err(rejection) => panic!("{name}: {rejection}"),
        };
        if let Some(status) = expect["response_status"].as_u64() {
            assert_eq!(u64::from(reply.status), status, "{name}");
        }
        let body = String::from_utf8(reply.body).expect("text");
        if let Some(want) = expect["response_body"].as_str() {
            assert_eq!(body, want, "{name}");
        }
        if let Some(want) = expect.get("response_json") {
            assert_eq!(&serde_json::from_str::<Value>(&body).expect("JSON"), want, "{name}");
        }
        if let Some(want) = expect["response_content_type"].as_str() {
            assert!(reply.content_type.is_some_and(|have| have.starts_with(want)), "{name}");
        }
        for (header, value) in expect["response_headers"].as_object().into_iter().flatten() {
            let header = header.to_ascii_lowercase();
            let have =
                reply.headers.iter().find(|(name, _)| *name == header).map(|(_, value)| value.as_str());
            assert_eq!(have, value.as_str(), "{name}: {header}");
        }
    }
}

#[test]
fn events_are_not_answered_as_handshakes() {
    for sample in accepted_events() {
        let answer = sample
            .request
            .with(|request| handshake(&sample.preset.recipe, request, &sample.secrets(), NOW))
            .expect("verified");
        assert!(answer.is_none(), "{}", sample.name);
    }
}

/// The parts of a body that a scheme signs when it does not sign all of it.
fn signed_parts(sample: &Sample) -> Vec<Vec<u8>> {
    let words: &[&str] = match sample.preset.name {
        "adyen" => &["7914073381342284", "AUTHORISATION", "1130", "EUR", "TestMerchant"],
        "mailgun" => &["1750000000", "a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0"],
        "aws-sns" => &["sns-1", "sns-2", "arn:aws:sns:us-east-1:123456789012:T"],
        "paypal" => &["WH-1", "PAYMENT.CAPTURE.COMPLETED", "42311647XV020574X"],
        _ => &[],
    };
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn no_accepted_sample_survives_a_changed_byte_of_what_is_signed() {
    for sample in accepted_events() {
        let body = &sample.request.body;
        let recipe = &sample.preset.recipe;
        let verified = (sample.request)
            .with(|request| verify(recipe, request, &sample.secrets(), NOW))
            .expect("an accepted sample");
        let whole = recipe.strength_of(&verified) == Strength::Body;
        let places: Vec<usize> = if whole && sample.preset.name == "braintree" {
            // Signatures for other keys stand in the body too, and count for nothing.
            let payload = body.windows(10).position(|have| have == b"bt_payload").expect("there");
            (payload..body.len()).step_by(7).collect()
        } else if whole {
            (0..body.len()).step_by(7).collect()
        } else {
            let find = |part: &Vec<u8>| body.windows(part.len()).position(|have| have == part.as_slice());
            signed_parts(&sample).iter().filter_map(find).collect()
        };
        for place in places {
            let mut changed = sample.request.clone();
            changed.body[place] ^= 1;
            let verdict = changed.verify_at(&sample.preset.recipe, &sample.secrets(), NOW);
            assert!(verdict.is_err(), "{}: byte {place}", sample.name);
        }
    }
}

#[test]
fn no_accepted_sample_verifies_under_another_secret() {
    // Where the key is fetched, the secret only opens the way to it.
    let by_secret =
        |sample: &&Sample| sample.preset.recipe.needs_secret() && sample.request.fetched.is_none();
    for sample in accepted_events().iter().filter(by_secret) {
        let others = other_secrets(&sample.secret);
        let mut tried = 0;
        for other in others {
            let recipe = &sample.preset.recipe;
            let Ok(secret) = Secret::new(recipe, SecretNo(1), &other, Timestamp::EPOCH, None) else {
                continue;
            };
            let verdict = sample.request.verify_at(recipe, &[secret], NOW);
            assert!(verdict.is_err(), "{}", sample.name);
            tried += 1;
        }
        assert!(tried > 0, "{}", sample.name);
    }
}

/// Other secrets in the forms that recipes know.
fn other_secrets(secret: &str) -> Vec<String> {
    let name = secret.split_once('|').map_or("", |(name, _)| name);
    vec![
        "whsec_YW5vdGhlciBzZWNyZXQgYWx0b2dldGhlcg==".to_owned(),
        "00".repeat(32),
        format!("{name}|another"),
        // RFC 8032, section 7.1, test 1.
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".to_owned(),
        include_str!("keys/rsa.public.pem").to_owned(),
        include_str!("keys/p256.public.pem").to_owned(),
        include_str!("keys/ed25519.public.pem").to_owned(),
        include_str!("keys/p256.public.pem").lines().filter(|line| !line.starts_with("---")).collect(),
    ]
}

#[test]
fn no_sample_with_a_signed_time_is_accepted_outside_its_window() {
    // Longer than any window may be.
    let days = Duration::from_secs(8 * 24 * 3600);
    let mut seen = 0;
    for sample in accepted_events() {
        let is_timed =
            sample.preset.json.contains("\"time\": {") && !sample.preset.json.contains("\"record\"");
        let verdicts = [NOW.plus(days), NOW.minus(days)].map(|now| sample.verify_at(now));
        // Presets with several schemes may sign the time in some of them only.
        let is_mixed = matches!(sample.preset.name, "gitlab" | "http-signatures");
        if is_timed && !is_mixed {
            seen += 1;
            assert!(verdicts.iter().all(Result::is_err), "{}: {verdicts:?}", sample.name);
        }
    }
    assert!(seen >= 20, "{seen}");
}
