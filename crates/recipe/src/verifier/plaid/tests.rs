use std::time::Duration;

use super::super::jwt;
use super::super::tests::{NOW, Owned, recipe};
use super::*;
use crate::Recipe;
use crate::certificate::{PrivateKey, fixtures};

const KEY_ID: &str = "6c5516e1-92dc-479e-a8ff-5a51992e0001";
const SECRET: &str = "plaid-secret-0123456789";
const BODY: &[u8] = br#"{"webhook_type":"ITEM","webhook_code":"ERROR","item_id":"i1"}"#;

fn plaid() -> Recipe {
    recipe(r#"{"kind":"plaid"}"#)
}

/// Plaid's answer with our key in it.
fn answer(changes: &[(&str, serde_json::Value)]) -> Vec<u8> {
    let PrivateKey::P256(key) = PrivateKey::from_pem(fixtures::P256_PRIVATE).expect("a key") else {
        panic!("not a P-256 key");
    };
    let point = key.verifying_key().to_sec1_point(false);
    let (x, y) = (&point.as_bytes()[1..33], &point.as_bytes()[33..]);
    let mut key = serde_json::json!({
        "alg": "ES256", "crv": "P-256", "kid": KEY_ID, "kty": "EC", "use": "sig",
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        "created_at": 1_560_466_143, "expired_at": null,
    });
    for (name, value) in changes {
        key[*name] = value.clone();
    }
    serde_json::json!({ "key": key, "request_id": "r" }).to_string().into_bytes()
}

fn token(header: &str, claims: &str) -> String {
    let key = PrivateKey::from_pem(fixtures::P256_PRIVATE).expect("a key");
    jwt::write(header, claims, |signed| key.sign(KeyPairAlgorithm::EcdsaP256Fixed, signed).expect("P-256"))
}

fn header() -> String {
    format!(r#"{{"alg":"ES256","kid":"{KEY_ID}","typ":"JWT"}}"#)
}

fn claims(iat: i64, body: &[u8]) -> String {
    format!(r#"{{"iat":{iat},"request_body_sha256":"{}"}}"#, hex::encode(Sha256::digest(body)))
}

fn signed_as(header: &str, claims: &str) -> Owned {
    let mut request = Owned { body: BODY.to_vec(), fetched: Some(answer(&[])), ..Owned::default() };
    request.set("plaid-verification", &token(header, claims));
    request.setting("client_id", "client-1");
    request
}

fn good() -> Owned {
    signed_as(&header(), &claims(NOW.as_secs(), BODY))
}

#[test]
fn a_request_asks_plaid_for_its_key_and_verifies_under_it() {
    let fetch = good().fetch(&plaid(), &[SECRET]).expect("harmless").expect("needed");
    assert_eq!(fetch.url, "https://production.plaid.com/webhook_verification_key/get");
    let question: serde_json::Value =
        serde_json::from_str(fetch.post_json.expect("a question").expose_secret()).expect("JSON");
    let expected = serde_json::json!({"client_id": "client-1", "secret": SECRET, "key_id": KEY_ID});
    assert_eq!(question, expected);
    assert!(!fetch.cache_key.contains(SECRET));
    assert_eq!(good().verify(&plaid(), &[SECRET], NOW), Ok(Some(1)));
}

#[test]
fn the_sandbox_is_asked_when_the_source_says_so() {
    let mut request = good();
    request.setting("environment", "sandbox");
    let fetch = request.fetch(&plaid(), &[SECRET]).expect("harmless").expect("needed");
    assert_eq!(fetch.url, "https://sandbox.plaid.com/webhook_verification_key/get");
    request.setting("environment", "evil.example/?");
    assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::SettingMissing));
}

#[test]
fn other_algorithms_are_refused_before_anything_is_fetched() {
    for alg in ["none", "HS256", "RS256", "ES384", "es256", ""] {
        let request = signed_as(&header().replace("ES256", alg), &claims(NOW.as_secs(), BODY));
        assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::SignatureMalformed), "{alg}");
        assert_eq!(request.refused(&plaid(), &[SECRET], NOW), Some(Reason::SignatureMalformed), "{alg}");
    }
}

#[test]
fn key_ids_of_another_shape_are_refused_before_anything_is_fetched() {
    let long = "a".repeat(129);
    for id in ["", "a b", "../x", "a\\\"b", "é", &long] {
        let request = signed_as(&header().replace(KEY_ID, id), &claims(NOW.as_secs(), BODY));
        assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::SignatureMalformed), "{id}");
    }
    let request = signed_as(r#"{"alg":"ES256"}"#, &claims(NOW.as_secs(), BODY));
    assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::SignatureMalformed));
}

#[test]
fn a_changed_body_or_token_is_refused() {
    for byte in 0..BODY.len() {
        let mut request = good();
        request.body[byte] ^= 1;
        assert_eq!(
            request.refused(&plaid(), &[SECRET], NOW),
            Some(Reason::BodyDigestMismatch),
            "byte {byte}"
        );
    }
    let token = good().header("plaid-verification").to_owned();
    for byte in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[byte] = if changed[byte] == b'A' { b'B' } else { b'A' };
        let mut request = good();
        request.set("plaid-verification", &String::from_utf8(changed).expect("ASCII"));
        assert!(request.refused(&plaid(), &[SECRET], NOW).is_some(), "byte {byte}");
    }
    let request = signed_as(&header(), &format!(r#"{{"iat":{}}}"#, NOW.as_secs()));
    assert_eq!(request.refused(&plaid(), &[SECRET], NOW), Some(Reason::BodyDigestMismatch), "no digest");
}

#[test]
fn the_time_counts_in_both_directions() {
    for (offset, reason) in [
        (-301, Some(Reason::TimestampTooOld)),
        (-300, None),
        (300, None),
        (301, Some(Reason::TimestampInFuture)),
    ] {
        let request = signed_as(&header(), &claims(NOW.as_secs() + offset, BODY));
        assert_eq!(request.refused(&plaid(), &[SECRET], NOW), reason, "{offset}");
        assert_eq!(request.unfetched(&plaid(), &[SECRET]), reason, "{offset}");
    }
    let request = signed_as(&header(), "{}");
    assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::TimestampMissing));
    let request = signed_as(&header(), r#"{"iat":"soon"}"#);
    assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::TimestampMalformed));
}

#[test]
fn only_the_key_that_was_asked_for_counts_and_only_until_it_ends() {
    let mut request = good();
    for (name, value) in [
        ("kid", "another".into()),
        ("kty", "RSA".into()),
        ("crv", "P-384".into()),
        ("x", "AAAA".into()),
        ("x", serde_json::Value::Null),
        ("y", URL_SAFE_NO_PAD.encode([1; 32]).into()),
        ("expired_at", NOW.as_secs().into()),
        ("expired_at", "never".into()),
    ] {
        request.fetched = Some(answer(&[(name, value.clone())]));
        assert_eq!(
            request.refused(&plaid(), &[SECRET], NOW),
            Some(Reason::FetchedKeyInvalid),
            "{name}: {value}"
        );
    }
    for bad in [None, Some(&b""[..]), Some(b"{}"), Some(b"<html>"), Some(b"[]")] {
        request.fetched = bad.map(<[u8]>::to_vec);
        assert_eq!(request.refused(&plaid(), &[SECRET], NOW), Some(Reason::FetchedKeyInvalid));
    }
    request.fetched = Some(answer(&[("expired_at", NOW.plus(Duration::from_secs(1)).as_secs().into())]));
    assert_eq!(request.refused(&plaid(), &[SECRET], NOW), None);
}

#[test]
fn credentials_are_needed_to_ask() {
    let mut request = good();
    assert_eq!(request.unfetched(&plaid(), &[]), Some(Reason::NoActiveSecret));
    request.settings.clear();
    assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::SettingMissing));
    request.headers.clear();
    assert_eq!(request.unfetched(&plaid(), &[SECRET]), Some(Reason::SignatureMissing));
}
