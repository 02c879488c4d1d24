//! Requests that are answered at once, and those that must not be.

use portero_recipe::{Reason, Recipe, Reply, handshake};

use super::{NOW, Owned, SECRET, preset, secret, signed};

fn answer(recipe: &Recipe, request: &Owned) -> Result<Option<Reply>, Reason> {
    let secrets = [secret(recipe, SECRET)];
    (request.with(|request| handshake(recipe, request, &secrets, NOW)))
        .map(|answer| answer.map(|answer| answer.reply))
        .map_err(|rejection| rejection.reason())
}

#[test]
fn slacks_url_check_is_answered_with_its_challenge() {
    let recipe = preset("slack");
    let request = signed(&recipe, br#"{"type":"url_verification","challenge":"c-1 \u00e9"}"#);
    let reply = answer(&recipe, &request).expect("verified").expect("a handshake");
    assert_eq!((reply.status, reply.body.as_slice()), (200, "c-1 é".as_bytes()));
    assert_eq!(reply.content_type.as_deref(), Some("text/plain; charset=utf-8"));
    assert!(reply.headers.contains(&("x-content-type-options".to_owned(), "nosniff".to_owned())));
}

#[test]
fn an_unsigned_or_ambiguous_url_check_is_not_answered() {
    let recipe = preset("slack");
    let mut forged = signed(&recipe, br#"{"type":"url_verification","challenge":"c-1"}"#);
    forged.body.push(b'\n');
    assert_eq!(answer(&recipe, &forged), Err(Reason::SignatureMismatch));
    let double = br#"{"type":"url_verification","type":"event_callback","challenge":"c-1"}"#;
    assert_eq!(answer(&recipe, &signed(&recipe, double)), Ok(None));
    let empty = signed(&recipe, br#"{"type":"url_verification"}"#);
    assert_eq!(answer(&recipe, &empty), Err(Reason::HandshakeRefused));
    assert_eq!(answer(&recipe, &signed(&recipe, br#"{"type":"event_callback"}"#)), Ok(None));
}

const CRC: &str = r#"{
    "version": 1,
    "schemes": [{
        "signature": {"header": "x-sig", "prefix": "sha256="}, "algorithm": "hmac-sha256", "encoding": "base64",
        "keys": ["text"], "message": "{body}"
    }],
    "handshakes": [{
        "when": {"method": "GET", "queries": ["crc_token"]}, "verify": false,
        "guard": {"value": "{query:crc_token}", "characters": "A-Za-z0-9_-", "length_min": 1, "length_max": 128},
        "compute": {"algorithm": "hmac-sha256", "encoding": "base64"},
        "reply": {"json": {"response_token": "sha256={computed}"}}
    }]
}"#;

fn get(query: &str) -> Owned {
    Owned { method: "GET".to_owned(), query: query.to_owned(), ..Owned::post(&[], b"") }
}

#[test]
fn a_computed_answer_is_given_only_for_a_harmless_value() {
    let recipe = Recipe::from_json(CRC).expect("valid");
    assert!(recipe.answers_method("GET") && !recipe.answers_method("HEAD"));
    let reply = answer(&recipe, &get("crc_token=abc-1")).expect("harmless").expect("a handshake");
    let body = String::from_utf8(reply.body).expect("text");
    assert!(body.starts_with(r#"{"response_token":"sha256="#), "{body}");
    for oracle in ["%7B%22forged%22%3A1%7D", "v0:1:x", "", "a%0Ab", "a&crc_token=b", &"a".repeat(129)] {
        let request = get(&format!("crc_token={oracle}"));
        assert_eq!(answer(&recipe, &request), Err(Reason::HandshakeRefused), "{oracle}");
    }
    assert_eq!(answer(&recipe, &get("")), Ok(None));
}

#[test]
fn a_computed_answer_without_a_guard_is_refused_when_the_recipe_is_read() {
    let start = CRC.find("\"guard\"").expect("there");
    let end = CRC.find("\"compute\"").expect("there");
    let unguarded = [&CRC[..start], &CRC[end..]].concat();
    let error = Recipe::from_json(&unguarded).expect_err("refused");
    assert_eq!(error.path, "handshakes[0].compute");
    let error = Recipe::from_json(&CRC.replace("A-Za-z0-9_-", "A-Za-z0-9_:{-")).expect_err("refused");
    assert_eq!(error.path, "handshakes[0].guard.characters");
}

#[test]
fn the_body_is_not_looked_into_before_verification() {
    let recipe = CRC.replace(r#""queries": ["crc_token"]"#, r#""json_equals": {"type": "x"}"#);
    assert_eq!(Recipe::from_json(&recipe).expect_err("refused").path, "handshakes[0].verify");
}

#[test]
fn a_computed_answer_uses_the_newest_secret() {
    let recipe = Recipe::from_json(CRC).expect("valid");
    let made = |no: i64, text: &str, from: i64| {
        let at = portero_types::Timestamp::from_secs(from);
        portero_recipe::Secret::new(&recipe, portero_types::SecretNo(no), text, at, None).expect("usable")
    };
    let (old, new) = (made(1, "the old secret of the tests", 1), made(2, SECRET, 2));
    let ask = |secrets: &[portero_recipe::Secret]| {
        let answer = get("crc_token=abc").with(|request| handshake(&recipe, request, secrets, NOW));
        answer.expect("harmless").expect("a handshake").reply.body
    };
    let newest = ask(std::slice::from_ref(&new));
    assert_eq!(ask(&[old.clone(), new.clone()]), newest);
    assert_eq!(ask(&[new, old.clone()]), newest);
    assert_ne!(ask(&[old]), newest);
}

#[test]
fn no_answer_is_computed_with_an_older_secret_while_the_newest_cannot_be_read() {
    let recipe = Recipe::from_json(CRC).expect("valid");
    let lost = |from: i64| {
        let at = portero_types::Timestamp::from_secs(from);
        portero_recipe::Secret::unreadable(portero_types::SecretNo(9), at, None)
    };
    let ask = |secrets: &[portero_recipe::Secret]| {
        let answer = get("crc_token=abc").with(|request| handshake(&recipe, request, secrets, NOW));
        answer.map(|answer| answer.is_some()).map_err(|rejection| rejection.reason())
    };
    let known = secret(&recipe, SECRET);
    assert_eq!(ask(&[known.clone(), lost(1)]), Err(Reason::SecretUnreadable));
    assert_eq!(ask(&[known.clone(), lost(-1)]), Ok(true), "an older one matters to nobody");
    assert_eq!(ask(&[lost(1)]), Err(Reason::SecretUnreadable));
    assert_eq!(ask(&[known, lost(2_000_000_000)]), Ok(true), "its time has not come");
}
