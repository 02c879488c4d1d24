//! What somebody without the secret tries: bending what was signed once, answers of handshakes, and other people's words.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_recipe::{Reason, Recipe, clean_secret, fetch_needed, generate_secret, handshake};
use portero_types::limits::EVENTS_PER_REQUEST_MAX;

use super::{NOW, Owned, SECRET, preset, secret, signed};

const BRAINTREE: &str = "public-key-1|private-key-of-32-characters-000";

fn get(query: &str) -> Owned {
    Owned { method: "GET".to_owned(), query: query.to_owned(), ..Owned::post(&[], b"") }
}

/// What a handshake answers to anybody.
fn answer(recipe: &Recipe, request: &Owned, text: &str) -> String {
    let secrets = [secret(recipe, text)];
    let answer = request.with(|request| handshake(recipe, request, &secrets, NOW)).expect("harmless");
    String::from_utf8(answer.expect("a handshake").reply.body).expect("text")
}

fn refused(recipe: &str) -> String {
    Recipe::from_json(recipe).expect_err("a recipe that must not be").path
}

#[test]
fn what_a_handshake_computed_signs_no_event() {
    let recipe = preset("x-twitter");
    let reply = answer(&recipe, &get("crc_token=forged-event_1"), SECRET);
    let reply: serde_json::Value = serde_json::from_str(&reply).expect("JSON");
    let signature = reply["response_token"].as_str().expect("an answer");
    let event = Owned::post(&[("x-twitter-webhooks-signature", signature)], b"forged-event_1");
    assert_eq!(event.verify(&recipe, SECRET), Err(Reason::SignatureMismatch));

    let recipe = preset("braintree");
    let challenge = "20f38d0f4b9c1a6e7d52";
    let signature = answer(&recipe, &get(&format!("bt_challenge={challenge}")), BRAINTREE);
    let body = format!("bt_signature={signature}&bt_payload={challenge}");
    let event = Owned::post(&[], body.as_bytes());
    assert_eq!(event.verify(&recipe, BRAINTREE), Err(Reason::SignatureMismatch));
}

#[test]
fn a_form_of_which_one_field_is_signed_is_not_read_as_json() {
    let recipe = preset("braintree");
    let xml = b"<notification><kind>check</kind><subject><check>true</check></subject></notification>";
    let payload = format!("{}\n", STANDARD.encode(xml));
    let good = format!("bt_payload={}", payload.replace('+', "%2B").replace('=', "%3D").replace('\n', "%0A"));
    let options = portero_recipe::SignOptions { now: NOW, ..portero_recipe::SignOptions::default() };
    let good =
        Owned::signed(portero_recipe::sign(&recipe, BRAINTREE, good.as_bytes(), options).expect("signs"));
    let honest = good.event(&recipe, BRAINTREE);
    assert_eq!(honest.event_type, "check");
    let fields = String::from_utf8(good.body.clone()).expect("text");
    let bent = format!(
        r#"{{"kind":"subscription_canceled","subject":{{"subscription":{{"id":"s-1"}}}},"x":"&{fields}&"}}"#
    );
    let bent = Owned { body: bent.into_bytes(), ..good };
    let event = bent.event(&recipe, BRAINTREE);
    assert_eq!((event.event_type.as_str(), event.entity), ("check", honest.entity));
    assert_eq!(event.event_id, honest.event_id, "a repeat stays a repeat");
}

#[test]
fn a_charset_does_not_move_what_is_read_away_from_what_was_signed() {
    let recipe = preset("adyen");
    let key = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
    let body = br#"{"notificationItems":[{"NotificationRequestItem":{"pspReference":"genuine","merchantAccountCode":"M","eventCode":"AUTHORISATION","success":"true","additionalData":{}}}]}"#;
    let options = portero_recipe::SignOptions { now: NOW, ..portero_recipe::SignOptions::default() };
    let good = Owned::signed(portero_recipe::sign(&recipe, key, body, options).expect("signs"));
    let text = String::from_utf8(good.body.clone()).expect("text");
    // What stands in front of the signed item, as many bytes from it as there are characters of one byte before.
    let decoy = r#"{"pspReference":"forged","eventCode":"CAPTURE","merchantAccountCode":"M"}"#;
    let list = text.strip_prefix(r#"{"notificationItems":"#).expect("a list");
    let start =
        list.find(r#"{"additionalData"#).or_else(|| list.find(r#"{"pspReference"#)).expect("the item");
    let between = format!(r#","notificationItems":{}"#, &list[..start]);
    let shift = decoy.len() + between.len();
    let mut bent = b"{\"x\":\"".to_vec();
    bent.extend(std::iter::repeat_n(0xE9, shift));
    bent.extend_from_slice(b"\",\"decoy\":");
    bent.extend_from_slice(decoy.as_bytes());
    bent.extend_from_slice(between.as_bytes());
    bent.extend_from_slice(&list.as_bytes()[start..]);
    let mut request = Owned { body: bent, ..good };
    request.headers.retain(|(name, _)| name != "content-type");
    request.headers.push(("content-type".to_owned(), b"application/json; charset=iso-8859-1".to_vec()));
    let event = request.event(&recipe, key);
    assert!(event.event_id.starts_with("genuine:AUTHORISATION"), "{}", event.event_id);
}

fn sns(certificate: &str) -> Owned {
    let message = serde_json::json!({
        "Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:us-east-1:1:t", "Message": "x",
        "Timestamp": "2025-06-15T15:06:40Z", "SignatureVersion": "2", "Signature": STANDARD.encode([0; 256]),
        "SigningCertURL": certificate,
    });
    let mut request = Owned::post(&[], message.to_string().as_bytes());
    request.settings.insert("topic_arn".to_owned(), "arn:aws:sns:us-east-1:1:t".to_owned());
    request
}

#[test]
fn a_bucket_called_sns_is_not_sns() {
    let recipe = preset("aws-sns");
    let fetch = |host: &str| {
        let request = sns(&format!("https://{host}/SimpleNotificationService-0a.pem"));
        request.with(|request| fetch_needed(&recipe, request, &[], NOW)).map(|fetch| fetch.is_some())
    };
    for host in
        ["sns.us-east-1.amazonaws.com", "sns.us-gov-west-1.amazonaws.com", "sns.cn-north-1.amazonaws.com.cn"]
    {
        assert_eq!(fetch(host), Ok(true), "{host}");
    }
    for host in [
        "sns.s3-us-west-2.amazonaws.com",
        "sns.s3-website-us-east-1.amazonaws.com",
        "sns.s3-accelerate.amazonaws.com",
        "sns.cloudfront.amazonaws.com",
        "sns.us-east.amazonaws.com",
        "sns.us--1.amazonaws.com",
        "sns.us-east-1x.amazonaws.com",
    ] {
        let reason = fetch(host).map_err(|rejection| rejection.reason());
        assert_eq!(reason, Err(Reason::FetchedKeyInvalid), "{host}");
    }
}

#[test]
fn sns_without_a_topic_is_every_customer_of_amazon_and_is_refused() {
    let recipe = r#"{"version":1,"weakest":"fields","schemes":[{"verifier":{"kind":"aws-sns"}}]}"#;
    let recipe = Recipe::from_json(recipe).expect("valid");
    let request = sns("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem");
    let request = Owned { settings: BTreeMap::new(), ..request };
    let fetch = request.with(|request| fetch_needed(&recipe, request, &[], NOW));
    assert_eq!(fetch.expect_err("refused").reason(), Reason::SettingMissing);
}

#[test]
fn a_public_key_must_not_become_a_shared_secret() {
    let recipe = |keys: &str| {
        format!(
            r#"{{"version":1,"schemes":[{{"signature":{{"header":"S","list":"standard"}},
                "algorithms":{{"v1":"hmac-sha256","v1a":"ed25519"}},"keys":["{keys}"],"message":"{{body}}"}}]}}"#
        )
    };
    assert!(Recipe::from_json(&recipe("whsec")).is_ok(), "its prefix tells the two apart");
    for keys in ["hex", "base64"] {
        assert_eq!(refused(&recipe(keys)), "schemes[0].keys", "{keys}");
    }
}

#[test]
fn plaids_key_is_asked_for_anew_with_another_secret() {
    // Else a stranger with a wrong secret and a known client id makes the failure that others are answered from.
    let recipe = preset("plaid");
    let part = |json: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json);
    let iat = format!(r#"{{"iat":{}}}"#, NOW.as_secs());
    let token = format!("{}.{}.{}", part(r#"{"alg":"ES256","kid":"k"}"#), part(&iat), part("signature"));
    let mut request = Owned::post(&[("plaid-verification", &token)], b"{}");
    request.settings.insert("client_id".to_owned(), "client".to_owned());
    let key = |text: &str| {
        let secrets = [secret(&recipe, text)];
        request
            .with(|request| fetch_needed(&recipe, request, &secrets, NOW))
            .expect("harmless")
            .expect("a key")
            .cache_key
    };
    assert_eq!(key("the secret of the client"), key("the secret of the client"));
    assert_ne!(key("the secret of the client"), key("another secret, made up"));
    assert!(!key("the secret of the client").contains("the secret"));
}

#[test]
fn a_named_key_is_as_long_as_any_other() {
    let recipe = preset("braintree");
    assert!(clean_secret(&recipe, BRAINTREE).is_ok());
    for weak in ["public-key-1|a", "public-key-1|aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        assert!(clean_secret(&recipe, weak).is_err(), "{weak}");
    }
    assert_eq!(generate_secret(&recipe, [1; 32]), None);
}

#[test]
fn credentials_are_not_read_into_events() {
    let recipe = |place: &str, more: &str, id: &str| {
        format!(
            r#"{{"version":1,"weakest":"token","schemes":[{{"signature":{{{place}}},{more},"id":["{id}"]}}]}}"#
        )
    };
    let hmac = r#""algorithm":"hmac-sha256","keys":["text"],"message":"{body}""#;
    let equal = r#""algorithm":"equal""#;
    for (place, more, id) in [
        (r#""header":"X-Sig""#, hmac, "{header:x-sig}"),
        (r#""header":"X-Sig""#, hmac, "a[{header:authorization}]"),
        (r#""header":"X-Sig""#, hmac, "{header:cookie|lower}"),
        (r#""numbered":"X-Sig-""#, hmac, "{header:x-sig-1}"),
        (r#""query":"token""#, equal, "{query:token}"),
        (r#""form":"token""#, equal, "{form:token}"),
    ] {
        assert_eq!(refused(&recipe(place, more, id)), "schemes[0].id[0]", "{place} {id}");
    }
    for (place, more, id) in [
        (r#""header":"X-Sig""#, hmac, "{header:x-sig|sha256}"),
        (r#""header":"X-Sig""#, hmac, "{header:x-id}"),
        (r#""query":"token""#, equal, "{query:id}"),
    ] {
        let text = recipe(place, more, id);
        assert!(Recipe::from_json(&text).is_ok(), "{id}: {:?}", Recipe::from_json(&text).err());
    }
}

#[test]
fn a_body_of_which_only_the_letters_are_signed_is_not_covered() {
    let recipe = r#"{"version":1,"schemes":[{"signature":{"header":"S"},"algorithm":"hmac-sha256","keys":["text"],"message":"{body|lower}"}]}"#;
    assert_eq!(refused(recipe), "schemes[0]");
}

#[test]
fn an_authorisation_that_succeeds_after_it_failed_is_another_event() {
    let recipe = preset("adyen");
    let key = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
    let id = |success: &str| {
        let body = format!(
            r#"{{"notificationItems":[{{"NotificationRequestItem":{{"pspReference":"P","merchantAccountCode":"M","eventCode":"AUTHORISATION","success":"{success}","additionalData":{{}}}}}}]}}"#
        );
        let options = portero_recipe::SignOptions { now: NOW, ..portero_recipe::SignOptions::default() };
        let signed = portero_recipe::sign(&recipe, key, body.as_bytes(), options).expect("signs");
        Owned::signed(signed).event(&recipe, key).event_id
    };
    assert_eq!(id("true"), "P:AUTHORISATION");
    assert_eq!(id("false"), "P:AUTHORISATION:false");
}

#[test]
fn no_recipe_multiplies_the_work_of_one_request() {
    let scheme =
        |fields: &str| format!(r#"{{"version":1,"schemes":[{{"signature":{{"header":"S"}},{fields}}}]}}"#);
    let standard = |fields: &str| {
        format!(r#"{{"version":1,"schemes":[{{"signature":{{"header":"S","list":"standard"}},{fields}}}]}}"#)
    };
    let tags: Vec<String> = (0..9).map(|n| format!(r#""t{n}":"hmac-sha512""#)).collect();
    let tags = tags.join(",");
    for (text, at) in [
        (scheme(r#""algorithm":"hmac-sha256","keys":["text","text"],"message":"{body}""#), "schemes[0].keys"),
        (
            scheme(r#""algorithm":"hmac-sha256","keys":["text"],"message":"{body}{body}""#),
            "schemes[0].message",
        ),
        (
            scheme(
                r#""algorithm":"hmac-sha256","keys":["text","hex","base64","whsec"],"message":"{url}{body}","urls":["as_configured","with_port","hubspot"]"#,
            ),
            "schemes[0]",
        ),
        (
            standard(&format!(r#""algorithms":{{{tags}}},"keys":["text"],"message":"{{body}}""#)),
            "schemes[0].algorithms",
        ),
    ] {
        assert_eq!(refused(&text), at, "{text}");
    }
}

#[test]
fn public_key_signatures_are_counted_over_all_headers() {
    let recipe = r#"{"version":1,"schemes":[{"signature":{"header":["A","B","C","D"],"separator":","},"algorithm":"ed25519","keys":["hex"],"message":"{body}"}]}"#;
    let recipe = Recipe::from_json(recipe).expect("valid");
    let key = generate_secret(&recipe, [7; 32]).expect("a key");
    let forged = ["00".repeat(64), "11".repeat(64)].join(",");
    let headers = ["a", "b", "c", "d"].map(|name| (name, forged.as_str()));
    let request = Owned::post(&headers, b"{}");
    assert_eq!(request.verify(&recipe, &key), Err(Reason::TooManySignatures));
    let request = Owned::post(&headers[..2], b"{}");
    assert_eq!(request.verify(&recipe, &key), Err(Reason::SignatureMismatch));
}

#[test]
fn no_answer_is_much_longer_than_its_question() {
    let reply = |reply: &str| {
        format!(
            r#"{{"version":1,"schemes":[{{"signature":{{"header":"S"}},"algorithm":"hmac-sha256","keys":["text"],"message":"{{body}}"}}],
                "handshakes":[{{"when":{{"method":"GET","queries":["a"]}},"verify":false,"reply":{reply}}}]}}"#
        )
    };
    let members: Vec<String> = (0..65).map(|n| format!(r#""{n}":"{{query:a}}""#)).collect();
    assert_eq!(
        refused(&reply(&format!(r#"{{"json":{{{}}}}}"#, members.join(",")))),
        "handshakes[0].reply.json"
    );
    let recipe =
        Recipe::from_json(&reply(&format!(r#"{{"text":"{}"}}"#, "{query:a}".repeat(50)))).expect("valid");
    let secrets = [secret(&recipe, SECRET)];
    let ask = |length: usize| {
        let request = get(&format!("a={}", "x".repeat(length)));
        request.with(|request| handshake(&recipe, request, &secrets, NOW)).map(|answer| answer.is_some())
    };
    assert_eq!(ask(100), Ok(true));
    assert_eq!(ask(8_000).map_err(|rejection| rejection.reason()), Err(Reason::HandshakeRefused));
}

#[test]
fn the_place_of_a_long_answer_costs_one_look_however_many_items_ask() {
    // As many items as there may be, each of which asks for the same member behind very many others.
    let recipe = r#"{"version":1,"schemes":[{"signature":{"header":"S"},"algorithm":"hmac-sha256","keys":["text"],"message":"{body}",
        "items":["list.*"],"id":["{json:absent-1}","{json:absent-2}","{outer:absent-3}","{outer:last}:{item:n}"],"entity":["{json:last}"]}]}"#;
    let recipe = Recipe::from_json(recipe).expect("valid");
    let list: Vec<String> = (0..EVENTS_PER_REQUEST_MAX).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    let body = format!(r#"{{"list":[{}],{}"last":"l"}}"#, list.join(","), r#""a":1,"#.repeat(150_000));
    let request = signed(&recipe, body.as_bytes());
    let began = std::time::Instant::now();
    let events = request.events(&recipe, SECRET).expect("verified");
    assert_eq!((events.len(), events[999].event_id.as_str()), (EVENTS_PER_REQUEST_MAX, "l:999"));
    assert_eq!(events[0].entity.as_deref(), Some("l"));
    // Twenty thousand looks over a megabyte would take minutes.
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn no_id_grows_with_what_it_repeats() {
    let recipe = format!(
        r#"{{"version":1,"schemes":[{{"signature":{{"header":"S"}},"algorithm":"hmac-sha256","keys":["text"],"message":"{{body}}","id":["{}"]}}]}}"#,
        "{json:a}".repeat(60)
    );
    let recipe = Recipe::from_json(&recipe).expect("valid");
    let body = format!(r#"{{"a":"{}"}}"#, "x".repeat(500_000));
    let event = signed(&recipe, body.as_bytes()).event(&recipe, SECRET);
    assert!(event.id_derived && event.event_id.starts_with("sha256:"));
    assert_eq!(event.id_anomaly, Some(portero_recipe::Anomaly::TooLong));
}
