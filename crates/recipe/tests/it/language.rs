//! The recipe language: what it refuses, and that each refusal names its field.

use portero_recipe::{RECIPE_BYTES_MAX, Reason, Recipe, SignOptions, Strength, sign};
use proptest::prelude::*;

use super::{NOW, Owned, SECRET, secret};

/// A small recipe to bend.
pub(crate) fn minimal() -> &'static str {
    r#"{"version": 1, "schemes": [{"signature": {"header": "x-sig"}, "algorithm": "hmac-sha256", "keys": ["text"], "message": "{body}"}]}"#
}

fn refusal(from: &str, to: &str) -> (String, String) {
    assert!(minimal().contains(from), "{from}");
    let error = Recipe::from_json(&minimal().replace(from, to)).expect_err(to);
    (error.path, error.reason)
}

#[test]
fn every_mistake_names_its_field() {
    for (from, to, path) in [
        ("\"version\": 1", "\"version\": 2", "version"),
        ("\"version\": 1", "\"version\": 1, \"colour\": 1", "colour"),
        ("\"x-sig\"", "\"x sig\"", "schemes[0].signature.header"),
        ("\"header\": \"x-sig\"", "\"header\": \"a\", \"json\": \"b\"", "schemes[0].signature"),
        ("\"header\": \"x-sig\"", "\"item\": \"a\"", "schemes[0].signature.item"),
        ("\"header\": \"x-sig\"", "\"headr\": \"x-sig\"", "schemes[0].signature.headr"),
        ("\"header\": \"x-sig\"", "\"header\": \"x-sig\", \"list\": \"pairs\"", "schemes[0].signature"),
        ("\"header\": \"x-sig\"", "\"header\": \"x-sig\", \"list\": \"standard\"", "schemes[0].algorithms"),
        (
            "\"header\": \"x-sig\"",
            "\"header\": \"x-sig\", \"separator\": \"x\"",
            "schemes[0].signature.separator",
        ),
        ("hmac-sha256", "md5", "schemes[0].algorithm"),
        ("[\"text\"]", "[]", "schemes[0].keys"),
        ("[\"text\"]", "[\"guess\"]", "schemes[0].keys[0]"),
        ("\"hmac-sha256\"", "\"ed25519\"", "schemes[0].keys"),
        ("{body}", "{bdy}", "schemes[0].message"),
        ("{body}", "{method}{url}", "schemes[0].message"),
        (
            "\"header\": \"x-sig\"},",
            "\"header\": \"x-sig\", \"list\": \"positional\", \"separator\": \",\"},",
            "schemes[0].time",
        ),
        ("{body}", "constant", "schemes[0].message"),
        ("{body}", "{body}{json:a}", "schemes[0].message"),
        ("{body}", "{form:a}", "schemes[0].message"),
        ("{body}", "{ts}.{body}", "schemes[0].time"),
        (
            "\"{body}\"",
            "\"{body}\", \"time\": {\"source\": \"{header:t}\", \"unit\": \"s\"}",
            "schemes[0].time",
        ),
        ("\"{body}\"", "\"{ts}{body}\", \"time\": {\"unit\": \"s\"}", "schemes[0].time.source"),
        (
            "\"{body}\"",
            "\"{ts}{body}\", \"time\": {\"source\": \"{header:t}\", \"unit\": \"s\", \"past_s\": 0}",
            "schemes[0].time",
        ),
        ("\"{body}\"", "\"{body}\", \"items\": [\"a.b\"]", "schemes[0].items[0]"),
        ("\"{body}\"", "\"{body}\", \"id\": [\"{item:a}\"]", "schemes[0].id[0]"),
        ("\"{body}\"", "\"{body}\", \"id\": [\"{body}\"]", "schemes[0].id[0]"),
        ("\"{body}\"", "\"{body}\", \"id\": [\"ev-{json?:id}\"]", "schemes[0].id[0]"),
        ("\"{body}\"", "\"{body}\", \"id\": [\"{json:id}\", \"x[{json:b}]\"]", "schemes[0].id[1]"),
        ("\"{body}\"", "\"{body}\", \"when\": {}", "schemes[0].when"),
        ("\"version\": 1", "\"version\": 1, \"accepted\": {\"status\": 500}", "accepted.status"),
        (
            "\"version\": 1",
            "\"version\": 1, \"accepted\": {\"status\": 200, \"content_type\": \"text/html\", \"body\": \"a\"}",
            "accepted.content_type",
        ),
        ("\"version\": 1", "\"version\": 1, \"rejected\": {\"status\": 200}", "rejected.status"),
    ] {
        let (have, reason) = refusal(from, to);
        assert_eq!(have, path, "{to}: {reason}");
        assert!(!reason.is_empty());
    }
}

#[test]
fn the_example_of_the_language_page_is_a_recipe() {
    let page = include_str!("../../LANGUAGE.md");
    let example = page.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let recipe = Recipe::from_json(example).expect("valid");
    let request = super::signed(&recipe, br#"{"id":"1","type":"t","data":{"id":"x"}}"#);
    assert_eq!(request.event(&recipe, SECRET).entity.as_deref(), Some("x"));
}

#[test]
fn what_is_too_large_empty_or_more_than_one_value_is_refused() {
    assert!(Recipe::from_json(minimal()).is_ok());
    assert!(Recipe::from_json(&format!("{}{}", minimal(), " ".repeat(RECIPE_BYTES_MAX))).is_err());
    assert!(Recipe::from_json(&format!("{} {{}}", minimal())).is_err());
    assert!(Recipe::from_json(r#"{"version":1,"schemes":[]}"#).is_err());
    assert!(Recipe::from_json(r#"[1,"title"]"#).is_err_and(|error| error.reason.contains("not an object")));
    let twice = minimal().replace("\"version\": 1", "\"version\": 1, \"version\": 1");
    assert!(Recipe::from_json(&twice).is_err());
}

#[test]
fn weaker_proofs_than_the_body_need_the_operators_word() {
    let token = minimal().replace("hmac-sha256", "equal").replace(r#", "message": "{body}""#, "");
    let none = r#"{"version": 1, "schemes": [{"algorithm": "none"}]}"#;
    let fields = minimal().replace("{body}", "{header:x-id}");
    for (recipe, word, strength) in [
        (token.as_str(), "token", Strength::Token),
        (none, "none", Strength::None),
        (&fields, "fields", Strength::Fields),
    ] {
        let error = Recipe::from_json(recipe).expect_err("refused");
        assert!(error.path == "schemes[0]" && error.reason.contains(word), "{error}");
        let said = recipe.replacen("\"version\": 1", &format!("\"version\": 1, \"weakest\": \"{word}\""), 1);
        assert_eq!(Recipe::from_json(&said).expect("valid").strength(), strength);
    }
}

#[test]
fn only_the_last_scheme_may_apply_always() {
    let scheme = &minimal()[minimal().find("[{").expect("there") + 1..minimal().rfind("]}").expect("there")];
    let two = format!(r#"{{"version": 1, "schemes": [{scheme}, {scheme}]}}"#);
    assert_eq!(Recipe::from_json(&two).expect_err("refused").path, "schemes[0].when");
}

#[test]
fn a_static_token_is_compared_whole_and_an_empty_one_never_matches() {
    let recipe = Recipe::from_json(
        r#"{"version":1,"weakest":"token","schemes":[{"signature":{"header":"x-token","prefix":"Bearer "},"algorithm":"equal"}]}"#,
    )
    .expect("valid");
    let verdict = |value: &str| Owned::post(&[("x-token", value)], b"any").verify(&recipe, SECRET);
    assert_eq!(verdict(&format!("Bearer {SECRET}")), Ok(Some(1)));
    assert_eq!(verdict(SECRET), Err(Reason::SignatureMissing));
    assert_eq!(verdict("Bearer "), Err(Reason::SignatureMalformed));
    assert_eq!(verdict(""), Err(Reason::SignatureMissing));
    assert_eq!(verdict(&format!("Bearer {}", &SECRET[1..])), Err(Reason::SignatureMismatch));
}

#[test]
fn a_recipe_that_verifies_nothing_says_so_in_every_receipt() {
    let recipe = Recipe::from_json(r#"{"version":1,"weakest":"none","schemes":[{"algorithm":"none"}]}"#)
        .expect("valid");
    assert_eq!(Owned::post(&[], b"x").verify_at(&recipe, &[], NOW), Ok(None));
}

/// Schemes of providers without a preset, to hold the language to its promise that they are only data.
#[test]
fn other_providers_schemes_are_only_data() {
    for scheme in [
        // numbered headers
        r#"{"signature":{"numbered":"X-DocuSign-Signature-"},"algorithm":"hmac-sha256","encoding":"base64","keys":["text"],"message":"{body}"}"#,
        // URL in front, URL behind
        r#"{"signature":{"header":"x-square"},"algorithm":"hmac-sha256","encoding":"base64","keys":["text"],"message":"{url}{body}"}"#,
        r#"{"signature":{"header":"x-trello"},"algorithm":"hmac-sha1","encoding":"base64","keys":["text"],"message":"{body}{url}"}"#,
        // milliseconds, method
        r#"{"signature":{"header":"x-hs"},"algorithm":"hmac-sha256","encoding":"base64","keys":["text"],"message":"{method}{url}{body}{ts}","time":{"source":"{header:x-ts}","unit":"ms"}}"#,
        // RFC 3339
        r#"{"signature":{"header":"x-tw","prefix":"sha256="},"algorithm":"hmac-sha256","keys":["text"],"message":"{header:x-id}{ts}{body}","id":["{header:x-id}"],"time":{"source":"{header:x-ts}","unit":"rfc3339","past_s":600}}"#,
        // SHA-512, list of pairs by semicolon, spaces after commas
        r#"{"signature":{"header":"x-ps"},"algorithm":"hmac-sha512","keys":["text"],"message":"{body}"}"#,
        r#"{"signature":{"header":"paddle-signature","list":"pairs","separator":";","tag":"h1","time":"ts"},"algorithm":"hmac-sha256","keys":["text"],"message":"{ts}:{body}","time":{"unit":"s"}}"#,
    ] {
        let recipe = Recipe::from_json(&format!(r#"{{"version":1,"schemes":[{scheme}]}}"#)).expect(scheme);
        let url = "https://hooks.example.com/in/1";
        let options = SignOptions { id: Some("id-1"), now: NOW, url: Some(url), ..SignOptions::default() };
        let mut request = Owned::signed(sign(&recipe, SECRET, b"{}", options).expect("signs"));
        request.urls = vec![url.to_owned()];
        assert_eq!(request.verify(&recipe, SECRET), Ok(Some(1)), "{scheme}");
        if scheme.contains("{url}") {
            request.urls = vec![format!("{url}/")];
            assert_eq!(request.verify(&recipe, SECRET), Err(Reason::SignatureMismatch), "{scheme}");
            request.urls.clear();
            assert_eq!(request.verify(&recipe, SECRET), Err(Reason::PublicUrlUnknown), "{scheme}");
        }
        request.urls = vec![url.to_owned()];
        request.body.push(b' ');
        assert_eq!(request.verify(&recipe, SECRET), Err(Reason::SignatureMismatch), "{scheme}");
    }
}

#[test]
fn a_time_inside_the_signed_body_is_judged_and_a_header_beside_it_is_not() {
    let recipe = Recipe::from_json(
        r#"{"version":1,"schemes":[{"signature":{"header":"linear-signature"},"algorithm":"hmac-sha256","keys":["text"],"message":"{body}","time":{"source":"{json:webhookTimestamp}","unit":"ms","past_s":60}}]}"#,
    )
    .expect("valid");
    let verdict = |body: &str| {
        let mut request = super::signed(&recipe, body.as_bytes());
        request.headers.push(("linear-timestamp".to_owned(), b"1750000000000".to_vec()));
        request.verify_at(&recipe, &[secret(&recipe, SECRET)], NOW)
    };
    assert_eq!(verdict(r#"{"webhookTimestamp":1750000000000}"#), Ok(Some(1)));
    assert_eq!(verdict(r#"{"webhookTimestamp":1749999939999}"#), Err(Reason::TimestampTooOld));
    assert_eq!(
        verdict(r#"{"webhookTimestamp":1750000000}"#),
        Err(Reason::TimestampTooOld),
        "seconds are not milliseconds"
    );
    assert_eq!(
        verdict(r#"{"webhookTimestamp":1,"webhookTimestamp":1750000000000}"#),
        Err(Reason::TimestampMalformed)
    );
    assert_eq!(verdict("{}"), Err(Reason::TimestampMissing));
}

#[test]
fn a_signature_in_the_json_body_is_checked_over_the_fields_it_names() {
    let recipe = Recipe::from_json(
        r#"{"version":1,"weakest":"fields","schemes":[{"signature":{"json":"signature.signature"},"algorithm":"hmac-sha256","keys":["text"],"message":"{ts}{json:signature.token}","time":{"source":"{json:signature.timestamp}","unit":"s"},"id":["{json:event-data.id}"]}]}"#,
    )
    .expect("valid");
    let body = br#"{"signature":{"timestamp":"1750000000","token":"abc"},"event-data":{"id":"e1"}}"#;
    let mut request = super::signed(&recipe, body);
    assert_eq!(request.event(&recipe, SECRET).event_id, "e1");
    request.body = String::from_utf8(request.body).expect("text").replace("abc", "abd").into_bytes();
    assert_eq!(request.verify(&recipe, SECRET), Err(Reason::SignatureMismatch));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = Recipe::from_json(&text);
    }

    #[test]
    fn no_bent_recipe_makes_the_reader_panic(at in 0_usize..2_000, with in "[\"{}\\[\\],:a-z0-9]{0,6}", preset in 0_usize..70) {
        let json = Recipe::presets().nth(preset % Recipe::presets().count()).expect("presets").json;
        let at = json.floor_char_boundary(at % json.len());
        let end = json.floor_char_boundary((at + with.len()).min(json.len()));
        let _ = Recipe::from_json(&format!("{}{with}{}", &json[..at], &json[end..]));
    }
}

#[test]
fn a_signature_in_the_query_cannot_sign_the_url_that_holds_it() {
    let recipe =
        minimal().replace("\"header\": \"x-sig\"", "\"query\": \"sig\"").replace("{body}", "{url}{body}");
    assert_eq!(Recipe::from_json(&recipe).expect_err("refused").path, "schemes[0].message");
}

#[test]
fn presets_say_where_a_request_can_come_again_under_another_id() {
    for (name, replayable) in [
        ("stripe", false),
        ("standard-webhooks", false),
        ("github", true),
        ("shopify", true),
        ("slack", false),
        ("calendly", false),
        ("paystack", false),
    ] {
        assert_eq!(super::preset(name).is_replayable(), replayable, "{name}");
    }
}

#[test]
fn a_body_of_no_known_shape_is_refused_where_the_recipe_knows_all_shapes() {
    let recipe = super::preset("adyen");
    let key = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
    let sent = |body: &[u8]| {
        let options = SignOptions { scheme: Some(0), now: NOW, ..SignOptions::default() };
        let request = Owned::signed(sign(&recipe, key, body, options).expect("signs"));
        request.events(&recipe, key).map(|events| events.len()).map_err(|rejection| rejection.reason())
    };
    assert_eq!(sent(br#"{"type":"balancePlatform.transfer.created","data":{"id":"1"}}"#), Ok(1));
    // What one item of a standard notification signs is no platform event, though one key signs both.
    assert_eq!(
        sent(b"7914073381342284::TestMerchant:TestPayment:1130:EUR:AUTHORISATION:true"),
        Err(Reason::BodyMalformed)
    );
}

/// The small recipe with a setting `word` that is as `setting` says, and a field of its scheme.
fn with_setting(setting: &str, field: &str) -> String {
    let settings = format!(r#""version": 1, "settings": {{"word": {{"about": "A word.", {setting}}}}}"#);
    minimal().replace("\"version\": 1", &settings).replace("\"{body}\"", field)
}

#[test]
fn a_secret_setting_may_be_in_what_is_signed_and_in_nothing_that_is_read() {
    let secret = r#""secret": true"#;
    let recipe = Recipe::from_json(&with_setting(secret, r#""{setting:word}{body}""#)).expect("valid");
    assert!(recipe.is_secret_setting("word") && !recipe.is_secret_setting("other"));
    for field in ["id", "type", "entity", "account"] {
        for word in ["{setting:word}", "{setting:word|sha256}"] {
            let read = format!(r#""{{body}}", "{field}": ["{{json:id}}-{word}"]"#);
            let error = Recipe::from_json(&with_setting(secret, &read)).expect_err("refused");
            assert!(error.path == "schemes[0]" && error.reason.contains("'word' is a secret"), "{error}");
            assert!(Recipe::from_json(&with_setting(r#""secret": false"#, &read)).is_ok(), "{read}");
        }
    }
    let known = with_setting(r#""secret": true, "one_of": ["a", "b"]"#, "\"{body}\"");
    assert_eq!(Recipe::from_json(&known).expect_err("refused").path, "settings.word.one_of");
}

#[test]
fn a_secret_setting_has_eight_bytes_and_no_space_at_its_ends_and_is_never_repeated() {
    let recipe = Recipe::from_json(&with_setting(r#""secret": true"#, "\"{body}\"")).expect("valid");
    let check = |value: &str| recipe.check_settings(&[("word".to_owned(), value.to_owned())].into());
    assert_eq!(check("hunter12"), Ok(()));
    for (value, words) in [
        ("hunter1", "at least 8 bytes"),
        ("hunter12 ", "a space at its beginning or end"),
        (" hunter12", "a space at its beginning or end"),
        ("hunter12\n", "a character that it never has"),
        ("", "1 to 1024 bytes"),
    ] {
        let error = check(value).expect_err(value);
        assert!(error.reason.contains(words), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
    }
    let plain = Recipe::from_json(&with_setting(r#""secret": false"#, "\"{body}\"")).expect("valid");
    assert_eq!(plain.check_settings(&[("word".to_owned(), "a ".to_owned())].into()), Ok(()));
}
