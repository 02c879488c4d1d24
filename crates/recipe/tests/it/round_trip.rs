//! What is signed verifies; whatever is bent afterwards does not.

use std::sync::Arc;

use portero_recipe::{Recipe, SignOptions, generate_secret, sample, sign};
use proptest::prelude::*;

use super::{NOW, Owned};

/// Every scheme of every preset, with a secret.
fn schemes() -> Vec<(String, Arc<Recipe>, Option<usize>, String)> {
    let mut schemes = Vec::new();
    for preset in Recipe::presets() {
        let secret = generate_secret(&preset.recipe, [7; 32]);
        for scheme in [None, Some(0), Some(1)] {
            schemes.push((
                format!("{} {scheme:?}", preset.name),
                Arc::clone(&preset.recipe),
                scheme,
                secret.clone(),
            ));
        }
    }
    schemes
}

fn signed(recipe: &Recipe, scheme: Option<usize>, secret: &str, body: &[u8]) -> Option<Owned> {
    let options =
        SignOptions { id: Some("id-1"), event_type: "a.b", now: NOW, scheme, ..SignOptions::default() };
    sign(recipe, secret, body, options).ok().map(Owned::signed)
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
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_signed_verifies_by_every_preset(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut count = 0;
        for (name, recipe, scheme, secret) in schemes() {
            if let Some(request) = signed(&recipe, scheme, &secret, &body) {
                prop_assert_eq!(request.verify(&recipe, &secret), Ok(Some(1)), "{}", name);
                prop_assert_eq!(request.events(&recipe, &secret).map(|events| events.len()), Ok(1), "{}", name);
                count += 1;
            }
        }
        prop_assert!(count >= 15, "{}", count);
    }

    #[test]
    fn signed_items_verify_whatever_their_fields_hold(texts in proptest::collection::vec("\\PC{1,12}", 1..6)) {
        let recipe = Recipe::preset("adyen").expect("a preset");
        let secret = generate_secret(&recipe, [7; 32]);
        let request = signed(&recipe, None, &secret, &adyen_body(&texts)).expect("signs");
        let events = request.events(&recipe, &secret).expect("verified");
        prop_assert_eq!(events.len(), texts.len());
        for (event, text) in events.iter().zip(&texts) {
            prop_assert_eq!(&event.event_id, &format!("{text}:X"));
        }
    }

    #[test]
    fn no_flipped_bit_of_the_body_goes_unseen(
        body in proptest::collection::vec(any::<u8>(), 1..120), at in any::<prop::sample::Index>(), bit in 0..8_u32,
    ) {
        for (name, recipe, scheme, secret) in schemes() {
            let Some(mut request) = signed(&recipe, scheme, &secret, &body) else { continue };
            let at = at.index(request.body.len());
            request.body[at] ^= 1 << bit;
            prop_assert!(request.verify(&recipe, &secret).is_err(), "{}", name);
        }
    }

    #[test]
    fn no_flipped_bit_of_the_signature_goes_unseen(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        for (name, recipe, scheme, secret) in schemes() {
            let Some(good) = signed(&recipe, scheme, &secret, b"{}") else { continue };
            let mut headers = good.headers.iter().map(|(name, _)| name.clone());
            let header = headers.rfind(|name| name.contains("signature") || name.contains("hmac"));
            let Some(header) = header else { continue };
            let mut request = good.clone();
            let value = request.header_mut(&header);
            let at = at.index(value.len());
            value[at] ^= 1 << bit;
            let changed = &value[at];
            // The case of a hexadecimal digit is the one thing that carries nothing.
            let is_case = bit == 5 && changed.is_ascii_hexdigit() && !header.contains("hmac")
                && !header.starts_with("webhook") && !header.starts_with("svix");
            prop_assert!(is_case || request.verify(&recipe, &secret).is_err(), "{} {}", name, header);
        }
    }

    #[test]
    fn no_header_query_or_body_makes_verification_panic(
        value in proptest::collection::vec(any::<u8>(), 0..60), query in "[a-z=&%0-9+]{0,30}",
        body in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        for preset in Recipe::presets() {
            let secret = generate_secret(&preset.recipe, [7; 32]);
            let names = ["stripe-signature", "x-hub-signature-256", "webhook-signature", "webhook-id", "webhook-timestamp",
                "svix-signature", "x-slack-signature", "x-slack-request-timestamp", "x-shopify-hmac-sha256", "hmacsignature",
                "x-webhook-signature"];
            let mut request = Owned::post(&[], &body);
            request.query.clone_from(&query);
            request.headers = names.iter().map(|name| ((*name).to_owned(), value.clone())).collect();
            prop_assert!(request.verify(&preset.recipe, &secret).is_err());
        }
    }
}

#[test]
fn a_bit_flipped_in_a_signed_field_or_signature_of_an_item_is_seen() {
    let recipe = Recipe::preset("adyen").expect("a preset");
    let secret = generate_secret(&recipe, [7; 32]);
    let good = signed(&recipe, None, &secret, &adyen_body(&["A".into(), "B".into()])).expect("signs");
    let text = String::from_utf8(good.body.clone()).expect("text");
    let value = text.find("hmacSignature\":\"").expect("there") + "hmacSignature\":\"".len();
    for at in value..value + 44 {
        for bit in 0..8 {
            let mut request = good.clone();
            request.body[at] ^= 1 << bit;
            assert!(request.verify(&recipe, &secret).is_err(), "byte {at}, bit {bit}");
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
    let public = generate_secret(&only_public, [7; 32]);
    assert_eq!(request.verify(&recipe, &public), Ok(Some(1)));
    assert!(sign(&recipe, &public, b"{}", options).is_err(), "a public key cannot sign");
}

#[test]
fn every_sample_arrives_with_the_id_type_and_entity_that_were_asked_for() {
    for preset in Recipe::presets() {
        let secret = generate_secret(&preset.recipe, [7; 32]);
        for entity in [None, Some("4242")] {
            let sample = sample(preset.name, "evt_77", entity).expect("every preset has a sample");
            let headers: Vec<(&str, &str)> =
                sample.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let options = SignOptions {
                id: Some("evt_77"),
                event_type: &sample.event_type,
                now: NOW,
                headers: &headers,
                ..SignOptions::default()
            };
            let request = Owned::signed(sign(&preset.recipe, &secret, &sample.body, options).expect("signs"));
            let event = request.event(&preset.recipe, &secret);
            let id = if preset.name == "adyen" { "evt_77:AUTHORISATION" } else { "evt_77" };
            assert_eq!((event.event_id.as_str(), event.id_derived), (id, false), "{}", preset.name);
            assert_eq!(event.event_type, sample.event_type, "{}", preset.name);
            assert_eq!(event.entity.as_deref(), Some(sample.entity.as_str()), "{}", preset.name);
            assert!(entity.is_none_or(|entity| sample.entity.contains(entity)), "{}", preset.name);
        }
    }
    assert!(sample("nobody", "1", None).is_none());
}
