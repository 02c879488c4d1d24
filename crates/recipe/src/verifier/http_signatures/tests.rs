use std::time::Duration;

use proptest::prelude::*;

use super::super::tests::{NOW, Owned, recipe, try_recipe};
use super::*;
use crate::Recipe;
use crate::algorithm::{Algorithm as Mac, mac};
use crate::certificate::{KeyPairAlgorithm, PrivateKey, PublicKey, fixtures};
use crate::encoding::Encoding;
use crate::verifier::Signing;

const URL: &str = "https://Hooks.example.test:443/v1/t/acme/signed";
const SHARED: &str = "a-shared-secret-of-many-characters";
const BODY: &[u8] = br#"{"id":"e1"}"#;

/// Each algorithm that we sign with: its recipe, the sender's secret and the receiver's.
fn kinds() -> [(Recipe, &'static str, &'static str); 4] {
    let kind = |algorithm: &str, key: &str| {
        recipe(&format!(
            r#"{{"kind":"http-signatures","algorithm":"{algorithm}","key":"{key}","components":["@method","@target-uri","content-type"]}}"#
        ))
    };
    [
        (kind("hmac-sha256", "text"), SHARED, SHARED),
        (kind("ed25519", "pem"), fixtures::ED25519_PRIVATE, fixtures::ED25519_PUBLIC),
        (kind("ecdsa-p256-sha256", "pem"), fixtures::P256_PRIVATE, fixtures::P256_PUBLIC),
        (kind("rsa-v1_5-sha256", "pem"), fixtures::RSA_2048_PRIVATE, fixtures::RSA_2048_CERTIFICATE),
    ]
}

fn hmac(options: &str) -> Recipe {
    recipe(&format!(r#"{{"kind":"http-signatures","algorithm":"hmac-sha256","key":"text"{options}}}"#))
}

fn unsigned() -> Owned {
    let mut request = Owned {
        query: "a=1&b=x%20y".to_owned(),
        body: BODY.to_vec(),
        urls: vec![URL.to_owned()],
        ..Owned::default()
    };
    request.set("content-type", "application/json");
    request
}

fn options(recipe: &Recipe) -> Options {
    let crate::scheme::Check::Code(verifier, _) = &recipe.schemes[0].check else { panic!("no verifier") };
    let crate::verifier::Verifier::HttpSignatures(options) = verifier.as_ref() else { panic!("another") };
    options.clone()
}

fn signed(recipe: &Recipe, request: &Owned, secret: &str) -> Owned {
    let sign = |request: &Request<'_>| options(recipe).sign(&Signing { request, secret, now: NOW });
    let mut signed = request.clone();
    for (name, value) in request.with(sign).expect("signed") {
        signed.set(&name, &value);
    }
    signed
}

/// Signs what the given input covers, whatever we would cover.
fn covering(request: &Owned, input: &str) -> Owned {
    let mut request = request.clone();
    request.set(CONTENT_DIGEST, &digest::write(&request.body));
    let inputs: Dictionary = Parser::new(&format!("s={input}")).parse().expect("a dictionary");
    let Some(ListEntry::InnerList(covered)) = inputs.get("s") else { panic!("no list") };
    let text = request.with(|request| messages(request, covered)).map(|texts| texts[0].clone());
    let mac = mac(Mac::HmacSha256, SHARED.as_bytes(), text.unwrap_or_default().as_bytes());
    request.set(SIGNATURE_INPUT, &format!("s={input}"));
    request.set(SIGNATURE, &format!("s=:{}:", Encoding::Base64.encode(&mac)));
    request
}

#[test]
fn what_is_signed_verifies_with_each_algorithm() {
    for (recipe, sender, receiver) in kinds() {
        let request = signed(&recipe, &unsigned(), sender);
        assert_eq!(request.verify(&recipe, &[receiver], NOW), Ok(Some(1)));
        assert!(recipe.signs_url());
        for (other, _, receiver) in
            kinds().iter().filter(|(other, ..)| options(other).algorithm != options(&recipe).algorithm)
        {
            assert!(request.refused(other, &[receiver], NOW).is_some(), "another algorithm");
        }
    }
}

#[test]
fn everything_that_is_covered_counts() {
    let (recipe, secret) = (&kinds()[0].0, SHARED);
    let good = signed(recipe, &unsigned(), secret);
    for byte in 0..BODY.len() {
        let mut changed = good.clone();
        changed.body[byte] ^= 1;
        assert_eq!(changed.refused(recipe, &[secret], NOW), Some(Reason::BodyDigestMismatch));
    }
    let mut changed = good.clone();
    changed.body = b"other".to_vec();
    changed.set(CONTENT_DIGEST, &digest::write(b"other"));
    assert_eq!(changed.refused(recipe, &[secret], NOW), Some(Reason::SignatureMismatch));
    for (name, value) in [("content-type", "text/plain"), ("content-type", "application/jsom")] {
        let mut changed = good.clone();
        changed.set(name, value);
        assert_eq!(changed.refused(recipe, &[secret], NOW), Some(Reason::SignatureMismatch));
    }
    let mut changed = good.clone();
    changed.query = "a=2&b=x%20y".to_owned();
    assert_eq!(changed.refused(recipe, &[secret], NOW), Some(Reason::SignatureMismatch));
    let mut changed = good.clone();
    changed.urls = vec!["https://hooks.example.test/elsewhere".to_owned()];
    assert_eq!(changed.refused(recipe, &[secret], NOW), Some(Reason::SignatureMismatch));
    for name in [SIGNATURE, SIGNATURE_INPUT] {
        let text = good.header(name).to_owned();
        // Bits that base64 does not use may have any value (RFC 9651, 4.2.7).
        let unused = text.len() - "X=:".len();
        for byte in (0..text.len()).filter(|byte| name != SIGNATURE || *byte != unused) {
            let mut bytes = text.clone().into_bytes();
            bytes[byte] ^= 1;
            let mut changed = good.clone();
            changed.set(name, &String::from_utf8_lossy(&bytes));
            assert!(changed.refused(recipe, &[secret], NOW).is_some(), "{name}: byte {byte}");
        }
    }
}

#[test]
fn the_url_is_a_configured_one_and_never_the_host_header() {
    let (recipe, ..) = &kinds()[0];
    let mut request = signed(recipe, &unsigned(), SHARED);
    request.headers.push(("host".to_owned(), "evil.example".to_owned()));
    request.urls.insert(0, "https://old.example.test/in".to_owned());
    assert_eq!(request.verify(recipe, &[SHARED], NOW), Ok(Some(1)));
    request.urls.clear();
    assert_eq!(request.refused(recipe, &[SHARED], NOW), Some(Reason::PublicUrlUnknown));
    let without = hmac("");
    assert!(!without.signs_url());
    let request = signed(&without, &Owned { urls: vec![], ..unsigned() }, SHARED);
    assert_eq!(request.verify(&without, &[SHARED], NOW), Ok(Some(1)));
}

#[test]
fn the_body_must_be_covered_whatever_the_recipe_asks_for() {
    let recipe = hmac("");
    for input in [
        r#"("@method");created=1750000000"#,
        r#"();created=1750000000"#,
        r#"("content-digest";key="sha-256");created=1750000000"#,
        r#"("content-digest";bs);created=1750000000"#,
    ] {
        let request = covering(&unsigned(), input);
        assert_eq!(request.refused(&recipe, &[SHARED], NOW), Some(Reason::SignedPartMissing), "{input}");
    }
    let good = covering(&unsigned(), r#"("content-digest");created=1750000000"#);
    assert_eq!(good.refused(&recipe, &[SHARED], NOW), None);
    let more = hmac(r#","components":["@path"]"#);
    assert_eq!(good.refused(&more, &[SHARED], NOW), Some(Reason::SignedPartMissing));
}

#[test]
fn digests_that_are_known_must_all_be_the_bodys() {
    let recipe = hmac("");
    let sha512 =
        format!("sha-512=:{}:", Encoding::Base64.encode(&<sha2::Sha512 as sha2::Digest>::digest(BODY)));
    let sha256 = digest::write(BODY);
    let wrong = digest::write(b"other");
    for (value, reason) in [
        (sha256.clone(), None),
        (sha512.clone(), None),
        (format!("{sha512}, {sha256}"), None),
        (format!("md5=:AAAA:, {sha256}"), None),
        (format!("{sha512}, {wrong}"), Some(Reason::BodyDigestMismatch)),
        ("md5=:AAAA:".to_owned(), Some(Reason::BodyDigestMismatch)),
        ("sha-256=AAAA".to_owned(), Some(Reason::SignatureMalformed)),
        ("sha-256=:AAAA:".to_owned(), Some(Reason::BodyDigestMismatch)),
        ("!".to_owned(), Some(Reason::SignatureMalformed)),
    ] {
        let mut request = unsigned();
        request.set(CONTENT_DIGEST, &value);
        // Sign over this very value.
        let text = format!(
            "\"content-digest\": {value}\n\"@signature-params\": (\"content-digest\");created=1750000000"
        );
        let mac = mac(Mac::HmacSha256, SHARED.as_bytes(), text.as_bytes());
        request.set(SIGNATURE_INPUT, r#"s=("content-digest");created=1750000000"#);
        request.set(SIGNATURE, &format!("s=:{}:", Encoding::Base64.encode(&mac)));
        assert_eq!(request.refused(&recipe, &[SHARED], NOW), reason, "{value}");
    }
}

#[test]
fn times_count_in_both_directions() {
    let recipe = hmac(r#","past_s":100,"future_s":10"#);
    let with = |params: &str| covering(&unsigned(), &format!(r#"("content-digest"){params}"#));
    let now = NOW.as_secs();
    for (params, reason) in [
        (format!(";created={}", now - 100), None),
        (format!(";created={}", now - 101), Some(Reason::TimestampTooOld)),
        (format!(";created={}", now + 10), None),
        (format!(";created={}", now + 11), Some(Reason::TimestampInFuture)),
        (format!(";created={now};expires={now}"), None),
        (format!(";created={now};expires={}", now - 1), Some(Reason::TimestampTooOld)),
        (String::new(), Some(Reason::TimestampMissing)),
        (format!(";expires={now}"), Some(Reason::TimestampMissing)),
        (";created=1.5".to_owned(), Some(Reason::TimestampMalformed)),
        (";created=\"1750000000\"".to_owned(), Some(Reason::TimestampMalformed)),
        (format!(";created={now};expires=soon"), Some(Reason::TimestampMalformed)),
    ] {
        assert_eq!(with(&params).refused(&recipe, &[SHARED], NOW), reason, "{params}");
    }
}

#[test]
fn algorithm_key_and_tag_must_be_the_sources() {
    let recipe = hmac(r#","tag":"app""#);
    let with =
        |params: &str| covering(&unsigned(), &format!(r#"("content-digest");created=1750000000{params}"#));
    for (params, keyid, reason) in [
        (r#";tag="app""#, None, None),
        (r#";tag="app";alg="hmac-sha256""#, None, None),
        (r#";tag="app";alg="ed25519""#, None, Some(Reason::SignatureMalformed)),
        (r#";tag="app";alg=hmac-sha256"#, None, Some(Reason::SignatureMalformed)),
        (r#";tag="other""#, None, Some(Reason::NotForThisSource)),
        ("", None, Some(Reason::NotForThisSource)),
        (r#";tag="app";keyid="k1""#, None, None),
        (r#";tag="app";keyid="k1""#, Some("k1"), None),
        (r#";tag="app";keyid="k2""#, Some("k1"), Some(Reason::NotForThisSource)),
        (r#";tag="app""#, Some("k1"), Some(Reason::NotForThisSource)),
    ] {
        let mut request = with(params);
        if let Some(keyid) = keyid {
            request.setting("keyid", keyid);
        }
        assert_eq!(request.refused(&recipe, &[SHARED], NOW), reason, "{params} {keyid:?}");
    }
}

#[test]
fn among_several_signatures_the_label_or_any_good_one_counts() {
    let good = covering(&unsigned(), r#"("content-digest");created=1750000000"#);
    let (input, signature) = (good.header(SIGNATURE_INPUT).to_owned(), good.header(SIGNATURE).to_owned());
    let with = |inputs: &str, signatures: &str| {
        let mut request = good.clone();
        request.set(SIGNATURE_INPUT, inputs);
        request.set(SIGNATURE, signatures);
        request
    };
    let both =
        with(&format!(r#"x=("content-digest");created=1, {input}"#), &format!("x=:AAAA:, {signature}"));
    assert_eq!(both.refused(&hmac(""), &[SHARED], NOW), None);
    assert_eq!(both.refused(&hmac(r#","label":"s""#), &[SHARED], NOW), None);
    assert!(both.refused(&hmac(r#","label":"x""#), &[SHARED], NOW).is_some());
    assert_eq!(both.refused(&hmac(r#","label":"z""#), &[SHARED], NOW), Some(Reason::SignatureMissing));
    let many = with(&input, "a=:AA==:, b=:AA==:, c=:AA==:, d=:AA==:, s=:AA==:");
    assert_eq!(many.refused(&hmac(""), &[SHARED], NOW), Some(Reason::TooManySignatures));
    let apart = with(&input, "other=:AAAA:");
    assert_eq!(apart.refused(&hmac(""), &[SHARED], NOW), Some(Reason::SignatureMalformed));
    let mut split = good.clone();
    split.headers.push((SIGNATURE.to_owned(), "x=:AAAA:".to_owned()));
    assert_eq!(split.refused(&hmac(""), &[SHARED], NOW), None, "a header may come in parts");
}

#[test]
fn headers_that_are_missing_or_unreadable_are_told_apart() {
    let good = covering(&unsigned(), r#"("content-digest");created=1750000000"#);
    for name in [SIGNATURE, SIGNATURE_INPUT] {
        let mut request = good.clone();
        request.set(name, "(((");
        assert_eq!(request.refused(&hmac(""), &[SHARED], NOW), Some(Reason::SignatureMalformed), "{name}");
        request.headers.retain(|(have, _)| have != name);
        assert_eq!(request.refused(&hmac(""), &[SHARED], NOW), Some(Reason::SignatureMissing), "{name}");
    }
    for component in [
        r#""x-absent""#,
        r#""@query-param";name="zz""#,
        r#""content-type";key="a""#,
        r#""@status""#,
        r#""@path";x"#,
        r#""content-type";sf"#,
        r#""content-digest""#,
    ] {
        let request = covering(&unsigned(), &format!(r#"("content-digest" {component});created=1750000000"#));
        assert!(request.refused(&hmac(""), &[SHARED], NOW).is_some(), "{component}");
    }
    let mut request = unsigned();
    request.query = "a=1&a=2".to_owned();
    let request = covering(&request, r#"("content-digest" "@query-param";name="a");created=1750000000"#);
    assert_eq!(request.refused(&hmac(""), &[SHARED], NOW), Some(Reason::SignatureDuplicated));
}

#[test]
fn derived_components_and_parts_of_fields_have_the_values_of_the_rfc() {
    let mut request = unsigned();
    request.query = "a=1&b%20c=x+%2F".to_owned();
    request.set("dictionary", "a=1, b=2;x=1;y=2, c=(a b c)");
    request.headers.push(("list".to_owned(), " one ".to_owned()));
    request.headers.push(("list".to_owned(), "two".to_owned()));
    let input = r#"s=("@method" "@target-uri" "@authority" "@scheme" "@request-target" "@path" "@query" "@query-param";name="b%20c" "list" "list";bs "dictionary";key="b" "dictionary";key="c");created=1"#;
    let inputs: Dictionary = Parser::new(input).parse().expect("a dictionary");
    let Some(ListEntry::InnerList(covered)) = inputs.get("s") else { panic!("no list") };
    let text = request.with(|request| messages(request, covered)).expect("all there")[0].clone();
    let expected = concat!(
        "\"@method\": POST\n",
        "\"@target-uri\": https://Hooks.example.test:443/v1/t/acme/signed?a=1&b%20c=x+%2F\n",
        "\"@authority\": hooks.example.test\n",
        "\"@scheme\": https\n",
        "\"@request-target\": /v1/t/acme/signed?a=1&b%20c=x+%2F\n",
        "\"@path\": /v1/t/acme/signed\n",
        "\"@query\": ?a=1&b%20c=x+%2F\n",
        "\"@query-param\";name=\"b%20c\": x%20%2F\n",
        "\"list\": one, two\n",
        "\"list\";bs: :b25l:, :dHdv:\n",
        "\"dictionary\";key=\"b\": 2;x=1;y=2\n",
        "\"dictionary\";key=\"c\": (a b c)\n",
    );
    assert!(text.starts_with(expected), "{text}");
}

/// The request of RFC 9421, appendix B.2.
fn of_the_rfc() -> Owned {
    let mut request = Owned {
        query: "param=Value&Pet=dog".to_owned(),
        body: br#"{"hello": "world"}"#.to_vec(),
        urls: vec!["https://example.com/foo".to_owned()],
        ..Owned::default()
    };
    request.set("date", "Tue, 20 Apr 2021 02:07:55 GMT");
    request.set("content-type", "application/json");
    request.set("content-length", "18");
    request.set(
        CONTENT_DIGEST,
        "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
    );
    request
}

/// The text that an input of the RFC covers.
fn base_of_the_rfc(input: &str) -> Vec<u8> {
    let inputs: Dictionary = Parser::new(&format!("s={input}")).parse().expect("a dictionary");
    let Some(ListEntry::InnerList(covered)) = inputs.get("s") else { panic!("no list") };
    of_the_rfc().with(|request| messages(request, covered)).expect("all there").remove(0).into_bytes()
}

fn decoded(text: &str) -> Vec<u8> {
    Encoding::Base64.decode(text.as_bytes()).expect("base64")
}

#[test]
fn the_request_of_rfc_9421_b_2_5_has_its_mac() {
    let base = base_of_the_rfc(
        r#"("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#,
    );
    let key =
        decoded("uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==");
    let mac = mac(Mac::HmacSha256, &key, &base);
    assert_eq!(Encoding::Base64.encode(&mac), "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=");
}

#[test]
fn the_request_of_rfc_9421_b_2_6_verifies_with_ed25519() {
    let base = base_of_the_rfc(
        r#"("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#,
    );
    let key = PublicKey::from_spki_base64("MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=");
    let signature =
        decoded("wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==");
    assert!(key.expect("a key").verifies(KeyPairAlgorithm::Ed25519, &base, &signature));
}

#[test]
fn the_requests_of_rfc_9421_b_2_1_to_b_2_3_verify_with_rsa_pss() {
    let key = PublicKey::from_spki_base64(
        "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAr4tmm3r20Wd/PbqvP1s2
         +QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct+Lh1GH45x28Rw3Ry53mm+
         oAXjyQ86OnDkZ5N8lYbggD4O3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7OyrFAHq
         gDsznjPFmTOtCEcN2Z1FpWgchwuYLPL+Wokqltd11nqqzi+bJ9cvSKADYdUAAN5W
         Utzdpiy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw9lq4
         aOT9v6d+nb4bnNkQVklLQ3fVAvJm+xdDOp9LCNCN48V2pnDOkFV6+U9nV5oyc6XI
         2wIDAQAB",
    )
    .expect("a key");
    for (input, signature) in [
        (
            r#"();created=1618884473;keyid="test-key-rsa-pss";nonce="b3k2pp5k7z-50gnwp.yemd""#,
            "d2pmTvmbncD3xQm8E9ZV2828BjQWGgiwAaw5bAkgibUopemLJcWDy/lkbbHAve4cRAtx31Iq786U7it++wgGxbtRxf8Udx7zFZsckzXaJMkA7ChG52eSkFxykJeNqsrWH5S+oxNFlD4dzVuwe8DhTSja8xxbR/Z2cOGdCbzR72rgFWhzx2VjBqJzsPLMIQKhO4DGezXehhWwE56YCE+O6c0mKZsfxVrogUvA4HELjVKWmAvtl6UnCh8jYzuVG5WSb/QEVPnP5TmcAnLH1g+s++v6d4s8m0gCw1fV5/SITLq9mhho8K3+7EPYTU8IU1bLhdxO5Nyt8C8ssinQ98Xw9Q==",
        ),
        (
            r#"("@authority" "content-digest" "@query-param";name="Pet");created=1618884473;keyid="test-key-rsa-pss";tag="header-example""#,
            "LjbtqUbfmvjj5C5kr1Ugj4PmLYvx9wVjZvD9GsTT4F7GrcQEdJzgI9qHxICagShLRiLMlAJjtq6N4CDfKtjvuJyE5qH7KT8UCMkSowOB4+ECxCmT8rtAmj/0PIXxi0A0nxKyB09RNrCQibbUjsLS/2YyFYXEu4TRJQzRw1rLEuEfY17SARYhpTlaqwZVtR8NV7+4UKkjqpcAoFqWFQh62s7Cl+H2fjBSpqfZUJcsIk4N6wiKYd4je2U/lankenQ99PZfB4jY3I5rSV2DSBVkSFsURIjYErOs0tFTQosMTAoxk//0RoKUqiYY8Bh0aaUEb0rQl3/XaVe4bXTugEjHSw==",
        ),
        (
            r#"("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss""#,
            "bbN8oArOxYoyylQQUU6QYwrTuaxLwjAC9fbY2F6SVWvh0yBiMIRGOnMYwZ/5MR6fb0Kh1rIRASVxFkeGt683+qRpRRU5p2voTp768ZrCUb38K0fUxN0O0iC59DzYx8DFll5GmydPxSmme9v6ULbMFkl+V5B1TP/yPViV7KsLNmvKiLJH1pFkh/aYA2HXXZzNBXmIkoQoLd7YfW91kE9o/CCoC1xMy7JA1ipwvKvfrs65ldmlu9bpG6A9BmzhuzF8Eim5f8ui9eH8LZH896+QIF61ka39VBrohr9iyMUJpvRX2Zbhl5ZJzSRxpJyoEZAFL2FUo5fTIztsDZKEgM4cUA==",
        ),
    ] {
        let base = base_of_the_rfc(input);
        assert!(key.verifies(KeyPairAlgorithm::RsaPssSha512, &base, &decoded(signature)), "{input}");
        assert!(!key.verifies(KeyPairAlgorithm::RsaSha256, &base, &decoded(signature)), "{input}");
    }
}

#[test]
fn a_whole_request_of_the_rfc_verifies_through_the_recipe() {
    // Appendix B.2.3, which covers the body's digest.
    let recipe = recipe(
        r#"{"kind":"http-signatures","algorithm":"rsa-pss-sha512","key":"pem","components":["@method","@path","date"]}"#,
    );
    let mut request = of_the_rfc();
    request.set(SIGNATURE_INPUT, r#"sig-b23=("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss""#);
    request.set(SIGNATURE, "sig-b23=:bbN8oArOxYoyylQQUU6QYwrTuaxLwjAC9fbY2F6SVWvh0yBiMIRGOnMYwZ/5MR6fb0Kh1rIRASVxFkeGt683+qRpRRU5p2voTp768ZrCUb38K0fUxN0O0iC59DzYx8DFll5GmydPxSmme9v6ULbMFkl+V5B1TP/yPViV7KsLNmvKiLJH1pFkh/aYA2HXXZzNBXmIkoQoLd7YfW91kE9o/CCoC1xMy7JA1ipwvKvfrs65ldmlu9bpG6A9BmzhuzF8Eim5f8ui9eH8LZH896+QIF61ka39VBrohr9iyMUJpvRX2Zbhl5ZJzSRxpJyoEZAFL2FUo5fTIztsDZKEgM4cUA==:");
    let key = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAr4tmm3r20Wd/PbqvP1s2
+QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct+Lh1GH45x28Rw3Ry53mm+
oAXjyQ86OnDkZ5N8lYbggD4O3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7OyrFAHq
gDsznjPFmTOtCEcN2Z1FpWgchwuYLPL+Wokqltd11nqqzi+bJ9cvSKADYdUAAN5W
Utzdpiy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw9lq4
aOT9v6d+nb4bnNkQVklLQ3fVAvJm+xdDOp9LCNCN48V2pnDOkFV6+U9nV5oyc6XI
2wIDAQAB
-----END PUBLIC KEY-----";
    let then = Timestamp::from_secs(1_618_884_473);
    assert_eq!(request.verify(&recipe, &[key], then), Ok(Some(1)));
    let later = then.plus(Duration::from_secs(301));
    assert_eq!(request.refused(&recipe, &[key], later), Some(Reason::TimestampTooOld));
}

#[test]
fn an_ed25519_key_may_be_given_as_its_32_bytes() {
    let PrivateKey::Ed25519(key) = PrivateKey::from_pem(fixtures::ED25519_PRIVATE).expect("a key") else {
        panic!("not an Ed25519 key");
    };
    let bytes = Encoding::Base64.encode(key.verifying_key().as_bytes());
    let recipe = recipe(r#"{"kind":"http-signatures","algorithm":"ed25519","key":"base64"}"#);
    let request = signed(&recipe, &unsigned(), fixtures::ED25519_PRIVATE);
    assert_eq!(request.verify(&recipe, &[&bytes], NOW), Ok(Some(1)));
}

#[test]
fn a_recipe_with_a_mistake_is_refused_with_its_field() {
    for (options, field) in [
        (r#""algorithm":"hmac-sha256","key":"pem""#, "key"),
        (r#""algorithm":"ed25519","key":"text""#, "key"),
        (r#""algorithm":"rsa-v1_5-sha256","key":"base64""#, "key"),
        (r#""algorithm":"ed25519","key":"pem","components":["Content-Type"]"#, "components[0]"),
        (r#""algorithm":"ed25519","key":"pem","components":["@method","@status"]"#, "components[1]"),
        (r#""algorithm":"ed25519","key":"pem","components":[""]"#, "components[0]"),
        (r#""algorithm":"ed25519","key":"pem","label":"Sig 1""#, "label"),
        (r#""algorithm":"ed25519","key":"pem","tag":"é""#, "tag"),
        (r#""algorithm":"ed25519","key":"pem","past_s":9999999"#, "past_s"),
    ] {
        let refused = try_recipe(&format!(r#"{{"kind":"http-signatures",{options}}}"#)).err();
        assert_eq!(refused, Some(format!("schemes[0].verifier.{field}")), "{options}");
    }
    for options in [
        r#""algorithm":"none","key":"text""#,
        r#""key":"text""#,
        r#""algorithm":"ed25519","key":"pem","x":1"#,
    ] {
        assert!(try_recipe(&format!(r#"{{"kind":"http-signatures",{options}}}"#)).is_err(), "{options}");
    }
}

proptest! {
    #[test]
    fn any_body_and_query_that_is_signed_verifies(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        query in "[a-z0-9=&%+/]{0,20}",
        flipped in any::<usize>(),
    ) {
        let (recipe, ..) = &kinds()[0];
        let mut request = signed(recipe, &Owned { body, query, ..unsigned() }, SHARED);
        prop_assert_eq!(request.verify(recipe, &[SHARED], NOW), Ok(Some(1)));
        if !request.body.is_empty() {
            let at = flipped % request.body.len();
            request.body[at] ^= 1 << (flipped % 8);
            prop_assert!(request.refused(recipe, &[SHARED], NOW).is_some());
        }
    }

    #[test]
    fn no_headers_make_it_panic(
        input in "(s=|\\(|\\)|\"[@a-z-]{0,12}\"|;[a-z]{1,7}(=[0-9a-z\"]{0,5})?|, | ){0,12}",
        signature in "(s=|:[A-Za-z0-9+/=]{0,12}:|, |[a-z]=[0-9]){0,6}",
        digest in "(sha-256=|sha-512=|:[A-Za-z0-9+/=]{0,12}:|, ){0,6}",
    ) {
        let mut request = unsigned();
        request.set(SIGNATURE_INPUT, &input);
        request.set(SIGNATURE, &signature);
        request.set(CONTENT_DIGEST, &digest);
        prop_assert!(request.refused(&hmac(""), &[SHARED], NOW).is_some());
    }
}
