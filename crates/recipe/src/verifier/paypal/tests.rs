use std::time::Duration;

use super::super::tests::{NOW, Owned, recipe, sample};
use super::*;
use crate::Recipe;
use crate::certificate::{PrivateKey, fixtures};

fn paypal() -> Recipe {
    recipe(r#"{"kind":"paypal"}"#)
}

fn plain() -> Owned {
    let mut request = sample("paypal", "plain");
    request.setting("webhook_id", "1JE4291016473214C");
    request
}

/// Signs the request anew with our own key and certificate.
fn signed_by_us(mut request: Owned) -> Owned {
    let message =
        request.with(|request| Transmission::read(request).expect("a transmission").message(request.body));
    let key = PrivateKey::from_pem(fixtures::RSA_2048_PRIVATE).expect("a key");
    let signature = key.sign(KeyPairAlgorithm::RsaSha256, message.as_bytes()).expect("RSA");
    request.set("paypal-transmission-sig", &Encoding::Base64.encode(&signature));
    request.fetched = Some(fixtures::RSA_2048_CERTIFICATE.as_bytes().to_vec());
    request
}

#[test]
fn the_sample_asks_for_its_certificate_and_verifies_under_it() {
    let request = plain();
    let fetch = request.fetch(&paypal(), &[]).expect("harmless").expect("needed");
    assert_eq!(fetch.url, "https://api.paypal.com/v1/notifications/certs/CERT-offline");
    assert!(fetch.post_json.is_none() && fetch.cache_for > Duration::ZERO);
    assert_eq!(request.verify(&paypal(), &[], NOW), Ok(None));
}

#[test]
fn every_part_of_the_signed_text_counts() {
    for byte in 0..plain().body.len() {
        let mut request = plain();
        request.body[byte] ^= 1;
        assert_eq!(request.refused(&paypal(), &[], NOW), Some(Reason::SignatureMismatch), "byte {byte}");
    }
    for (name, value) in [
        ("paypal-transmission-id", "69cd13f0-d67a-11e5-baa3-778b53f4ae56"),
        ("paypal-transmission-time", "2025-06-15T15:06:41Z"),
    ] {
        let mut request = plain();
        request.set(name, value);
        assert_eq!(request.refused(&paypal(), &[], NOW), Some(Reason::SignatureMismatch), "{name}");
    }
    let mut request = plain();
    request.setting("webhook_id", "OTHER");
    assert_eq!(request.refused(&paypal(), &[], NOW), Some(Reason::SignatureMismatch));
}

#[test]
fn the_checksum_is_of_the_bytes_received_whatever_they_are() {
    for body in
        [&b""[..], "{\"item\":\"\u{41a}\u{43d}\u{438}\u{433}\u{430}\"}".as_bytes(), b"\xFF\xFE", b"{}\r\n"]
    {
        let mut request = plain();
        request.body = body.to_vec();
        assert_eq!(signed_by_us(request).verify(&paypal(), &[], NOW), Ok(None));
    }
    // The check value of CRC-32, in decimal and without a sign.
    let request = Owned { body: b"123456789".to_vec(), ..plain() };
    let message = request.with(|request| Transmission::read(request).expect("read").message(request.body));
    assert!(message.ends_with("|3421780262"), "{message}");
}

#[test]
fn an_incomplete_request_is_refused_before_anything_is_fetched() {
    for (name, reason) in [
        ("paypal-transmission-sig", Reason::SignatureMissing),
        ("paypal-transmission-id", Reason::SignedPartMissing),
        ("paypal-transmission-time", Reason::TimestampMissing),
        ("paypal-auth-algo", Reason::SignedPartMissing),
        ("paypal-cert-url", Reason::SignedPartMissing),
    ] {
        let mut request = plain();
        request.headers.retain(|(have, _)| have != name);
        assert_eq!(request.unfetched(&paypal(), &[]), Some(reason), "{name}");
        let mut request = plain();
        request.headers.push((name.to_owned(), request.header(name).to_owned()));
        assert_eq!(request.unfetched(&paypal(), &[]), Some(Reason::SignatureDuplicated), "{name}");
    }
    let mut request = plain();
    request.settings.clear();
    assert_eq!(request.unfetched(&paypal(), &[]), Some(Reason::SettingMissing));
    for (name, value) in [
        ("paypal-auth-algo", "SHA1withRSA"),
        ("paypal-auth-algo", "none"),
        ("paypal-transmission-sig", "AAAA"),
        ("paypal-transmission-sig", "not base64!"),
        ("paypal-transmission-id", "a|b"),
        ("paypal-transmission-time", "2025|06"),
    ] {
        let mut request = plain();
        request.set(name, value);
        assert_eq!(request.unfetched(&paypal(), &[]), Some(Reason::SignatureMalformed), "{name}: {value}");
    }
}

#[test]
fn certificates_come_from_paypal_alone() {
    for host in HOSTS {
        let mut request = plain();
        request.set("paypal-cert-url", &format!("https://{host}/v1/notifications/certs/CERT-1"));
        assert_eq!(request.unfetched(&paypal(), &[]), None, "{host}");
    }
    for url in [
        "http://api.paypal.com/v1/notifications/certs/CERT-1",
        "https://evil.example/v1/notifications/certs/CERT-1",
        "https://api.paypal.com.evil.example/v1/notifications/certs/CERT-1",
        "https://evil.example/https://api.paypal.com/v1/notifications/certs/CERT-1",
        "https://api.paypal.com@evil.example/v1/notifications/certs/CERT-1",
        "https://api.paypal.com:8443/v1/notifications/certs/CERT-1",
        "https://www.paypal.com/v1/notifications/certs/CERT-1",
        "https://api.paypal.com/v1/notifications/certs/",
        "https://api.paypal.com/v1/notifications/certs/../../oauth2/token",
        "https://api.paypal.com/v1/notifications/certs/a/b",
        "https://api.paypal.com/v1/notifications/certs/CERT-1?x=1",
        "https://api.paypal.com/v1/oauth2/token",
    ] {
        let mut request = plain();
        request.set("paypal-cert-url", url);
        assert_eq!(request.unfetched(&paypal(), &[]), Some(Reason::FetchedKeyInvalid), "{url}");
        assert_eq!(request.refused(&paypal(), &[], NOW), Some(Reason::FetchedKeyInvalid), "{url}");
    }
}

#[test]
fn a_certificate_counts_only_in_its_time_and_only_if_it_is_one() {
    let month = Duration::from_secs(60 * 24 * 3600);
    for now in [NOW.plus(month), NOW.minus(month)] {
        let rejection = plain().verify(&paypal(), &[], now).expect_err("out of time");
        assert_eq!(rejection.reason(), Reason::FetchedKeyInvalid);
        let says = if now > NOW { "expired" } else { "not yet valid" };
        assert!(rejection.detail().contains(says), "{rejection}");
    }
    let mut request = plain();
    for fetched in [
        None,
        Some(""),
        Some("<html>"),
        Some(fixtures::RSA_2048_PUBLIC),
        Some(fixtures::RSA_1024_CERTIFICATE),
    ] {
        request.fetched = fetched.map(|text| text.as_bytes().to_vec());
        assert_eq!(request.refused(&paypal(), &[], NOW), Some(Reason::FetchedKeyInvalid), "{fetched:?}");
    }
    request.fetched = Some(fixtures::P256_CERTIFICATE.as_bytes().to_vec());
    assert_eq!(request.refused(&paypal(), &[], NOW), Some(Reason::SignatureMismatch), "another kind of key");
}

#[test]
fn the_leaf_of_a_chain_is_the_one_that_counts() {
    let mut request = signed_by_us(plain());
    let other = String::from_utf8(plain().fetched.expect("a certificate")).expect("text");
    request.fetched = Some(format!("{}{other}", fixtures::RSA_2048_CERTIFICATE).into_bytes());
    assert_eq!(request.verify(&paypal(), &[], NOW), Ok(None));
    request.fetched = Some(format!("{other}{}", fixtures::RSA_2048_CERTIFICATE).into_bytes());
    assert_eq!(request.refused(&paypal(), &[], NOW), Some(Reason::SignatureMismatch));
}

#[test]
fn a_retry_of_days_ago_still_verifies() {
    let mut request = plain();
    request.set("paypal-transmission-time", "2025-06-12T15:06:40Z");
    assert_eq!(signed_by_us(request).verify(&paypal(), &[], NOW), Ok(None));
}
