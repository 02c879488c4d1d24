//! What is signed verifies; whatever is bent afterwards does not.

use std::sync::Arc;

use portero_recipe::{Preset, Reason, Recipe, SignOptions, Strength, generate_secret, sample, sign};
use proptest::prelude::*;

use super::keys::pair;
use super::{NOW, Owned};

const URL: &str = "https://hooks.example.com/in/1";

/// One way in which a preset can be signed.
struct Way {
    name: String,
    preset: &'static Preset,
    scheme: Option<usize>,
    signing: String,
    verifying: String,
}

impl Way {
    fn recipe(&self) -> &Arc<Recipe> {
        &self.preset.recipe
    }

    fn signed(&self, body: &[u8]) -> Option<Owned> {
        let settings = settings(self.recipe());
        let options = SignOptions {
            id: Some("id-1"),
            event_type: "a.b",
            now: NOW,
            scheme: self.scheme,
            url: Some(URL),
            settings: &settings,
            ..SignOptions::default()
        };
        let mut request = Owned::signed(sign(self.recipe(), &self.signing, body, options).ok()?);
        request.urls = vec![URL.to_owned()];
        request.settings = settings;
        Some(request)
    }
}

/// A value for every required setting.
fn settings(recipe: &Recipe) -> std::collections::BTreeMap<String, String> {
    let required = recipe.settings().iter().filter(|(_, setting)| setting.required);
    required.map(|(name, _)| (name.clone(), "1234567890".to_owned())).collect()
}

/// Every scheme of every preset, with a secret.
fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for preset in Recipe::presets() {
        let Some((signing, verifying)) = pair(preset.json, &preset.recipe) else { continue };
        for scheme in [None, Some(0), Some(1), Some(2)] {
            let name = format!("{} {scheme:?}", preset.name);
            ways.push(Way { name, preset, scheme, signing: signing.clone(), verifying: verifying.clone() });
        }
    }
    ways
}

fn adyen() -> Way {
    ways().into_iter().find(|way| way.preset.name == "adyen" && way.scheme.is_none()).expect("a preset")
}

fn adyen_body(texts: &[String]) -> Vec<u8> {
    let items: Vec<_> = texts
        .iter()
        .map(|text| {
            serde_json::json!({"NotificationRequestItem": {
                "pspReference": text, "merchantReference": text, "eventCode": "X", "success": "true",
            }})
        })
        .collect();
    serde_json::json!({ "notificationItems": items }).to_string().into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_signed_verifies_by_every_preset(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut count = 0;
        for way in ways() {
            let Some(request) = way.signed(&body) else { continue };
            let verdict = request.verify(way.recipe(), &way.verifying);
            // A time that is read in the signed body must be there; random bytes have none.
            if verdict.as_ref().is_err_and(|reason| matches!(reason.code(), "TIMESTAMP_MISSING" | "BODY_MALFORMED")) {
                continue;
            }
            prop_assert!(verdict.is_ok(), "{}: {:?}", way.name, verdict);
            // Some providers' bodies have a known shape, which random bytes have not.
            let events = request.events(way.recipe(), &way.verifying).map_err(|rejection| rejection.reason());
            prop_assert!(events.is_ok() || events == Err(Reason::BodyMalformed), "{}: {events:?}", way.name);
            count += 1;
        }
        prop_assert!(count >= 50, "{}", count);
    }

    #[test]
    fn signed_items_verify_whatever_their_fields_hold(texts in proptest::collection::vec("\\PC{1,12}", 1..6)) {
        let way = adyen();
        let request = way.signed(&adyen_body(&texts)).expect("signs");
        let events = request.events(way.recipe(), &way.verifying).expect("verified");
        prop_assert_eq!(events.len(), texts.len());
    }

    #[test]
    fn no_flipped_bit_of_a_signed_body_goes_unseen(
        body in proptest::collection::vec(any::<u8>(), 1..120), at in any::<prop::sample::Index>(), bit in 0..8_u32,
    ) {
        for way in ways() {
            if way.recipe().strength() != Strength::Body {
                continue;
            }
            let Some(mut request) = way.signed(&body) else { continue };
            let before = (request.body.clone(), request.verify(way.recipe(), &way.verifying).is_ok());
            let at = at.index(request.body.len());
            request.body[at] ^= 1 << bit;
            let verdict = request.verify(way.recipe(), &way.verifying);
            // Two spellings of a form may say the same: then the same is signed.
            let same_form = way.preset.json.contains("{form-sorted}");
            prop_assert!(!before.1 || same_form || verdict.is_err(), "{}: byte {} of {:?}", way.name, at, before.0);
        }
    }

    #[test]
    fn no_flipped_bit_of_the_signature_goes_unseen(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        for way in ways() {
            let Some(good) = way.signed(b"{}") else { continue };
            if good.verify(way.recipe(), &way.verifying).is_err() {
                continue;
            }
            let mut headers = good.headers.iter().map(|(name, _)| name.clone());
            let header = headers.rfind(|name| name.contains("signature") || name.contains("hmac"));
            let Some(header) = header.filter(|name| !name.contains("input") && !name.contains("settings")) else { continue };
            let mut request = good.clone();
            let value = request.header_mut(&header);
            let at = at.index(value.len());
            value[at] ^= 1 << bit;
            let changed = &value[at];
            // The case of a hexadecimal digit is the one thing that carries nothing.
            let is_hex = !way.preset.json.contains("base64");
            let is_case = bit == 5 && changed.is_ascii_hexdigit() && is_hex;
            prop_assert!(is_case || request.verify(way.recipe(), &way.verifying).is_err(), "{} {}", way.name, header);
        }
    }

    #[test]
    fn no_header_query_or_body_makes_verification_panic(
        value in proptest::collection::vec(any::<u8>(), 0..60), query in "[a-z=&%0-9+]{0,30}",
        body in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        for way in ways() {
            let Some(mut request) = way.signed(b"{}") else { continue };
            request.body.clone_from(&body);
            request.query.clone_from(&query);
            for (_, header) in &mut request.headers {
                header.clone_from(&value);
            }
            let verdict = request.verify(way.recipe(), &way.verifying);
            prop_assert!(verdict.is_err() || way.recipe().strength() < Strength::Body, "{}", way.name);
        }
    }
}

#[test]
fn a_bit_flipped_in_a_signed_field_or_signature_of_an_item_is_seen() {
    let way = adyen();
    let good = way.signed(&adyen_body(&["A".into(), "B".into()])).expect("signs");
    let text = String::from_utf8(good.body.clone()).expect("text");
    let value = text.find("hmacSignature\":\"").expect("there") + "hmacSignature\":\"".len();
    for at in value..value + 44 {
        for bit in 0..8 {
            let mut request = good.clone();
            request.body[at] ^= 1 << bit;
            assert!(request.verify(way.recipe(), &way.verifying).is_err(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn private_keys_sign_what_public_keys_verify() {
    let recipe = Recipe::preset("standard-webhooks").expect("a preset");
    let options = SignOptions { id: Some("id-1"), now: NOW, ..SignOptions::default() };
    let private = "whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    let request = Owned::signed(sign(&recipe, private, b"{}", options).expect("signs"));
    let json = Recipe::presets().find(|preset| preset.name == "standard-webhooks").expect("a preset").json;
    let only_public = json.replace(r#""v1": "hmac-sha256", "#, "");
    let only_public = Recipe::from_json(&only_public).expect("valid");
    let public = generate_secret(&only_public, [7; 32]).expect("a key");
    assert_eq!(request.verify(&recipe, &public), Ok(Some(1)));
    assert!(sign(&recipe, &public, b"{}", options).is_err(), "a public key cannot sign");
}

#[test]
fn every_sample_arrives_with_the_id_type_and_entity_that_were_asked_for() {
    let mut wrong = Vec::new();
    for preset in Recipe::presets() {
        let Some((signing, verifying)) = pair(preset.json, &preset.recipe) else { continue };
        let settings = settings(&preset.recipe);
        for (id, entity) in [("evt_77", None), ("4277", Some("4242"))] {
            let sample = sample(&preset.recipe, id, entity, NOW)
                .unwrap_or_else(|| panic!("{} has no sample", preset.name));
            let headers: Vec<(&str, &str)> =
                sample.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let options = SignOptions {
                id: Some(id),
                event_type: &sample.event_type,
                now: NOW,
                url: Some(URL),
                query: &sample.query,
                settings: &settings,
                headers: &headers,
                scheme: None,
            };
            let signed = sign(&preset.recipe, &signing, &sample.body, options)
                .unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            let mut request = Owned::signed(signed);
            request.urls = vec![URL.to_owned()];
            request.settings.clone_from(&settings);
            let events = request
                .events(&preset.recipe, &verifying)
                .unwrap_or_else(|rejection| panic!("{}: {rejection}", preset.name));
            let event = &events[0];
            let found = (event.entity.as_deref().unwrap_or_default(), &event.event_type);
            let has_entity = match entity {
                None => found.0 == sample.entity,
                Some(asked) => found.0.contains(asked),
            };
            let has_id = event.id_derived || event.event_id.contains(id);
            if !has_id || !has_entity || *found.1 != sample.event_type {
                wrong.push(format!("{}: {} {found:?}", preset.name, event.event_id));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
