//! One request, several events.

use portero_recipe::{Reason, Recipe, SignOptions, sign};
use portero_types::limits::EVENTS_PER_REQUEST_MAX;
use serde_json::{Value, json};

use super::{NOW, Owned, numbered, preset};

const KEY: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
const OLD_KEY: &str = "00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF";

fn item(reference: &str, code: &str) -> Value {
    json!({"NotificationRequestItem": {
        "pspReference": reference, "merchantAccountCode": "M", "merchantReference": "order:42/7",
        "amount": {"value": 9_007_199_254_740_993_i64, "currency": "EUR"}, "eventCode": code, "success": "true",
        "additionalData": {"note": "not signed"},
    }})
}

fn batch(items: &[Value]) -> Vec<u8> {
    json!({"live": "false", "notificationItems": items}).to_string().into_bytes()
}

fn adyen(body: &[u8], key: &str) -> Owned {
    let options = SignOptions { now: NOW, ..SignOptions::default() };
    Owned::signed(sign(&preset("adyen"), key, body, options).expect("signs"))
}

#[test]
fn each_item_is_an_event_with_its_own_bytes() {
    let recipe = preset("adyen");
    let request = adyen(&batch(&[item("A", "AUTHORISATION"), item("B", "CAPTURE")]), KEY);
    let events = request.events(&recipe, KEY).expect("verified");
    let ids: Vec<_> = events.iter().map(|event| event.event_id.as_str()).collect();
    assert_eq!(ids, ["A:AUTHORISATION", "B:CAPTURE"]);
    for event in &events {
        let bytes: Value =
            serde_json::from_slice(&request.body[event.body.clone()]).expect("an item is JSON");
        assert_eq!(bytes["pspReference"].as_str(), event.entity.as_deref());
        assert_eq!(event.account.as_deref(), Some("M"));
    }
}

#[test]
fn one_forged_or_unsigned_item_refuses_the_whole_batch() {
    let recipe = preset("adyen");
    let good = adyen(&batch(&[item("A", "AUTHORISATION"), item("B", "CAPTURE")]), KEY);
    let text = String::from_utf8(good.body.clone()).expect("text");
    let verdict = |body: String| {
        let request = Owned { body: body.into_bytes(), ..good.clone() };
        request.verify(&recipe, KEY)
    };
    assert_eq!(verdict(text.clone()), Ok(Some(1)));
    assert_eq!(verdict(text.replace("CAPTURE", "REFUND")), Err(Reason::SignatureMismatch));
    let last = text.rfind("hmacSignature").expect("there");
    let unsigned = format!("{}other{}", &text[..last], &text[last + "hmacSignature".len()..]);
    assert_eq!(verdict(unsigned), Err(Reason::SignatureMissing));
    let doubled =
        text.replacen("\"eventCode\":\"CAPTURE\"", "\"eventCode\":\"CAPTURE\",\"eventCode\":\"CAPTURE\"", 1);
    assert_eq!(verdict(doubled), Err(Reason::BodyMalformed), "two readers could differ");
}

#[test]
fn items_may_be_signed_under_different_active_secrets_and_each_tells_which() {
    let recipe = preset("adyen");
    let first = adyen(&batch(&[item("A", "AUTHORISATION")]), OLD_KEY).body;
    let second = adyen(&batch(&[item("B", "CAPTURE")]), KEY).body;
    let items: Vec<Value> = [first, second]
        .iter()
        .map(|body| serde_json::from_slice::<Value>(body).expect("JSON")["notificationItems"][0].clone())
        .collect();
    let request = Owned::post(&[], &batch(&items));
    let secrets = [numbered(&recipe, 1, OLD_KEY), numbered(&recipe, 2, KEY)];
    let told: Vec<_> = request.with(|r| {
        let verified = portero_recipe::verify(&recipe, r, &secrets, NOW).expect("verified");
        let events = portero_recipe::extract(&recipe, r, &verified).expect("read");
        events.iter().map(|event| event.secret.map(|no| no.0)).collect()
    });
    assert_eq!(told, [Some(1), Some(2)]);
    assert_eq!(request.verify_at(&recipe, &secrets[1..], NOW), Err(Reason::SignatureMismatch));
}

#[test]
fn references_with_colons_and_slashes_are_signed_as_they_are() {
    // The documented text, signed as a plain message, must give the same signature.
    let mut one = item("7914073381342284", "REPORT_AVAILABLE");
    one["NotificationRequestItem"]["merchantReference"] = "14-08-2020-09:53:00".into();
    let request = adyen(&batch(&[one]), KEY);
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    let item = &body["notificationItems"][0]["NotificationRequestItem"];
    let text = "7914073381342284::M:14-08-2020-09:53:00:9007199254740993:EUR:REPORT_AVAILABLE:true";
    let options = SignOptions { now: NOW, ..SignOptions::default() };
    let plain = Recipe::from_json(
        r#"{"version":1,"schemes":[{"signature":{"header":"s"},"algorithm":"hmac-sha256","encoding":"base64","keys":["hex"],"message":"{body}"}]}"#,
    )
    .expect("valid");
    let expected = sign(&plain, KEY, text.as_bytes(), options).expect("signs");
    assert_eq!(item["additionalData"]["hmacSignature"].as_str(), Some(expected.headers[0].1.as_str()));
}

#[test]
fn bodies_that_hold_no_batch_are_refused_before_anything_counts() {
    let recipe = preset("adyen");
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    for (body, reason) in [
        ("", Reason::BodyMalformed),
        ("not JSON", Reason::BodyMalformed),
        ("{}", Reason::BodyMalformed),
        (r#"{"notificationItems":{}}"#, Reason::BodyMalformed),
        (r#"{"notificationItems":[{"Other":{}}]}"#, Reason::BodyMalformed),
        (r#"{"notificationItems":[],"notificationItems":[]}"#, Reason::BodyMalformed),
        (r#"{"notificationItems":[]}"#, Reason::SignatureMissing),
        (r#"{"notificationItems":[{"NotificationRequestItem":7}]}"#, Reason::SignatureMissing),
        (&deep, Reason::BodyMalformed),
    ] {
        assert_eq!(Owned::post(&[], body.as_bytes()).verify(&recipe, KEY), Err(reason), "{body}");
    }
    let many: Vec<Value> = (0..=EVENTS_PER_REQUEST_MAX).map(|n| item(&n.to_string(), "X")).collect();
    assert_eq!(Owned::post(&[], &batch(&many)).verify(&recipe, KEY), Err(Reason::TooManyEvents));
}

#[test]
fn platform_webhooks_are_told_by_their_header_and_cover_the_body() {
    let recipe = preset("adyen");
    let body = br#"{"type":"balancePlatform.transfer.updated","data":{"id":"T1","balancePlatform":"P"}}"#;
    let mut request = adyen(body, KEY);
    let event = request.event(&recipe, KEY);
    assert_eq!(
        (event.entity.as_deref(), event.account.as_deref(), event.id_derived),
        (Some("T1"), Some("P"), true)
    );
    request.body.push(b' ');
    assert_eq!(request.verify(&recipe, KEY), Err(Reason::SignatureMismatch));
}

const SPLIT: &str = r#"{
    "version": 1,
    "schemes": [{
        "signature": {"header": "x-sig"}, "algorithm": "hmac-sha256", "keys": ["text"], "message": "{body}",
        "items": ["eventNotifications.*.dataChangeEvent.entities.*", "*"],
        "id": ["{item:id}"], "type": ["{item:name}"], "entity": ["{outer:realmId}:{item:name}:{item:id}", "{item:id}"]
    }]
}"#;

fn split(body: &[u8]) -> Result<Vec<(String, Option<String>)>, Reason> {
    let recipe = Recipe::from_json(SPLIT).expect("valid");
    let request = super::signed(&recipe, body);
    let events = request.events(&recipe, super::SECRET).map_err(|rejection| rejection.reason())?;
    Ok(events.into_iter().map(|event| (event.event_id, event.entity)).collect())
}

#[test]
fn a_batch_signed_as_a_whole_is_split_along_the_first_path_that_fits() {
    let nested = br#"{"eventNotifications":[{"realmId":"R","dataChangeEvent":{"entities":[{"id":"1","name":"N"},{"id":"2","name":"N"}]}}]}"#;
    let event = |id: &str, entity: &str| (id.to_owned(), Some(entity.to_owned()));
    assert_eq!(split(nested), Ok(vec![event("1", "R:N:1"), event("2", "R:N:2")]));
    assert_eq!(split(br#"[{"id":7},{"id":8}]"#), Ok(vec![event("7", "7"), event("8", "8")]));
}

#[test]
fn an_empty_batch_has_no_events_and_another_shape_is_one() {
    assert_eq!(split(b"[]"), Ok(Vec::new()));
    for body in [&b"{}"[..], b"text", b"", br#"{"eventNotifications":[{}]}"#] {
        let events = split(body).expect("verified");
        assert!(events.len() == 1 && events[0].0.starts_with("sha256:"));
    }
    let many = format!("[{}0]", "0,".repeat(EVENTS_PER_REQUEST_MAX));
    assert_eq!(split(many.as_bytes()), Err(Reason::TooManyEvents));
}

#[test]
fn items_without_an_id_get_one_from_their_own_bytes() {
    let events = split(br#"[{"a":1},{"a":2},{"a":1}]"#).expect("verified");
    assert_eq!(events[0].0, events[2].0);
    assert_ne!(events[0].0, events[1].0);
}

#[test]
fn events_without_an_id_are_told_apart_only_where_equal_bytes_may_be_two_events() {
    let distinct = |preset_name: &str, body: &str| {
        let recipe = preset(preset_name);
        let secret = "a secret of the tests, long enough";
        let request = super::signed(&recipe, body.as_bytes());
        request
            .events(&recipe, secret)
            .expect("verified")
            .iter()
            .map(|event| event.distinct)
            .collect::<Vec<_>>()
    };
    let account = r#"{"list_folder":{"accounts":["dbid:1"]},"delta":{"users":[1]}}"#;
    assert_eq!(distinct("dropbox", account), [true]);
    assert_eq!(distinct("lemonsqueezy", r#"{"data":{"type":"orders","id":"1"}}"#), [false]);
}
