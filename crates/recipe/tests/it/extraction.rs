//! Ids, types, entities and accounts out of odd bodies: never wrong, never lost.

use portero_recipe::{Anomaly, IdScope, Recipe};
use portero_types::limits::{EVENT_ID_BYTES_MAX, EVENT_TYPE_BYTES_MAX, ORDERING_KEY_BYTES_MAX};
use sha2::{Digest as _, Sha256};

use super::{Owned, SECRET, preset, signed};

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn stripe(body: &[u8]) -> portero_recipe::Extracted {
    let recipe = preset("stripe");
    signed(&recipe, body).event(&recipe, SECRET)
}

#[test]
fn long_numbers_keep_every_digit() {
    let recipe = preset("shopify");
    let event = signed(&recipe, br#"{"id":9007199254740993001}"#).event(&recipe, SECRET);
    assert_eq!(event.entity.as_deref(), Some("9007199254740993001"));
}

#[test]
fn a_repeated_id_is_trusted_in_neither_place() {
    let body = br#"{"id":"a","type":"t","id":"b","data":{"object":{"id":"sub_1"}}}"#;
    let event = stripe(body);
    assert_eq!(event.event_id, sha256(body));
    assert!(event.id_derived);
    assert_eq!(event.id_anomaly, Some(Anomaly::DuplicateKey));
    assert_eq!(event.entity.as_deref(), Some("sub_1"), "the rest is not in doubt");
    assert_eq!(event.event_type, "t");
    let escaped = br#"{"id":"a","\u0069d":"b"}"#;
    assert_eq!(stripe(escaped).id_anomaly, Some(Anomaly::DuplicateKey), "however it is spelled");
}

#[test]
fn a_repeated_entity_is_none_and_a_repeated_account_takes_the_id_with_it() {
    let event = stripe(br#"{"id":"evt_1","data":{"object":{"id":"x"},"object":{"id":"y"}}}"#);
    assert_eq!((event.event_id.as_str(), event.entity), ("evt_1", None));
    let body = br#"{"id":"evt_1","account":"acct_1","account":"acct_2"}"#;
    let event = stripe(body);
    assert_eq!((event.event_id, event.account), (sha256(body), None));
    assert_eq!(event.id_anomaly, Some(Anomaly::DuplicateKey));
}

#[test]
fn names_repeated_elsewhere_do_not_matter() {
    let event = stripe(br#"{"id":"evt_1","meta":{"id":1,"id":2},"n":1,"n":2}"#);
    assert_eq!((event.event_id.as_str(), event.id_derived, event.id_anomaly), ("evt_1", false, None));
}

#[test]
fn nul_and_broken_unicode_never_become_an_id() {
    for (body, anomaly) in [
        (&br#"{"id":"a\u0000b"}"#[..], Anomaly::Nul),
        (b"{\"id\":\"a\0b\"}", Anomaly::Nul),
        (br#"{"id":"\ud800"}"#, Anomaly::NotUnicode),
        (b"{\"id\":\"caf\xE9\"}", Anomaly::NotUnicode),
    ] {
        let event = stripe(body);
        assert_eq!((event.event_id, event.id_anomaly), (sha256(body), Some(anomaly)));
    }
    let event = stripe(br#"{"id":"evt_1","data":{"object":{"id":"\u0000"}},"type":"a\u0000"}"#);
    assert_eq!((event.event_id.as_str(), event.entity, event.event_type.as_str()), ("evt_1", None, ""));
}

#[test]
fn a_backslash_before_u0000_is_just_text() {
    assert_eq!(stripe(br#"{"id":"a\\u0000"}"#).event_id, "a\\u0000");
}

#[test]
fn byte_order_marks_are_kept_in_the_body_and_skipped_in_reading() {
    let body = b"\xEF\xBB\xBF\xEF\xBB\xBF{\"id\":\"evt_1\"}";
    let event = stripe(body);
    assert_eq!((event.event_id.as_str(), event.body), ("evt_1", 0..body.len()));
}

#[test]
fn what_cannot_be_read_is_still_an_event() {
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    for body in [&b""[..], b"Hello, World!", b"\xFF\xFE", b"{\"id\":\"evt_1\"", b"[]", b"null", b"{}", &deep]
    {
        let event = stripe(body);
        assert_eq!((event.event_id, event.id_derived, event.id_anomaly), (sha256(body), true, None));
        assert_eq!((event.entity, event.account, event.body), (None, None, 0..body.len()));
        let recipe = preset("github");
        let event = signed(&recipe, body).event(&recipe, SECRET);
        assert_eq!((event.event_id.as_str(), event.id_derived), ("id-1", false), "its id is in a header");
    }
}

#[test]
fn deep_nesting_elsewhere_does_not_hide_the_id() {
    let body = format!(r#"{{"deep":{}{},"id":"evt_1"}}"#, "[".repeat(5_000), "]".repeat(5_000));
    assert_eq!(stripe(body.as_bytes()).event_id, "evt_1");
}

#[test]
fn an_id_that_is_no_text_or_number_is_none() {
    for body in [&br#"{"id":null}"#[..], br#"{"id":{}}"#, br#"{"id":[]}"#, br#"{"id":""}"#] {
        assert!(stripe(body).id_derived);
    }
    assert_eq!(stripe(br#"{"id":17}"#).event_id, "17");
}

#[test]
fn long_texts_are_bounded_without_being_confused() {
    let long = |n: usize, mark: char| format!("{}{mark}", "x".repeat(n));
    let body = |id: &str, entity: &str, event_type: &str| {
        serde_json::json!({"id": id, "type": event_type, "data": {"object": {"id": entity}}}).to_string()
    };
    let first = stripe(body(&long(EVENT_ID_BYTES_MAX, 'a'), &long(600, 'a'), &long(600, 'é')).as_bytes());
    let other = stripe(body(&long(EVENT_ID_BYTES_MAX, 'b'), &long(600, 'b'), "t").as_bytes());
    assert_eq!(first.event_id, sha256(long(EVENT_ID_BYTES_MAX, 'a').as_bytes()));
    assert_eq!((first.id_derived, first.id_anomaly), (true, Some(Anomaly::TooLong)));
    assert_ne!(first.event_id, other.event_id);
    assert_ne!(first.entity, other.entity);
    assert!(first.entity.expect("one").len() <= ORDERING_KEY_BYTES_MAX);
    assert!(first.event_type.len() <= EVENT_TYPE_BYTES_MAX);
    let exact = stripe(body(&long(EVENT_ID_BYTES_MAX - 1, 'a'), "e", "t").as_bytes());
    assert!(!exact.id_derived);
}

#[test]
fn a_doubled_id_header_is_not_chosen_from() {
    let recipe = preset("github");
    let mut request = signed(&recipe, b"{}");
    request.headers.push(("x-github-delivery".to_owned(), b"other".to_vec()));
    let event = request.event(&recipe, SECRET);
    assert_eq!((event.event_id, event.id_anomaly), (sha256(b"{}"), Some(Anomaly::DuplicateKey)));
    *request.header_mut("x-github-delivery") = b"caf\xE9".to_vec();
    request.headers.pop();
    assert_eq!(request.event(&recipe, SECRET).id_anomaly, Some(Anomaly::NotUnicode));
}

#[test]
fn githubs_form_encoding_is_read_like_its_json_whatever_the_content_type() {
    let recipe = preset("github");
    let body = b"payload=%7B%22action%22%3A%22opened%22%2C%22repository%22%3A%7B%22id%22%3A5%7D%7D";
    let event = signed(&recipe, body).event(&recipe, SECRET);
    assert_eq!((event.event_type.as_str(), event.entity.as_deref()), ("thing.opened", Some("5")));
    assert_eq!(event.body, 0..body.len(), "stored as it came");
    let with_mark = [b"\xEF\xBB\xBF", &body[..]].concat();
    assert_eq!(signed(&recipe, &with_mark).event(&recipe, SECRET).entity.as_deref(), Some("5"));
    let twice = [&body[..], b"&payload=%7B%7D"].concat();
    assert_eq!(signed(&recipe, &twice).event(&recipe, SECRET).entity, None);
}

#[test]
fn slacks_commands_and_interactions_are_read_from_their_forms() {
    let recipe = preset("slack");
    let read = |body: &[u8]| signed(&recipe, body).event(&recipe, SECRET);
    let command = read(b"team_id=T1&channel_id=C1&command=%2Fweather&trigger_id=1.2");
    assert_eq!(
        (
            command.event_id.as_str(),
            command.event_type.as_str(),
            command.entity.as_deref(),
            command.account.as_deref()
        ),
        ("1.2", "/weather", Some("T1:C1"), Some("T1"))
    );
    let interaction = read(
        b"payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%223.4%22%2C%22team%22%3A%7B%22id%22%3A%22T1%22%7D%2C%22channel%22%3A%7B%22id%22%3A%22C2%22%7D%7D",
    );
    assert_eq!(
        (interaction.event_id.as_str(), interaction.event_type.as_str(), interaction.entity.as_deref()),
        ("3.4", "block_actions", Some("T1:C2"))
    );
}

#[test]
fn a_field_written_into_a_json_text_does_not_pass_for_a_form_field() {
    let recipe = preset("slack");
    let body = br#"{"event":{"type":"message","text":"&trigger_id=stolen&team_id=T9&"}}"#;
    let event = signed(&recipe, body).event(&recipe, SECRET);
    assert_eq!((event.event_id, event.account), (sha256(body), None));
}

#[test]
fn presets_scope_ids_so_that_two_endpoints_or_accounts_never_collide() {
    for (name, scope) in [
        ("stripe", IdScope::Account),
        ("shopify", IdScope::Account),
        ("adyen", IdScope::Account),
        ("github", IdScope::Source),
        ("slack", IdScope::Source),
        ("standard-webhooks", IdScope::Source),
        ("custom", IdScope::Source),
    ] {
        assert_eq!(preset(name).id_scope(), scope, "{name}");
    }
}

#[test]
fn kept_headers_are_lower_case_and_hold_no_credential() {
    for preset in Recipe::presets() {
        for name in preset.recipe.kept_headers() {
            assert_eq!(*name, name.to_ascii_lowercase());
            assert!(
                !name.contains("signature") && !name.contains("hmac") && name != "authorization",
                "{name}"
            );
        }
    }
    let bad =
        super::language::minimal().replace("\"version\": 1", "\"version\": 1, \"keep_headers\": [\"X-Sig\"]");
    assert_eq!(Recipe::from_json(&bad).expect_err("refused").path, "keep_headers[0]");
    let request = Owned::post(&[("x-sig", "0badc0de")], b"word");
    assert!(!request.with(|request| format!("{request:?}")).contains("0badc0de"));
}

#[test]
fn a_latin_1_body_is_verified_as_sent_and_decoded_only_to_be_read() {
    let recipe = Recipe::from_json(
        r#"{"version":1,"schemes":[{"signature":{"header":"x-sig"},"algorithm":"hmac-sha256","keys":["text"],"message":"{body}","items":["list.*"],"entity":["{item:name}"]}]}"#,
    )
    .expect("valid");
    let body = b"{\"list\":[{\"name\":\"caf\xE9\"},{\"name\":\"\xFC\xE4\"}]}";
    let mut request = signed(&recipe, body);
    request.headers.push(("content-type".to_owned(), b"application/json; charset=ISO-8859-1".to_vec()));
    let events = request.events(&recipe, SECRET).expect("verified");
    let entities: Vec<_> = events.iter().map(|event| event.entity.as_deref()).collect();
    assert_eq!(entities, [Some("café"), Some("üä")]);
    let bytes: Vec<_> = events.iter().map(|event| &request.body[event.body.clone()]).collect();
    assert_eq!(bytes, [&b"{\"name\":\"caf\xE9\"}"[..], b"{\"name\":\"\xFC\xE4\"}"]);
}
