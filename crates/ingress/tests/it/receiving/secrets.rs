//! Secrets and their rotation.

use portero_recipe::SignOptions;
use serde_json::{Value, json};

use super::{SECRET, deliver, stripe_event};
use crate::support::{Endpoint, Gateway, Message};

const OLD: &str = "00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF";
const NEW: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";

fn signed_by(endpoint: &Endpoint, secret: &str, body: &[u8]) -> Message {
    Message::signed_by(endpoint, secret, body, SignOptions::default())
}

#[tokio::test]
async fn a_secret_may_be_pasted_as_its_provider_prints_it() {
    let endpoints = [
        ("supabase", format!("v1,{SECRET}")),
        ("standard-webhooks", format!("v1,{SECRET}")),
        ("svix", format!(" {SECRET}\r\n")),
        ("stripe", format!("{SECRET}\n")),
    ]
    .map(|(preset, secret)| Endpoint::new(preset, &secret));
    let gateway = Gateway::start(&endpoints).await;
    for endpoint in &endpoints {
        let message = signed_by(endpoint, SECRET, br#"{"id":"evt_1"}"#);
        assert_eq!(gateway.send(endpoint, &message).await.status, 200, "{}", endpoint.name);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_same_prefix_means_text_at_one_provider_and_base64_at_another() {
    // The key as text, and the key decoded from base64, under the names of presets that use just that.
    let presets = ["stripe", "svix", "polar"].map(|preset| Endpoint::new(preset, SECRET));
    let gateway = Gateway::start(&presets).await;
    let [stripe, svix, polar] = &presets;
    deliver(&gateway, stripe, &stripe_event("evt_1")).await.is_accepted("as text");
    deliver(&gateway, svix, b"{}").await.is_accepted("decoded");
    // Standard Webhooks has base64, this recipe the same with the text as key: Polar takes both.
    let list = r#"{"version":1,"schemes":[{"signature":{"header":"webhook-signature","list":"standard"},"algorithms":{"v1":"hmac-sha256"},"encoding":"base64","keys":["KEY"],"message":"{header:webhook-id}.{ts}.{body}","id":["{header:webhook-id}"],"time":{"source":"{header:webhook-timestamp}","unit":"s"}}]}"#;
    for (id, key) in [("m1", "text"), ("m2", "whsec")] {
        let sender = Endpoint::new(&list.replace("KEY", key), SECRET);
        let options = SignOptions { id: Some(id), ..SignOptions::default() };
        let message = Message::signed_with(&sender, b"{}", options);
        gateway.send(polar, &message).await.is_accepted(key);
        let answer = gateway.send(svix, &message).await;
        assert_eq!(answer.status == 200, key == "whsec", "{key}: {answer:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_secret_nothing_verifies_and_an_empty_key_is_none() {
    let without = Endpoint::new("github", "");
    let gateway = Gateway::start(std::slice::from_ref(&without)).await;
    // HMAC-SHA-256 of '{}' under the empty key.
    let empty_key = "sha256=22f8eea909400af98adf3681a9f31923ef6b7fcba4abb553d92823a3e9d5c25e";
    let message = Message::post(&[("x-hub-signature-256", empty_key)], b"{}");
    gateway.send(&without, &message).await.is_refused("NO_ACTIVE_SECRET", "no secret");
    assert!(gateway.stored(&without).await.is_empty());
    for preset in portero_recipe::Recipe::presets().filter(|preset| preset.recipe.needs_secret()) {
        for empty in ["", " ", "\n", "\t \r\n"] {
            let taken = portero_recipe::clean_secret(&preset.recipe, empty).is_ok();
            assert!(!taken, "{} takes {empty:?} for a secret", preset.name);
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn old_and_new_secret_verify_side_by_side_and_the_receipt_names_which() {
    let (old, new) = ("the old secret of this hook", "the new secret of this hook");
    let endpoint = Endpoint::new("github", old).and(new);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let mut used = Vec::new();
    for (id, secret) in [("d1", old), ("d2", new), ("d3", old)] {
        let options = SignOptions { id: Some(id), ..SignOptions::default() };
        let message = Message::signed_by(&endpoint, secret, b"{}", options);
        gateway.send(&endpoint, &message).await.is_accepted(id);
        let receipt = gateway.receipt(&endpoint, &format!("src:github:{id}")).await.expect("stored");
        used.push(receipt.secret_no.expect("it says which"));
    }
    assert!(used[0] == used[2] && used[0] != used[1], "{used:?}");
    let message = signed_by(&endpoint, "a secret that was never given", b"{}");
    gateway.send(&endpoint, &message).await.is_refused("SIGNATURE_MISMATCH", "another");
    gateway.stop().await;
}

fn adyen_item(reference: &str) -> Value {
    json!({"NotificationRequestItem": {
        "pspReference": reference, "merchantAccountCode": "Shop", "merchantReference": "order:1/a",
        "amount": {"value": 100, "currency": "EUR"}, "eventCode": "AUTHORISATION", "success": "true", "additionalData": {},
    }})
}

#[tokio::test]
async fn a_batch_across_a_change_of_keys_is_taken_when_each_item_verifies() {
    let both = Endpoint::new("adyen", OLD).and(NEW).named("both");
    let only_new = Endpoint::new("adyen", NEW).named("only-new");
    let gateway = Gateway::start(&[both.clone(), only_new.clone()]).await;
    let item = |reference: &str, key: &str| {
        let batch = json!({"live": "false", "notificationItems": [adyen_item(reference)]});
        let signed = signed_by(&both, key, batch.to_string().as_bytes());
        serde_json::from_slice::<Value>(&signed.body).expect("JSON")["notificationItems"][0].clone()
    };
    let items = [item("A", OLD), item("B", NEW)];
    let batch = json!({"live": "false", "notificationItems": items}).to_string();
    let message = Message::post(&[("content-type", "application/json")], batch.as_bytes());
    gateway.send(&only_new, &message).await.is_refused("SIGNATURE_MISMATCH", "an item of the old key");
    assert!(gateway.stored(&only_new).await.is_empty(), "not even the good item");
    let answer = gateway.send(&both, &message).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "[accepted]"));
    let mut used = Vec::new();
    for id in ["A", "B"] {
        let receipt = gateway.receipt(&both, &format!("acct:Shop:{id}:AUTHORISATION")).await.expect("stored");
        used.push(receipt.secret_no.expect("it says which"));
    }
    assert_ne!(used[0], used[1]);
    gateway.stop().await;
}
