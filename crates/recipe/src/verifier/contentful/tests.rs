use std::time::Duration;

use proptest::prelude::*;

use super::super::tests::{NOW, Owned, recipe, try_recipe};
use super::*;
use crate::Recipe;

const SECRET: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01";
const BODY: &str = r#"{"sys":{"id":"e1","type":"Entry"},"fields":{"title":{"en":"Käse"}}}"#;
const URL: &str = "https://hooks.example.test/v1/t/acme/contentful";

fn contentful() -> Recipe {
    recipe(r#"{"kind":"contentful"}"#)
}

fn request(query: &str, headers: &[(&str, &str)]) -> Owned {
    let mut request = Owned {
        query: query.to_owned(),
        body: BODY.as_bytes().to_vec(),
        urls: vec![URL.to_owned()],
        ..Owned::default()
    };
    for (name, value) in headers {
        request.set(name, value);
    }
    request
}

/// Signed by Contentful's own package for Node.js, version 4.
fn by_contentful() -> [Owned; 2] {
    [
        request(
            "",
            &[
                (SIGNATURE, "31ed04f744eae98bd72dbf9698db9cb732ab78f037c3d6f144ecf7fb6dc8bb21"),
                (SIGNED_HEADERS, "x-contentful-signed-headers,x-contentful-timestamp"),
                (TIMESTAMP, "1750000000000"),
            ],
        ),
        request(
            "a=1&b=x%20y",
            &[
                ("x-contentful-topic", " ContentManagement.Entry.publish "),
                ("content-type", "application/vnd.contentful.management.v1+json"),
                (SIGNATURE, "43247d795c8384614e80547bed52f081f66cf018d6bf1084426c67e534cf3efc"),
                (
                    SIGNED_HEADERS,
                    "content-type,x-contentful-signed-headers,x-contentful-timestamp,x-contentful-topic",
                ),
                (TIMESTAMP, "1750000000000"),
            ],
        ),
    ]
}

/// The same with a header signed by us.
fn by_us(request: &Owned) -> Owned {
    let signing =
        |request: &Request<'_>| sign(&Signing { request, secret: SECRET, now: NOW }).expect("signed");
    let mut signed = request.clone();
    for (name, value) in request.with(signing) {
        signed.set(&name, &value);
    }
    signed
}

#[test]
fn what_contentfuls_own_package_signs_verifies() {
    for request in by_contentful() {
        assert_eq!(request.verify(&contentful(), &[SECRET], NOW), Ok(Some(1)));
        assert_eq!(request.verify(&contentful(), &["another-secret-0123", SECRET], NOW), Ok(Some(2)));
        assert_eq!(
            request.refused(&contentful(), &["another-secret-0123"], NOW),
            Some(Reason::SignatureMismatch)
        );
    }
}

#[test]
fn our_own_signature_is_the_same() {
    let [plain, _] = by_contentful();
    assert_eq!(by_us(&request("", &[])).header(SIGNATURE), plain.header(SIGNATURE));
    assert!(by_us(&request("x=1&y=%2F", &[])).verify(&contentful(), &[SECRET], NOW).is_ok());
    let missing = request("", &[]).with(|request| {
        sign(&Signing { request: &Request { public_urls: &[], ..*request }, secret: SECRET, now: NOW })
    });
    assert!(matches!(missing, Err(SignError::Missing(_))));
}

#[test]
fn everything_that_is_signed_counts() {
    for good in by_contentful() {
        for byte in 0..good.body.len() {
            let mut changed = good.clone();
            changed.body[byte] ^= 1;
            assert_eq!(changed.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignatureMismatch));
        }
        for name in good.header(SIGNED_HEADERS).split(',').filter(|name| *name != SIGNED_HEADERS) {
            let mut changed = good.clone();
            let value = good.header(name).trim();
            changed.set(name, &format!("{}{}", &value[..value.len() - 1], '9'));
            assert_eq!(
                changed.refused(&contentful(), &[SECRET], NOW),
                Some(Reason::SignatureMismatch),
                "{name}"
            );
        }
        let mut changed = good.clone();
        changed.query.push_str("&c=3");
        assert_eq!(changed.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignatureMismatch));
        changed = good.clone();
        changed.urls = vec!["https://hooks.example.test/v1/t/acme/other".to_owned()];
        assert_eq!(changed.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignatureMismatch));
    }
}

#[test]
fn the_path_is_the_configured_one_and_several_may_be() {
    let [mut request, _] = by_contentful();
    request.headers.push(("host".to_owned(), "evil.example".to_owned()));
    request.urls.insert(0, "https://old.example.test/in".to_owned());
    assert_eq!(request.verify(&contentful(), &[SECRET], NOW), Ok(Some(1)));
    request.urls.clear();
    assert_eq!(request.refused(&contentful(), &[SECRET], NOW), Some(Reason::PublicUrlUnknown));
}

#[test]
fn the_time_must_be_signed_and_near() {
    let [request, _] = by_contentful();
    let second = Duration::from_secs(1);
    for (now, reason) in [
        (NOW.plus(second * 300), None),
        (NOW.plus(second * 301), Some(Reason::TimestampTooOld)),
        (NOW.minus(second * 300), None),
        (NOW.minus(second * 301), Some(Reason::TimestampInFuture)),
    ] {
        assert_eq!(request.refused(&contentful(), &[SECRET], now), reason);
    }
    let strict = recipe(r#"{"kind":"contentful","past_s":30,"future_s":5}"#);
    assert_eq!(request.refused(&strict, &[SECRET], NOW.plus(second * 31)), Some(Reason::TimestampTooOld));
    let bad = try_recipe(r#"{"kind":"contentful","past_s":604801}"#);
    assert_eq!(bad.err().as_deref(), Some("schemes[0].verifier.past_s"));
}

#[test]
fn a_list_without_itself_or_the_time_signs_too_little() {
    for list in ["x-contentful-timestamp", "x-contentful-signed-headers", "content-type", ","] {
        let [mut request, _] = by_contentful();
        request.set(SIGNED_HEADERS, list);
        assert_eq!(request.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignedPartMissing), "{list}");
    }
    let [mut request, _] = by_contentful();
    request.set(SIGNED_HEADERS, &format!("{SIGNED_HEADERS},{TIMESTAMP},x-absent"));
    assert_eq!(request.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignedPartMissing));
    request.set(SIGNED_HEADERS, &"a,".repeat(100));
    assert_eq!(request.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignatureMalformed));
}

#[test]
fn headers_that_are_missing_repeated_or_unreadable_are_told_apart() {
    for (name, reason) in [
        (SIGNATURE, Reason::SignatureMissing),
        (SIGNED_HEADERS, Reason::SignedPartMissing),
        (TIMESTAMP, Reason::SignedPartMissing),
    ] {
        let [mut request, _] = by_contentful();
        let value = request.header(name).to_owned();
        request.headers.push((name.to_owned(), value));
        assert_eq!(
            request.refused(&contentful(), &[SECRET], NOW),
            Some(Reason::SignatureDuplicated),
            "{name}"
        );
        request.headers.retain(|(have, _)| have != name);
        assert_eq!(request.refused(&contentful(), &[SECRET], NOW), Some(reason), "{name}");
    }
    let [mut request, _] = by_contentful();
    request.set(SIGNATURE, "not hexadecimal");
    assert_eq!(request.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignatureMalformed));
    request.set(SIGNATURE, "31ed");
    assert_eq!(request.refused(&contentful(), &[SECRET], NOW), Some(Reason::SignatureMismatch));
}

proptest! {
    #[test]
    fn what_is_signed_verifies_whatever_it_is(body in proptest::collection::vec(any::<u8>(), 0..200), query in "[a-z0-9=&%+/]{0,20}") {
        let signed = by_us(&Owned { body, ..request(&query, &[]) });
        prop_assert_eq!(signed.verify(&contentful(), &[SECRET], NOW), Ok(Some(1)));
    }

    #[test]
    fn no_headers_make_it_panic(signature in "[0-9a-f]{0,70}", list in "[a-z,:; -]{0,40}", time in "[0-9-]{0,15}") {
        let request = request("", &[(SIGNATURE, &signature), (SIGNED_HEADERS, &list), (TIMESTAMP, &time)]);
        prop_assert!(request.refused(&contentful(), &[SECRET], NOW).is_some());
    }
}
