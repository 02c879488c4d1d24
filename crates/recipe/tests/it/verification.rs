//! What receivers got wrong: bytes, characters, headers, secrets and time.

use std::time::Duration;

use portero_recipe::{Reason, Recipe, Secret, SignOptions, Strength, sign};
use portero_types::{SecretNo, Timestamp};

use super::{NOW, Owned, SECRET, numbered, preset, secret, signed};

const EVENT: &[u8] = br#"{"id":"evt_1","type":"a.b","data":{"object":{"id":"sub_1"}}}"#;

#[test]
fn the_bytes_as_received_count_and_no_other_spelling_of_the_same_json() {
    let recipe = preset("stripe");
    let spaced = b"{\n  \"id\": \"evt_1\",\n  \"n\": 1.0,\n  \"t\": \"a\\/b \\u00e9\"\n}";
    let request = signed(&recipe, spaced);
    assert_eq!(request.verify(&recipe, SECRET), Ok(Some(1)));
    for other in [
        &b"{\"id\":\"evt_1\",\"n\":1.0,\"t\":\"a\\/b \\u00e9\"}"[..],
        b"{\n  \"id\": \"evt_1\",\n  \"n\": 1,\n  \"t\": \"a\\/b \\u00e9\"\n}",
        "{\n  \"id\": \"evt_1\",\n  \"n\": 1.0,\n  \"t\": \"a/b é\"\n}".as_bytes(),
        b"{\r\n  \"id\": \"evt_1\",\r\n  \"n\": 1.0,\r\n  \"t\": \"a\\/b \\u00e9\"\r\n}",
    ] {
        let mut changed = request.clone();
        changed.body = other.to_vec();
        assert_eq!(changed.verify(&recipe, SECRET), Err(Reason::SignatureMismatch));
    }
}

#[test]
fn odd_bytes_verify_like_any_others() {
    for name in ["stripe", "github", "slack", "shopify", "custom"] {
        let recipe = preset(name);
        for body in [
            &b""[..],
            "😊 äöå".as_bytes(),
            b"\xFF\xFE\x00",
            b"\xEF\xBB\xBF{\"value\":[]}",
            b"{\"t\":\"caf\xE9\"}",
            b"{\"t\":\"\\u0000 \\ud800\"}",
            b"a=1&b=%FF",
        ] {
            assert_eq!(signed(&recipe, body).verify(&recipe, SECRET), Ok(Some(1)), "{name}");
        }
    }
}

#[test]
fn a_body_that_is_not_text_under_a_bad_signature_is_refused_not_an_error() {
    let recipe = preset("github");
    let header = format!("sha256={}", "00".repeat(32));
    let request = Owned::post(&[("x-hub-signature-256", &header)], b"\xFF\xFE");
    assert_eq!(request.verify(&recipe, SECRET), Err(Reason::SignatureMismatch));
}

#[test]
fn header_names_are_found_in_any_case() {
    let recipe = preset("github");
    let mut request = signed(&recipe, EVENT);
    for (name, _) in &mut request.headers {
        *name = name.to_ascii_uppercase();
    }
    assert_eq!(request.verify(&recipe, SECRET), Ok(Some(1)));
}

#[test]
fn each_fault_of_a_signature_header_has_its_own_reason() {
    let recipe = preset("github");
    let good = signed(&recipe, EVENT);
    let verdict = |value: &[u8]| {
        let mut request = good.clone();
        *request.header_mut("x-hub-signature-256") = value.to_vec();
        request.verify(&recipe, SECRET)
    };
    let text = good.clone().header_mut("x-hub-signature-256").clone();
    assert_eq!(verdict(&text), Ok(Some(1)));
    assert_eq!(
        verdict(text.to_ascii_uppercase().strip_prefix(b"SHA256=").expect("prefix")),
        Err(Reason::SignatureMissing)
    );
    let upper = [&b"sha256="[..], &text[7..].to_ascii_uppercase()].concat();
    assert_eq!(verdict(&upper), Ok(Some(1)), "hexadecimal has no case");
    assert_eq!(verdict(b""), Err(Reason::SignatureMissing));
    assert_eq!(
        verdict(b"sha1=00"),
        Err(Reason::SignatureMissing),
        "another algorithm is no choice of the sender"
    );
    assert_eq!(verdict(b"sha256="), Err(Reason::SignatureMalformed));
    assert_eq!(verdict(&[b"sha256= ", &text[7..]].concat()), Err(Reason::SignatureMalformed));
    assert_eq!(
        verdict(b"sha256=dXEH6gsrUJ/CESIRzOmEuKN1cLbXWGwixG9DeckYBD4="),
        Err(Reason::SignatureMalformed),
        "base64"
    );
    assert_eq!(verdict(&text[..text.len() - 2]), Err(Reason::SignatureMismatch), "cut");
    assert_eq!(verdict(b"sha256=\xFF\xFE"), Err(Reason::SignatureMalformed));
    assert_eq!(verdict(&[b'a'; 10_000]), Err(Reason::SignatureMalformed));
}

#[test]
fn a_missing_or_doubled_signature_header_is_refused_even_if_both_are_good() {
    let recipe = preset("github");
    let mut request = signed(&recipe, EVENT);
    let one = request.headers.iter().find(|(name, _)| name == "x-hub-signature-256").expect("there").clone();
    request.headers.push(one);
    assert_eq!(request.verify(&recipe, SECRET), Err(Reason::SignatureDuplicated));
    request.headers.retain(|(name, _)| name != "x-hub-signature-256");
    assert_eq!(request.verify(&recipe, SECRET), Err(Reason::SignatureMissing));
}

#[test]
fn a_doubled_time_or_id_header_is_refused_where_it_is_signed() {
    let recipe = preset("standard-webhooks");
    let key = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let options = SignOptions { id: Some("msg_1"), now: NOW, ..SignOptions::default() };
    let good = Owned::signed(sign(&recipe, key, EVENT, options).expect("signs"));
    assert_eq!(good.verify(&recipe, key), Ok(Some(1)));
    for name in ["webhook-id", "webhook-timestamp"] {
        let mut request = good.clone();
        request.headers.push((name.to_owned(), b"1750000000".to_vec()));
        assert_eq!(request.verify(&recipe, key), Err(Reason::SignatureDuplicated), "{name}");
        request.headers.retain(|(have, _)| have != name);
        let missing = if name == "webhook-id" { Reason::SignedPartMissing } else { Reason::TimestampMissing };
        assert_eq!(request.verify(&recipe, key), Err(missing), "{name}");
    }
}

#[test]
fn both_header_families_of_standard_webhooks_verify() {
    let recipe = preset("standard-webhooks");
    let key = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    for (scheme, header) in [(0, "webhook-signature"), (1, "svix-signature")] {
        let options =
            SignOptions { id: Some("msg_1"), now: NOW, scheme: Some(scheme), ..SignOptions::default() };
        let request = Owned::signed(sign(&recipe, key, EVENT, options).expect("signs"));
        assert!(request.headers.iter().any(|(name, _)| name == header));
        assert_eq!(request.verify(&recipe, key), Ok(Some(1)));
        assert_eq!(request.event(&recipe, key).event_id, "msg_1");
    }
}

#[test]
fn a_public_key_does_not_verify_what_was_made_with_it_as_a_shared_secret() {
    let recipe = preset("standard-webhooks");
    let public = "whpk_Fdzij8xNfMDNI0Z5BBs3rAAzqZc4xEkBd2ZPk3hYz/I=";
    let as_shared = public.replace("whpk_", "whsec_");
    let options = SignOptions { id: Some("msg_1"), now: NOW, ..SignOptions::default() };
    let request = Owned::signed(sign(&recipe, &as_shared, EVENT, options).expect("signs"));
    assert_eq!(request.verify(&recipe, public), Err(Reason::SignatureMismatch));
}

#[test]
fn any_listed_signature_counts_under_any_active_secret_and_the_one_that_matched_is_told() {
    let recipe = preset("stripe");
    let secrets = [numbered(&recipe, 1, "whsec_old"), numbered(&recipe, 2, "whsec_new")];
    let by = |text: &str| {
        Owned::signed(
            sign(&recipe, text, EVENT, SignOptions { now: NOW, ..SignOptions::default() }).expect("signs"),
        )
    };
    assert_eq!(by("whsec_old").verify_at(&recipe, &secrets, NOW), Ok(Some(1)));
    assert_eq!(by("whsec_new").verify_at(&recipe, &secrets, NOW), Ok(Some(2)));
    let mut both = by("whsec_new");
    let header = both.header_mut("stripe-signature");
    *header = [&b"t=1750000000,v1="[..], "ab".repeat(32).as_bytes(), b",", &header["t=1750000000,".len()..]]
        .concat();
    assert_eq!(both.verify_at(&recipe, &secrets, NOW), Ok(Some(2)));
    assert_eq!(both.verify_at(&recipe, &secrets[..1], NOW), Err(Reason::SignatureMismatch));
}

#[test]
fn seventeen_signatures_are_not_tried() {
    let recipe = preset("stripe");
    let mut request = signed(&recipe, EVENT);
    let one = format!(",v1={}", "ab".repeat(32));
    request.header_mut("stripe-signature").extend_from_slice(one.repeat(15).as_bytes());
    assert_eq!(request.verify(&recipe, SECRET), Ok(Some(1)), "sixteen are");
    request.header_mut("stripe-signature").extend_from_slice(one.as_bytes());
    assert_eq!(request.verify(&recipe, SECRET), Err(Reason::TooManySignatures));
}

#[test]
fn five_public_key_signatures_are_not_tried() {
    let recipe = preset("standard-webhooks");
    let one = format!("v1a,{} ", "A".repeat(86));
    let verdict = |count: usize| {
        let list = one.repeat(count);
        let headers =
            [("webhook-id", "m"), ("webhook-timestamp", "1750000000"), ("webhook-signature", list.as_str())];
        Owned::post(&headers, EVENT).verify(&recipe, "whpk_Fdzij8xNfMDNI0Z5BBs3rAAzqZc4xEkBd2ZPk3hYz/I=")
    };
    assert_eq!(verdict(4), Err(Reason::SignatureMismatch));
    assert_eq!(verdict(5), Err(Reason::TooManySignatures));
}

#[test]
fn no_secret_that_is_active_now_means_no_verification() {
    let recipe = preset("github");
    let request = signed(&recipe, EVENT);
    let at = |from: i64, to: Option<i64>| {
        let to = to.map(Timestamp::from_secs);
        Secret::new(&recipe, SecretNo(1), SECRET, Timestamp::from_secs(from), to).expect("valid")
    };
    assert_eq!(request.verify_at(&recipe, &[], NOW), Err(Reason::NoActiveSecret));
    for (secret, reason) in [
        (at(1_750_000_001, None), Reason::SecretPlanned),
        (at(0, Some(1_750_000_000)), Reason::SecretRetired),
        (at(0, None).revoked(Some(NOW)), Reason::SecretRevoked),
        (at(0, None).revoked(Some(Timestamp::from_secs(1_750_000_009))), Reason::SecretRevoked),
    ] {
        assert_eq!(request.verify_at(&recipe, std::slice::from_ref(&secret), NOW), Err(reason));
        let other = signed(&recipe, EVENT).verify_at(&recipe, &[secret, other_secret(&recipe)], NOW);
        assert_eq!(other, Err(reason), "beside an active one with which it was not signed");
    }
    let secrets = [at(0, Some(5)), at(1_750_000_000, None)];
    assert_eq!(request.verify_at(&recipe, &secrets, NOW), Ok(Some(1)));
}

/// Nobody can tell then whether it is genuine: its sender must come again.
#[test]
fn what_a_secret_that_cannot_be_read_may_have_signed_is_not_called_forged() {
    let recipe = preset("github");
    let request = signed(&recipe, EVENT);
    let lost = |from: i64, to: Option<i64>| {
        Secret::unreadable(SecretNo(3), Timestamp::from_secs(from), to.map(Timestamp::from_secs))
    };
    let good = secret(&recipe, SECRET);
    let judge = |secrets: &[Secret]| request.verify_at(&recipe, secrets, NOW);
    assert_eq!(judge(&[lost(0, None), good.clone()]), Ok(Some(1)), "the others go on");
    assert_eq!(judge(&[lost(0, None)]), Err(Reason::SecretUnreadable));
    assert_eq!(judge(&[lost(0, None), other_secret(&recipe)]), Err(Reason::SecretUnreadable));
    let revoked = good.clone().revoked(Some(NOW));
    assert_eq!(judge(&[lost(0, None), revoked]), Err(Reason::SecretRevoked), "it is known who signed it");
    for inactive in
        [lost(1_750_000_001, None), lost(0, Some(1_750_000_000)), lost(0, None).revoked(Some(NOW))]
    {
        assert_eq!(judge(&[inactive.clone(), other_secret(&recipe)]), Err(Reason::SignatureMismatch));
        assert_eq!(judge(&[inactive]), Err(Reason::NoActiveSecret));
    }
    let unsigned = Owned::post(&[("x-github-event", "push"), ("x-github-delivery", "d")], EVENT);
    let judged = unsigned.verify_at(&recipe, &[lost(0, None), good], NOW);
    assert_eq!(judged, Err(Reason::SignatureMissing), "no secret would help");
}

fn other_secret(recipe: &Recipe) -> Secret {
    Secret::new(recipe, SecretNo(9), "another secret, never used", Timestamp::EPOCH, None).expect("valid")
}

/// Else the old one looks used for ever while the provider signs with both, or where both are one text.
#[test]
fn the_newest_secret_that_verifies_is_the_one_that_is_named() {
    let recipe = preset("github");
    let request = signed(&recipe, EVENT);
    let of = |no, from| {
        Secret::new(&recipe, SecretNo(no), SECRET, Timestamp::from_secs(from), None).expect("valid")
    };
    for secrets in [[of(1, 5), of(2, 7)], [of(2, 7), of(1, 5)], [of(2, 5), of(1, 5)]] {
        assert_eq!(request.verify_at(&recipe, &secrets, NOW), Ok(Some(2)));
    }
    assert_eq!(request.verify_at(&recipe, &[of(1, 7), of(2, 5)], NOW), Ok(Some(1)));
}

#[test]
fn an_empty_secret_is_no_secret() {
    for preset in Recipe::presets() {
        for text in ["", " \n", "\t"] {
            assert!(Secret::new(&preset.recipe, SecretNo(1), text, Timestamp::EPOCH, None).is_err());
        }
    }
    for empty in ["whsec_", "v1,whsec_", "whpk_"] {
        assert!(Secret::new(&preset("standard-webhooks"), SecretNo(1), empty, NOW, None).is_err(), "{empty}");
    }
}

#[test]
fn a_time_too_far_in_the_past_or_future_is_refused_though_well_signed() {
    for (name, future) in [("stripe", 300), ("slack", 300), ("custom", 60)] {
        let recipe = preset(name);
        let secrets = [secret(&recipe, SECRET)];
        let request = signed(&recipe, EVENT);
        let at = |offset: i64| {
            let by = Duration::from_secs(offset.unsigned_abs());
            request.verify_at(&recipe, &secrets, if offset < 0 { NOW.minus(by) } else { NOW.plus(by) })
        };
        assert_eq!(at(300), Ok(Some(1)), "{name}");
        assert_eq!(at(301), Err(Reason::TimestampTooOld), "{name}");
        assert_eq!(at(-future), Ok(Some(1)), "{name}");
        assert_eq!(at(-future - 1), Err(Reason::TimestampInFuture), "{name}");
        let mut forged = request.clone();
        forged.body.push(b' ');
        assert_eq!(
            forged.verify_at(&recipe, &secrets, NOW.plus(Duration::from_secs(999))),
            Err(Reason::SignatureMismatch),
            "{name}"
        );
    }
}

#[test]
fn a_signed_time_cannot_be_left_out_or_renewed() {
    let recipe = preset("stripe");
    let verdict = |from: &str, to: &str| {
        let mut request = signed(&recipe, EVENT);
        let header = request.header_mut("stripe-signature");
        *header = String::from_utf8(header.clone()).expect("text").replace(from, to).into_bytes();
        request.verify(&recipe, SECRET)
    };
    assert_eq!(verdict("t=1750000000,", ""), Err(Reason::TimestampMissing));
    assert_eq!(verdict("t=1750000000", "t="), Err(Reason::TimestampMalformed));
    assert_eq!(verdict("t=1750000000", "t=soon"), Err(Reason::TimestampMalformed));
    assert_eq!(verdict("t=1750000000", "t=1750000001"), Err(Reason::SignatureMismatch));
    assert_eq!(verdict("t=1750000000", "t=1750000000,t=1750000001"), Err(Reason::SignatureDuplicated));
}

#[test]
fn rejections_hold_no_secret_signature_or_payload() {
    for preset in Recipe::presets() {
        let recipe = &preset.recipe;
        let Some((_, key)) = super::keys::pair(preset.json, recipe) else { continue };
        if !recipe.needs_secret() {
            continue;
        }
        for headers in [
            vec![],
            vec![("x-hub-signature-256", "sha256=deadbeef")],
            vec![("stripe-signature", "t=1,v1=deadbeef")],
        ] {
            let request = Owned::post(&headers, b"{\"payload-word\":1}");
            let secrets = [secret(recipe, &key)];
            let rejection =
                request.with(|r| portero_recipe::verify(recipe, r, &secrets, NOW)).expect_err("refused");
            let text = format!("{rejection} {rejection:?}");
            assert!(
                !text.contains(&key) && !text.contains("deadbeef") && !text.contains("payload-word"),
                "{text}"
            );
            assert!(text.contains(rejection.reason().code()));
        }
    }
}

#[test]
fn presets_say_how_much_they_prove() {
    for (name, want) in [
        ("stripe", Strength::Body),
        ("adyen", Strength::Fields),
        ("braintree", Strength::Body),
        ("twilio", Strength::Body),
        ("mailgun", Strength::Fields),
        ("mercadopago", Strength::Fields),
        ("paypal", Strength::Fields),
        ("telegram", Strength::Token),
        ("postmark", Strength::Token),
        ("microsoft-graph", Strength::Token),
        ("docker-hub", Strength::None),
    ] {
        assert_eq!(preset(name).strength(), want, "{name}");
    }
}
